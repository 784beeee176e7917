"""What is read out of a torch wheel, and how the wheel is asked for; nothing is fetched here."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from tests.factory.elfmaker import make_library
from wheelfab.errors import FormatError, ToolchainError
from wheelfab.locked import LockedTorch
from wheelfab.records import write_json
from wheelfab.run import Completed
from wheelfab.store import Store
from wheelfab.toolchain import torch_facts
from wheelfab.toolchain.torch import (
    KIND,
    TorchTree,
    _warn_fallback,
    choose_python,
    is_unreachable,
    measure_cxx11_abi,
    read_version,
    torch_key,
    torch_tree,
)

OLD = "_ZN3c105ErrorC1ENS_14SourceLocationESs"
NEW = "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            (
                "from typing import Optional\n"
                "__all__ = ['__version__']\n"
                "__version__ = '2.4.1+cu121'\ndebug = False\n"
                "cuda: Optional[str] = '12.1'\nhip: Optional[str] = None\n"
            ),
            ("2.4.1+cu121", "12.1"),
        ),
        ("__version__ = '2.13.0+cpu'\ncuda: str | None = None\n", ("2.13.0+cpu", None)),
        ("__version__ = '1.0'\n", ("1.0", None)),
    ],
)
def test_version_and_cuda_are_read_without_running_the_file(
    tmp_path: Path, text: str, expected: tuple[str, str | None]
) -> None:
    path = tmp_path / "version.py"
    path.write_text(text + "raise SystemExit('it was run')\n", encoding="utf-8")
    assert read_version(path) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "no __version__"), ("__version__ = f()", "no __version__"), ("def (", "cannot be read")],
)
def test_a_file_without_a_version_is_an_error(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "version.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ToolchainError, match=says):
        read_version(path)


@pytest.mark.parametrize(("symbol", "abi"), [(NEW, True), (OLD, False)])
def test_the_string_abi_is_measured_from_the_constructors(
    tmp_path: Path, symbol: str, abi: bool
) -> None:
    library = tmp_path / "libc10.so"
    unrelated = NEW.replace("5Error", "5Other")
    library.write_bytes(make_library(defined=(unrelated, symbol)))
    assert measure_cxx11_abi(library) is abi


def test_a_library_that_tells_nothing_is_an_error(tmp_path: Path) -> None:
    library = tmp_path / "libc10.so"
    with pytest.raises(ToolchainError, match=r"no libc10\.so in the wheel"):
        measure_cxx11_abi(library)
    library.write_bytes(make_library(undefined=(NEW,)))
    with pytest.raises(ToolchainError, match="no constructor of c10::Error"):
        measure_cxx11_abi(library)
    library.write_text("no library")
    with pytest.raises(FormatError, match="not an ELF file"):
        measure_cxx11_abi(library)


def test_the_running_python_is_preferred_where_the_release_has_it() -> None:
    pythons = torch_facts(Version("2.4.1")).pythons
    assert choose_python(Version("2.4.1"), (3, 11)) == "3.11"
    assert choose_python(Version("2.4.1"), (3, 99)) == str(max(pythons)) == "3.12"


def test_an_unknown_release_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ToolchainError, match=r"nothing is known of torch 9\.9.*known are .*2\.4\.1"
    ):
        torch_facts(Version("9.9"))


def test_each_origin_and_python_has_a_key_of_its_own() -> None:
    release = Version("2.13.0+cpu")
    keys = {
        torch_key(release, index, fallback, python)
        for index in ("https://one", "https://two")
        for fallback in (None, "pypi")
        for python in ("3.11", "3.13t")
    }
    assert len(keys) == 8
    assert all(key.startswith(("2.13.0-cp311-", "2.13.0-cp313t-")) for key in keys)


@pytest.mark.parametrize(
    ("said", "unreachable"),
    [
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError",
            True,
        ),
        ("Could not fetch URL https://x/torch/: 403 Client Error: Forbidden - skipping", True),
        ("Could not fetch URL https://x/torch/: 503 Server Error: Busy - skipping", True),
        ("Could not fetch URL https://x/torch/: 404 Client Error: Not Found - skipping", False),
        ("ERROR: No matching distribution found (from versions: 2.3.0, 2.4.0)", False),
        ("ERROR: Could not find a version (from versions: none)", False),
    ],
)
def test_an_index_that_answers_is_told_from_one_that_does_not(said: str, unreachable: bool) -> None:
    done = Completed(argv=("pip",), returncode=1, stdout=said, stderr="", seconds=0.1)
    assert is_unreachable(done) is unreachable


def stored(store: Store, index: str) -> None:
    """A tree in ``store`` as an earlier fetch left it, for a lock that was made of it."""
    record = {
        "release": "2.4.1",
        "version": "2.4.1+cu121",
        "python": "3.11",
        "file": "torch-2.4.1-cp311-cp311-manylinux1_x86_64.whl",
        "sha256": "a" * 64,
        "source": "index https://elsewhere",
        "cuda": "12.1",
        "cxx11_abi": False,
    }
    key = torch_key(Version("2.4.1"), index, "pypi", "3.11")
    store.entry(KIND, key, lambda content: write_json(content / "torch-tree.json", record))


@pytest.mark.parametrize(
    ("had", "source", "warned"),
    [
        (
            "pypi fallback: https://there cannot be reached",
            "pypi fallback: locked from the fallback index",
            (
                "warning: torch 2.4.1+cu121 is the lock's, from the fallback, not from "
                "https://there; run `wheelfab lock --upgrade` where that answers\n"
            ),
        ),
        ("index https://there", "index https://there", ""),
    ],
)
def test_a_locked_fallback_is_said_once_and_recorded_as_what_it_is(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    had: str,
    source: str,
    warned: str,
) -> None:
    store, index = Store(tmp_path / "store"), "https://there"
    stored(store, index)
    locked = LockedTorch(
        release="2.4.1",
        index=index,
        python="3.11",
        version="2.4.1",
        file="torch-2.4.1-cp311-cp311-manylinux1_x86_64.whl",
        sha256="a" * 64,
        source=had,
    )
    _warn_fallback.cache_clear()
    asked = {"release": Version("2.4.1"), "index": index, "fallback": "pypi", "locked": locked}
    trees = [torch_tree(store, **asked) for _ in range(2)]  # type: ignore[arg-type]
    assert [tree.source for tree in trees] == [source] * 2
    assert trees[0].fell_back is bool(warned)
    assert capsys.readouterr().err == warned


def test_a_tree_knows_its_folders_and_whether_it_is_a_fallback(tmp_path: Path) -> None:
    tree = TorchTree(
        root=tmp_path,
        release="2.4.1",
        version="2.4.1+cu121",
        python="3.11",
        file="torch-2.4.1-cp311-cp311-manylinux1_x86_64.whl",
        sha256="0" * 64,
        source="pypi fallback: https://x cannot be reached",
        cuda="12.1",
        cxx11_abi=False,
    )
    assert (tree.path, tree.include) == (tmp_path / "torch", tmp_path / "torch/include")
    assert tree.lib == tmp_path / "torch/lib"
    assert tree.fell_back
