"""Finding and loading, with fabricated records: each failure, its words, and that it is kept."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import freewheel
from freewheel import errors
from freewheel._native import Native, check_torch, release, satisfies


def record(requirement: str = ">=2.4.1,<2.5") -> dict[str, Any]:
    """A build record as the factory writes it, as far as loading reads it."""
    return {
        "version": "0.1.0+cu121.torch2.4",
        "torch": {"requirement": requirement, "headers": "2.4.1", "abi": "classic"},
    }


def native(folder: Path, content: object) -> Native:
    """A ``Native`` over a folder that holds only this record."""
    (folder / "_build.json").write_text(json.dumps(content), encoding="utf-8")
    return Native(folder)


@pytest.fixture
def torch_241(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module that passes for torch 2.4.1; its load_library opens nothing."""
    module = types.ModuleType("torch")
    module.__version__ = "2.4.1+cu121"  # type: ignore[attr-defined]

    def load_library(path: str) -> None:
        raise OSError(f"{path}: undefined symbol: _ZN3c10")

    module.ops = types.SimpleNamespace(load_library=load_library)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_source_tree(tmp_path: Path) -> None:
    """No record: not built, and how to build."""
    with pytest.raises(errors.NotBuiltError) as raised:
        Native(tmp_path).load()
    assert str(raised.value) == (
        f"freewheel in {tmp_path} has no native libraries; "
        "install a wheel, or build one: pip wheel --no-build-isolation ."
    )


@pytest.mark.parametrize("text", ["", "{", "[]", '{"torch": 1}', "\udc80"])
def test_broken_record(tmp_path: Path, text: str) -> None:
    """A record that cannot be read names its file."""
    (tmp_path / "_build.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(errors.NotBuiltError, match=r"_build\.json .*; install freewheel again"):
        Native(tmp_path).build()


def test_no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No torch: says so, and the line that installs the right one."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(errors.TorchMissingError) as raised:
        native(tmp_path, record()).load()
    assert str(raised.value).startswith(
        "freewheel 0.1.0+cu121.torch2.4 needs torch>=2.4.1,<2.5, but torch is not installed"
    )
    assert str(raised.value).endswith('; pip install "torch>=2.4.1,<2.5"')
    assert isinstance(raised.value.__cause__, ImportError)
    assert isinstance(raised.value, ModuleNotFoundError)  # which a caller may be waiting for
    assert raised.value.name == "torch"


def test_wrong_torch(tmp_path: Path, torch_241: types.ModuleType) -> None:
    """Another torch: what the wheel was built for, what was found, what to install."""
    torch_241.__version__ = "2.13.0+cpu"  # type: ignore[attr-defined]
    with pytest.raises(errors.TorchMismatchError) as raised:
        native(tmp_path, record()).load()
    assert str(raised.value) == (
        "freewheel 0.1.0+cu121.torch2.4 was built for torch>=2.4.1,<2.5 (with 2.4.1), but torch "
        '2.13.0+cpu is installed; pip install "torch>=2.4.1,<2.5", '
        "or a freewheel wheel whose torch pin takes torch 2.13"
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise OSError('libcudart.so.12: cannot open')", "does not import: OSError: libcudart"),
        ("raise ImportError('undefined symbol: nvJit')", "torch does not import: undefined symbol"),
        ("raise SystemExit('no licence')", "torch does not import: SystemExit: no licence"),
        ("import nothing_of_that_name", "torch does not import: No module named 'nothing"),
        ("", "is no torch"),
    ],
)
def test_b48_a_torch_that_breaks_is_an_import_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    """Whatever it raises, and whatever passes for it."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(body, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(ImportError, match=r"needs torch>=2\.4\.1,<2\.5, but ") as raised:
        native(tmp_path, record()).load()
    assert words in str(raised.value)
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def test_a_folder_named_torch_is_no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python takes any folder for a package."""
    (tmp_path / "torch").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(errors.TorchMissingError, match="is no torch"):
        native(tmp_path, record()).load()
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def test_a_second_interpreter_is_refused_before_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There torch would end the process."""
    module = types.ModuleType("freewheel._C")
    module.interpreter = lambda: 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "freewheel._C", module)
    monkeypatch.setattr(freewheel, "_C", module, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(errors.InterpreterError, match="this is interpreter 3; load it in the main"):
        native(tmp_path, record()).load()


@pytest.mark.usefixtures("torch_241")
def test_missing_library(tmp_path: Path) -> None:
    """A wheel without its library: the loader's own words."""
    with pytest.raises(errors.LibraryError, match=r"_kernels\.so does not load: .*cannot open"):
        native(tmp_path, record()).load()


@pytest.mark.usefixtures("torch_241")
def test_not_a_library(tmp_path: Path) -> None:
    """A damaged library: the loader's own words."""
    (tmp_path / "_kernels.so").write_bytes(b"not an ELF file")
    with pytest.raises(errors.LibraryError, match=r"_kernels\.so does not load: "):
        native(tmp_path, record()).load()


def test_failure_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call raises the first failure again, without trying."""
    monkeypatch.setitem(sys.modules, "torch", None)
    libraries = native(tmp_path, record())
    with pytest.raises(errors.TorchMissingError) as first:
        libraries.load()
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(errors.TorchMissingError) as second:
        libraries.load()
    assert second.value is first.value


@pytest.mark.parametrize(
    ("version", "requirement", "fits"),
    [
        ("2.4.1", ">=2.4.1,<2.5", True),
        ("2.4.0", ">=2.4.1,<2.5", False),
        ("2.4.2+cu121", ">=2.4.1,<2.5", True),
        ("2.5.0", ">=2.4.1,<2.5", False),
        ("2.10.0", ">=2.10", True),
        ("2.9.1", ">=2.10", False),
        ("3.0.0", ">=2.10", True),
        ("2.5.0a0+e000abc", ">=2.5,<2.6", True),
        ("2.10.0a0+b4e4ee81d3.nv25.11", ">=2.10", True),  # as NVIDIA's containers have it
        ("2.4.1a0+x", ">=2.4.1,<2.5", True),
        ("2.5.0.dev20260101", ">= 2.5 , < 2.6", True),
        ("2.4.1", "==2.4.1", True),
        ("2.4.2", "==2.4.1", False),
    ],
)
def test_satisfies(version: str, requirement: str, fits: bool) -> None:
    """Numbers are compared as numbers; a vendor's pre-release counts as its release."""
    assert satisfies(version, requirement) is fits


def test_unreadable_requirement() -> None:
    """Never taken for met."""
    with pytest.raises(ValueError, match="cannot read the requirement"):
        satisfies("2.4.1", "~=2.4")


@given(st.lists(st.integers(0, 99), min_size=1, max_size=3), st.sampled_from(["", "rc1", "a0+g1"]))
def test_release(numbers: list[int], suffix: str) -> None:
    """Any version's numbers come back, filled up to three."""
    text = ".".join(map(str, numbers)) + suffix
    assert release(text) == (*numbers, *[0] * (3 - len(numbers)))


def test_check_torch_accepts() -> None:
    """The torch it was built for passes in silence."""
    check_torch(record(), "2.4.1+cu124")
