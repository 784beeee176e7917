"""Downloads through pip, in the user's own configuration or in none, and unpacks wheels safely."""

from __future__ import annotations

import ast
import importlib.util
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from wheelfab.archive import layout_flaws, open_archive
from wheelfab.errors import FormatError, InfrastructureError, ToolchainError
from wheelfab.run import Completed, fetch_environment, run, tool_environment

_NO_DISK = re.compile(r"No space left on device|Errno 28\b|Disk quota exceeded")
_TRANSPORT = {"cert": "PIP_CERT", "client-cert": "PIP_CLIENT_CERT", "proxy": "PIP_PROXY"}
_LEVELS = ("global", "user", "site", ":env:")  # pip's own order: the last one counts
_TIMEOUT = 3600.0
_DEFAULT_INDEX = re.compile(r"--index-url <url>.*?\(default\s+(https?://[^\s)]+)\)", re.DOTALL)
_PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux_2_12", "manylinux2014")


def user_environment(temporary: Path) -> dict[str, str]:
    """The user's own pip, but for constraints: what is fetched here is pinned exactly."""
    return fetch_environment(
        {
            "PIP_CONSTRAINT": os.devnull,
            "PIP_REQUIRE_VIRTUALENV": "0",
            "TMPDIR": str(temporary),
        }
    )


def index_environment(temporary: Path) -> dict[str, str]:
    """A pip without any configuration, so that only the index on its command line can answer.

    Of the user's settings only how to reach the network is kept: certificates and the proxy.
    """
    network = {
        name: value
        for name, value in fetch_environment().items()
        if not name.startswith(("PIP_", "UV_"))
    }
    return tool_environment(
        {
            **network,
            **transport_settings(),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "TMPDIR": str(temporary),
        }
    )


def download(
    arguments: Sequence[str], *, into: Path, env: Mapping[str, str], dependencies: bool = False
) -> Completed:
    """Run ``pip download``, wheels only, into the folder ``into``.

    Raises ``ToolchainError`` when this Python has no pip, ``InfrastructureError`` when the disk is
    full; any other failure is returned.
    """
    if importlib.util.find_spec("pip") is None:
        raise ToolchainError(
            "this Python has no pip",
            where=sys.executable,
            next_step=f"run {sys.executable} -m ensurepip",
        )
    command = (sys.executable, "-m", "pip", "download", "--only-binary=:all:")
    alone = () if dependencies else ("--no-deps",)
    quiet = ("--no-input", "--progress-bar=off", "--dest", str(into))
    done = run((*command, *alone, *quiet, *arguments), env=env, timeout=_TIMEOUT)
    if not done.ok and _NO_DISK.search(done.stderr):
        raise InfrastructureError(
            "disk full while downloading",
            where=str(into),
            next_step="free some space or point WHEELFAB_STORE to a larger disk",
        )
    return done


def target(python: str) -> tuple[str, ...]:
    """What tells pip to take the wheels of one CPython (``3.11``, ``3.13t``), running or not."""
    names = (f"{name}_{platform.machine()}" for name in _PLATFORMS)
    platforms = (arg for name in names for arg in ("--platform", name))
    abis = (f"cp{python.replace('.', '')}", "abi3", "none")
    return (
        *("--python-version", python.rstrip("t"), "--implementation", "cp"),
        *(arg for abi in abis for arg in ("--abi", abi)),
        *platforms,
    )


def why(done: Completed) -> str:
    """The reason that a failed pip gave, in a line."""
    errors = [
        line.removeprefix("ERROR: ")
        for line in done.stderr.splitlines()
        if line.startswith("ERROR: ")
    ]
    reason = errors[0] if errors else done.stderr.strip().rpartition("\n")[2]
    return f"{done.ending}: {reason[:300]}"


def unpack_wheel(wheel: Path, into: Path) -> None:
    """Unpack a wheel whose layout is sound; raises ``FormatError`` naming its first flaw."""
    with open_archive(wheel) as archive:
        flaws = layout_flaws(archive, wheel.stat().st_size)
        if flaws:
            raise FormatError(str(flaws[0]), where=wheel.name, next_step="download it again")
        archive.extractall(into)


@cache
def transport_settings() -> Mapping[str, str]:
    """How the user's pip reaches the network, as variables of its environment."""
    done = run((sys.executable, "-m", "pip", "config", "list"), env=fetch_environment(), timeout=60)
    return transport_from(done.stdout) if done.ok else {}


@cache
def index_url() -> str:
    """The index that the user's pip asks first: its setting, or what pip has built in.

    Raises ``ToolchainError`` when neither can be told.
    """
    pip = (sys.executable, "-m", "pip")
    done = run((*pip, "config", "list"), env=fetch_environment(), timeout=60)
    if chosen := index_from(done.stdout):
        return chosen
    done = run((*pip, "download", "--help"), env=fetch_environment({"COLUMNS": "200"}), timeout=60)
    built_in = _DEFAULT_INDEX.search(done.stdout)
    if built_in is None:
        raise ToolchainError(
            "pip does not say which index it asks", where=sys.executable, next_step="name one"
        )
    return built_in.group(1)


def index_from(listing: str) -> str | None:
    """The index that ``pip config list`` names, if it does."""
    return _settings(listing, {"index-url": "index"}).get("index")


def transport_from(listing: str) -> Mapping[str, str]:
    """The settings of ``pip config list`` that say how to reach the network."""
    return _settings(listing, _TRANSPORT)


def _settings(listing: str, wanted: Mapping[str, str]) -> Mapping[str, str]:
    found: dict[str, tuple[int, str]] = {}
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        level, _, option = name.rpartition(".")
        variable = wanted.get(option)
        if variable and level in _LEVELS and value[:1] in ("'", '"'):
            ranked = (_LEVELS.index(level), str(ast.literal_eval(value)))
            found[variable] = max(found.get(variable, ranked), ranked)
    return {variable: value for variable, (_, value) in found.items()}
