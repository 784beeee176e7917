"""What a host needs on this machine before it starts: libraries, files, variables."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wheelfab import drivers
from wheelfab.errors import HarnessError
from wheelfab.host import DriverPlace, Host, HostDriver, HostOption, Pollution
from wheelfab.model import DeviceRun
from wheelfab.run import check, run, tool_environment

VISIT = Path(__file__).with_name("visit.py")
QEMU = "qemu-x86_64-static"
_WSL = "/usr/lib/wsl/lib"
_COMPAT = "/usr/local/cuda/compat"
_OLD_STDCXX = "/opt/pollution/libstdc++"  # in the image driver-host
_CACHE_CONF = "/etc/ld.so.conf.d/000_host.conf"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_EMULATION_TIMEOUT = 900.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrangement:
    """A host's things: ``mounts`` from this machine, ``environment`` of its loads, scripts.

    ``folders`` are seen at their own path; ``setup`` are commands of its root before the first
    load.
    """

    folders: tuple[Path, ...] = ()
    mounts: Mapping[str, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    setup: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Emulation:
    """An emulation of devices that the project's script made in ``folder``, for one torch release.

    ``before`` is Python code that runs before torch is imported.
    """

    folder: Path
    environment: Mapping[str, str]
    before: str


def arrange(host: Host, folder: Path, libraries: Path) -> Arrangement:
    """Make what ``host`` needs in ``folder`` (its own); compiled things are kept in ``libraries``.

    Raises ``ToolchainError`` when a library cannot be made.
    """
    search, folders, mounts, setup = _libraries(host, libraries, folder)
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",  # noqa: S108 (the host's)
        "TMPDIR": "/tmp",  # noqa: S108
        "LC_ALL": "C.UTF-8",
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONDONTWRITEBYTECODE": "1",
        **dict.fromkeys(_THREADS, "1"),
    }
    if search:
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, search))
    if HostOption.NO_HOME in host.options:
        del environment["HOME"]
    mounts = {**mounts, **_written(host, folder), **_emulator(host)}
    return Arrangement(
        folders=(VISIT.parent, *folders),
        mounts=mounts,
        environment={**environment, **host.environment},
        setup=setup,
    )


def make_emulation(
    device_run: DeviceRun, root: Path, python: Path, torch: Path, folder: Path
) -> Emulation:
    """Run the project's emulation script for the torch package in ``torch``.

    Raises ``HarnessError`` when it fails or says something else than it must.
    """
    if device_run.emulation is None:
        raise HarnessError("the project has no emulation", where="project.device-run")
    folder.mkdir(parents=True, exist_ok=True)
    script = root / device_run.emulation
    environment = tool_environment({"PYTHONPATH": str(root)})
    done = run(
        (str(python), str(script), str(folder), str(torch)),
        env=environment,
        cwd=root,
        timeout=_EMULATION_TIMEOUT,
    )
    check(done, HarnessError, doing=f"making the emulation with {device_run.emulation}")
    try:
        record = json.loads(done.stdout)
        return Emulation(
            folder=folder,
            environment={str(key): str(value) for key, value in record["environment"].items()},
            before=str(record["before"]),
        )
    except (ValueError, KeyError, AttributeError) as error:
        raise HarnessError(f"said no JSON that fits: {error}", where=str(script)) from error


def _emulator(host: Host) -> dict[str, Path]:
    """The processor's emulator, for a place that has none of its own."""
    found = shutil.which(QEMU) if host.cpu is not None else None
    return {found: Path(found)} if found is not None else {}


def _released(made: Path, release: str, own: Path) -> Path:
    """The driver under the name that NVIDIA's has, with its release."""
    folder = own / "driver"
    folder.mkdir()
    file = folder / f"libcuda.so.{release}"
    shutil.copyfile(made / "libcuda.so.1", file)
    file.chmod(0o755)
    (folder / "libcuda.so.1").symlink_to(file.name)
    return folder


def _libraries(
    host: Host, folder: Path, own: Path
) -> tuple[list[str | Path], tuple[Path, ...], dict[str, Path], tuple[tuple[str, ...], ...]]:
    """Search path, folders to be seen, mounts and set-up commands for the host's libraries."""
    search: list[str | Path] = []
    folders: list[Path] = []
    mounts: dict[str, Path] = {}
    setup: tuple[tuple[str, ...], ...] = ()
    for kind in host.pollution:
        if kind is Pollution.STDCXX:
            search.append(_OLD_STDCXX)
        else:
            folders.append(drivers.make_pollution(drivers.Pollution(str(kind)), folder))
            search.append(folders[-1])
    if host.driver not in (HostDriver.NONE, HostDriver.REAL):
        made = drivers.make_driver(drivers.DriverKind(str(host.driver)), folder)
        if host.driver_release is not None:
            made = _released(made, host.driver_release, own)
        if host.driver_place is DriverPlace.PATH:
            folders.append(made)
            search.append(made)
        else:
            place = _WSL if host.driver_place is DriverPlace.WSL else _COMPAT
            mounts[place] = made
            setup = (("sh", "-c", f"echo {place} > {_CACHE_CONF} && ldconfig"),)
    if host.nvml:
        folders.append(drivers.make_management(folder))
        search.append(folders[-1])
    return search, tuple(folders), mounts, setup


def _written(host: Host, folder: Path) -> dict[str, Path]:
    """The files and programs of a host, written on this machine, by their path there."""
    mounts: dict[str, Path] = {}
    written: Sequence[tuple[str, str, int]] = [
        *((path, text, 0o644) for path, text in host.files.items()),
        *((path, text, 0o755) for path, text in host.programs.items()),
    ]
    for path, text, mode in written:
        file = folder / "files" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(mode)
        mounts[path] = file
    return mounts
