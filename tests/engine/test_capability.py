"""Row 20: capability as something to query; here of a source tree, which has no library."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import freewheel
from freewheel import _native, capability
from freewheel.device import DeviceState, Needs, Status
from freewheel.errors import DeviceError, LibraryError

STATE = DeviceState(Status.CUDA_UNAVAILABLE, "no driver", "install one")


def fake_c(**more: object) -> ModuleType:
    """A module that passes for ``_C``."""
    module = ModuleType("freewheel._C")
    module.limits = lambda: {  # type: ignore[attr-defined]
        "dtypes": ("float32",),
        "head_sizes": (64,),
        "block_sizes": (8,),
    }
    module.instruction_sets = lambda: {  # type: ignore[attr-defined]
        "built": "x86-64-v2 avx2 avx512",
        "usable": "x86-64-v2",
    }
    module.kernels = lambda: {"cpu_isa": "x86-64-v2"}  # type: ignore[attr-defined]
    for name, value in more.items():
        setattr(module, name, value)
    return module


def test_row_20_a_source_tree_has_reasons_instead_of_errors() -> None:
    known = freewheel.capabilities(STATE)
    assert known.state is STATE
    assert known.operations == ()
    assert known.torch.loadable is False
    assert known.torch.reason == "freewheel has no native libraries here"
    broken = {part.name: part.reason for part in known.parts if part.usable is False}
    assert set(broken) == {"_C", "_torch.so", "_probe"}
    assert all(broken.values())
    assert known.cpu.chosen is None
    assert known.cpu.reason


def test_row_20_only_a_requirement_raises() -> None:
    known = freewheel.capabilities(STATE)
    known.validate(Needs(devices=0))
    with pytest.raises(DeviceError, match="no driver; install one"):
        known.validate(Needs())


def test_row_20_what_a_library_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "freewheel._C", fake_c())
    monkeypatch.setattr(freewheel, "_C", fake_c(), raising=False)
    known = freewheel.capabilities(STATE)
    assert (known.cpu.built[-1], known.cpu.usable, known.cpu.chosen) == (
        "avx512",
        ("x86-64-v2",),
        "x86-64-v2",
    )
    sizes = {item.name: (item.dtypes, item.head_sizes) for item in known.operations}
    assert sizes["rms_norm"] == (("float32",), ())
    assert sizes["paged_attention"] == (("float32",), (64,))


def test_b48_a_part_that_does_not_load_keeps_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there need not load: it is opened, and the loader's words are kept."""

    def damaged() -> dict[str, str]:
        raise ImportError("_kernels.so: file too short")

    monkeypatch.setattr(freewheel, "_C", fake_c(instruction_sets=damaged), raising=False)
    known = freewheel.capabilities(STATE)
    parts = {part.name: part for part in known.parts}
    assert parts["_C"].usable
    assert parts["_kernels.so"].usable is False
    assert parts["_kernels.so"].reason == "_kernels.so: file too short"
    assert known.cpu.reason == "_kernels.so: file too short"
    assert len(known.operations) == 6


def test_a_wrong_instruction_set_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> dict[str, str]:
        raise RuntimeError("FREEWHEEL_ISA=neon: no such instruction set")

    monkeypatch.setattr(freewheel, "_C", fake_c(kernels=refuses), raising=False)
    cpu = freewheel.capabilities(STATE).cpu
    assert (cpu.chosen, cpu.usable) == (None, ("x86-64-v2",))
    assert "neon" in cpu.reason


@pytest.mark.parametrize(
    ("found", "loadable", "words"),
    [
        (None, False, "torch is not installed"),
        ("2.4.1", False, "was built for torch>=2.10 (with 2.13.0), but torch 2.4.1 is installed"),
        ("2.13.0+cpu", None, "not tried yet"),
    ],
)
def test_b49_built_for_and_found(
    monkeypatch: pytest.MonkeyPatch, found: str | None, loadable: bool | None, words: str
) -> None:
    record = {"version": "0.1.0", "torch": {"requirement": ">=2.10", "headers": "2.13.0"}}
    monkeypatch.setattr(_native, "build", lambda: record)
    monkeypatch.setattr(capability, "torch_version", lambda: found)
    binding = freewheel.capabilities(STATE).torch
    assert (binding.built_for, binding.found, binding.loadable) == (">=2.10", found, loadable)
    assert words in binding.reason


def test_a_load_that_was_tried_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "outcome", lambda: LibraryError("undefined symbol"))
    assert freewheel.capabilities(STATE).torch.loadable is False
    assert freewheel.capabilities(STATE).torch.reason == "undefined symbol"
    monkeypatch.setattr(_native, "outcome", lambda: True)
    assert freewheel.capabilities(STATE).torch.loadable is True
