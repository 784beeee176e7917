"""torch comes from the index that is named, or loudly from elsewhere; a small torch stands in."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.version import Version

from tests.factory.elfmaker import make_library
from wheelfab.errors import ToolchainError
from wheelfab.store import Store
from wheelfab.toolchain import pip
from wheelfab.toolchain.torch import find_torch_tree, torch_tree

RELEASE = Version("2.4.1")
NEW_ABI = "_ZN3c105ErrorC1ENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


class Silent(SimpleHTTPRequestHandler):
    """Serves a folder and says nothing; a folder named ``forbidden`` is."""

    def do_GET(self) -> None:
        """As the base class does, but for what is forbidden."""
        if "forbidden" in self.path:
            self.send_error(403)
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing."""


@pytest.fixture
def indexes(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder of indexes and the address that serves it."""
    folder = tmp_path / "indexes"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def quiet_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pip configuration of this machine, but for what a test sets."""
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    pip.transport_settings.cache_clear()


def publish(folder: Path, version: str, *, cuda: str | None, python: str = "311") -> Path:
    """Put a small torch wheel and the page that links to it into the index ``folder``."""
    page = folder / "torch"
    page.mkdir(parents=True, exist_ok=True)
    path = page / f"torch-{version}-cp{python}-cp{python}-linux_x86_64.whl"
    info = f"torch-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torch/version.py", f"__version__ = '{version}'\ncuda = {cuda!r}\n")
        archive.writestr("torch/include/ATen/ATen.h", "#pragma once\n")
        archive.writestr("torch/lib/libc10.so", make_library(defined=(NEW_ABI,)))
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: cp{python}-cp{python}-linux_x86_64\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    links = "".join(f'<a href="{item.name}">{item.name}</a>\n' for item in page.glob("*.whl"))
    (page / "index.html").write_text(links)
    return path


def test_the_named_index_answers_and_nothing_beside_it(
    indexes: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, address = indexes
    wheel = publish(folder / "cpu", "2.4.1+cpu", cuda=None)
    tempting = publish(folder / "other", "2.4.1+zzz", cuda="12.1").parent
    monkeypatch.setenv("PIP_FIND_LINKS", str(tempting))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{address}/other")
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nfind-links = {tempting}\nconstraint = {tmp_path}/none.txt\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    store = Store(tmp_path / "store")
    index = f"{address}/cpu"
    find = partial(find_torch_tree, store, release=RELEASE, index=index, python="3.11")
    fetch = partial(torch_tree, store, release=RELEASE, index=index, python="3.11")
    assert find() is None
    tree = fetch()
    assert (tree.version, tree.cuda, tree.cxx11_abi) == ("2.4.1+cpu", None, True)
    assert tree.source == f"index {address}/cpu"
    assert not tree.fell_back
    assert tree.file == wheel.name
    assert tree.sha256 == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert (tree.include / "ATen" / "ATen.h").is_file()
    assert list(tree.root.glob("**/*.whl")) == []
    assert find() == fetch() == tree


@pytest.mark.parametrize("dead", ["http://127.0.0.1:9/cpu", "forbidden"])
def test_an_index_that_does_not_answer_is_replaced_loudly(
    indexes: tuple[Path, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    dead: str,
) -> None:
    folder, address = indexes
    publish(folder / "user", "2.4.1+cu121", cuda="12.1")
    monkeypatch.setenv("PIP_INDEX_URL", f"{address}/user")
    named = dead if dead.startswith("http") else f"{address}/{dead}"
    tree = torch_tree(
        Store(tmp_path / "store"), release=RELEASE, index=named, fallback="pypi", python="3.11"
    )
    assert (tree.version, tree.cuda) == ("2.4.1+cu121", "12.1")
    assert tree.source == f"pypi fallback: {named} cannot be reached"
    assert tree.fell_back
    assert f"warning: {named} cannot be reached; taking torch 2.4.1" in capsys.readouterr().err


def test_without_leave_to_fall_back_it_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        ToolchainError, match=r'gave no torch 2\.4\.1 .* allow torch-fallback = "pypi"'
    ):
        torch_tree(Store(tmp_path), release=RELEASE, index="http://127.0.0.1:9/cpu", python="3.11")
    assert list(tmp_path.rglob("*.whl")) == []


@pytest.mark.parametrize(("version", "python"), [("2.3.0+cpu", "311"), ("2.4.1+cpu", "312")])
def test_an_index_that_answers_without_the_wheel_is_no_reason_to_fall_back(
    indexes: tuple[Path, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    python: str,
) -> None:
    folder, address = indexes
    publish(folder / "cpu", version, cuda=None, python=python)
    publish(folder / "user", "2.4.1+cu121", cuda="12.1")
    monkeypatch.setenv("PIP_INDEX_URL", f"{address}/user")
    with pytest.raises(ToolchainError, match="name a release that the index has"):
        torch_tree(
            Store(tmp_path / "store"),
            release=RELEASE,
            index=f"{address}/cpu",
            fallback="pypi",
            python="3.11",
        )


def test_a_wheel_for_another_python_than_the_running_one_can_be_had(
    indexes: tuple[Path, str], tmp_path: Path
) -> None:
    folder, address = indexes
    publish(folder / "cpu", "2.4.1+cpu", cuda=None, python="39")
    tree = torch_tree(
        Store(tmp_path / "store"), release=RELEASE, index=f"{address}/cpu", python="3.9"
    )
    assert tree.python == "3.9"
    assert "cp39" in tree.file
