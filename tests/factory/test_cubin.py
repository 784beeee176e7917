"""What cubins say of their kernels, handmade and real; broken ones are refused."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.drivers.cubin import Kernel, cubin
from tests.factory.elfmaker import make_library
from wheelfab.cubin import KernelFacts, read_cubin
from wheelfab.errors import FormatError
from wheelfab.fatbin import ImageKind, entries_of, read_image

REAL = Path(__file__).parent / "data" / "scale.fatbin"  # see data/README.md


def real_cubins() -> list[bytes]:
    return [read_image(REAL, entry) for entry in entries_of(REAL) if entry.kind is ImageKind.CUBIN]


@pytest.mark.parametrize("abi", [7, 8])
def test_a_cubin_tells_its_kernels_facts(abi: int) -> None:
    kernels = {
        "small": Kernel(params=[64], registers=40),
        "large": Kernel(params=[200], registers=168, static_shared=22016),
    }
    found = read_cubin(cubin(80, kernels, abi=abi), "test", parameters=True)
    plain = {"stack": 0, "local": 0, "constant": 0}
    assert found.arch == 80
    assert dict(found.kernels) == {
        "small": KernelFacts(registers=40, shared=0, parameters=64, **plain),
        "large": KernelFacts(registers=168, shared=22016, parameters=200, **plain),
    }


def test_shared_memory_that_the_system_keeps_is_not_the_kernels() -> None:
    kernel = Kernel(params=[64], static_shared=1024 + 128)
    assert read_cubin(cubin(90, {"one": kernel}), "test").kernels["one"].shared == 128


def test_real_cubins_say_what_cuobjdump_says() -> None:
    """Of CUDA 12.1; by ``cuobjdump -res-usage`` of 12.4, the parameters by the source."""
    cubins = [read_cubin(each, "x", parameters=True) for each in real_cubins()]
    found = {each.arch: dict(each.kernels) for each in cubins}
    plain = {"registers": 8, "stack": 0, "shared": 0, "local": 0, "parameters": 12}
    assert found == {
        80: {"scale": KernelFacts(constant=364, **plain)},
        90: {"scale": KernelFacts(constant=540, **plain)},
    }


@pytest.mark.parametrize("abi", [7, 8])
def test_the_suffix_is_a_flag_that_not_every_cubin_has(abi: int) -> None:
    assert read_cubin(cubin(90, {}, suffix="a", abi=abi), "x").suffix == "a"
    assert read_cubin(cubin(90, {}, abi=abi), "x").suffix == ""
    assert [read_cubin(each, "x").suffix for each in real_cubins()] == ["", "a"]


@pytest.mark.parametrize(("note", "suffix"), [("sm_100f", "f"), ("sm_103a", "a"), ("sm_90", "")])
def test_the_compilers_note_tells_the_suffix(note: str, suffix: str) -> None:
    text = b"\x05ptxas\0-v  -arch " + note.encode() + b" -m 64 \0"
    made = cubin(100, {}, abi=8, more={".note.nv.tkinfo": text})
    assert read_cubin(made, "x").suffix == suffix


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(FormatError, match="an ELF file for machine 62, not a cubin"):
        read_cubin(make_library(), "x")


@settings(max_examples=200, deadline=2000)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 30))
def test_no_mutation_gives_another_error(seed: int, count: int) -> None:
    random_ = random.Random(seed)
    data = bytearray(random_.choice(real_cubins()))
    for _ in range(count):
        data[random_.randrange(len(data))] = random_.choice((0, 1, 0x7F, 0xFF))
    with suppress(FormatError):
        read_cubin(bytes(data), "x")
