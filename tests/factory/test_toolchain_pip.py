"""How pip is set up for a download, and what is taken out of its words."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from wheelfab.errors import FormatError, InfrastructureError, ToolchainError
from wheelfab.run import Completed
from wheelfab.toolchain import pip


def ended(stderr: str, returncode: int = 1) -> Completed:
    """A pip that ended so."""
    return Completed(argv=("pip",), returncode=returncode, stdout="", stderr=stderr, seconds=0.1)


def test_the_users_own_pip_keeps_all_but_its_constraints(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_CONSTRAINT", "/somewhere/constraints.txt")
    monkeypatch.setenv("PIP_FIND_LINKS", "/somewhere")
    environment = pip.user_environment(tmp_path)
    assert environment["PIP_CONSTRAINT"] == os.devnull
    assert environment["PIP_FIND_LINKS"] == "/somewhere"
    assert environment["TMPDIR"] == str(tmp_path)


def test_a_named_index_is_asked_with_nothing_beside_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pip, "transport_settings", lambda: {"PIP_CERT": "/ca.pem"})
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "UV_INDEX"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    environment = pip.index_environment(tmp_path)
    ours = {name: value for name, value in environment.items() if name.startswith(("PIP_", "UV_"))}
    assert ours == {
        "PIP_CERT": "/ca.pem",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    assert environment["HTTPS_PROXY"] == "http://proxy"


def test_of_a_configuration_only_the_transport_is_taken() -> None:
    listing = (
        ":env:.cert='/env.pem'\n"
        "global.cert='/global.pem'\n"
        "global.extra-index-url='file:///x'\n"
        'global.proxy="http://it\'s"\n'
        "user.client-cert='/client.pem'\n"
        "nonsense\n"
    )
    assert pip.transport_from(listing) == {
        "PIP_CERT": "/env.pem",
        "PIP_PROXY": "http://it's",
        "PIP_CLIENT_CERT": "/client.pem",
    }


def test_the_index_is_the_one_that_pip_asks_first() -> None:
    listing = (
        "global.extra-index-url='http://more'\n"
        "global.index-url='http://global/simple'\n"
        "user.index-url='http://user/simple'\n"
    )
    assert pip.index_from(listing) == "http://user/simple"
    assert pip.index_from("global.extra-index-url='http://more'\n") is None


def test_the_reason_is_the_first_error() -> None:
    text = "WARNING: x\nERROR: No such version (from versions: 1, 2)\nERROR: No matching\n"
    assert pip.why(ended(text)) == "exit 1: No such version (from versions: 1, 2)"
    assert pip.why(ended("Traceback\nKeyError: 'x'")) == "exit 1: KeyError: 'x'"


def test_a_full_disk_is_no_failure_of_the_index(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    monkeypatch.setattr(pip, "run", lambda *_, **__: ended(said))
    with pytest.raises(InfrastructureError, match="disk full while downloading"):
        pip.download(("x",), into=tmp_path, env={})


def test_a_python_without_pip_is_told_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ToolchainError, match=r"has no pip; run .* -m ensurepip"):
        pip.download(("x",), into=tmp_path, env={})


@pytest.mark.parametrize("name", ["../outside", "/absolute", "a/../../b"])
def test_a_wheel_that_writes_elsewhere_is_not_unpacked(tmp_path: Path, name: str) -> None:
    wheel = tmp_path / "evil-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("evil/__init__.py", "")
        archive.writestr(name, "x")
    with pytest.raises(FormatError, match=r"evil-1-py3-none-any\.whl"):
        pip.unpack_wheel(wheel, tmp_path / "into")
    assert not (tmp_path / "into").exists()
    assert not (tmp_path / "outside").exists()
