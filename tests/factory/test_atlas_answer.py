"""The rules: symbols where the loader looks, libraries that are there, keys that mean the same."""

from __future__ import annotations

import pytest
from packaging.specifiers import SpecifierSet

from wheelfab.atlas import Keys, Kind, Verdict, answer, is_shim, is_torch, kind_of
from wheelfab.atlas.atlas import Atlas

from .atlasmaker import KEYS, LATER_KEYS, atlas, release

ADD, LATER, SHIM = "_ZN2at6Tensor3addEv", "_ZN2at6Tensor5laterEv", "aoti_torch_new"
CUDA = "_ZN2at4cuda4makeEv"
LOADS, FAILS, UNKNOWN = Verdict.LOADS, Verdict.FAILS, Verdict.UNKNOWN
BOTH = {"libtorch_cpu.so": ("libc10.so",), "libtorch_cuda.so": (), "libc10.so": ()}


def verdicts(made: Atlas, *names: str, **more: object) -> list[Verdict]:
    return [item.verdict for item in answer(made, names, **more)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "ours", "shim"),
    [
        ("_ZN2at6Tensor3addEv", True, False),
        ("_ZN2ateqERKNS_6TensorES2_", True, False),
        ("_ZN3c10lsERSoNS_10DeviceTypeE", True, False),
        ("_ZTIN3c105ErrorE", True, False),
        ("_ZN4c10d12ProcessGroupD1Ev", True, False),
        ("_Z16THPVariable_WrapN2at10TensorBaseE", True, False),
        ("THPVariableClass", True, False),
        ("aoti_torch_empty_strided", True, True),
        ("torch_call_dispatcher", True, True),
        ("_ZNSt6vectorIN2at6TensorESaIS1_EED1Ev", True, False),
        ("_ZN2at6native12_GLOBAL__N_13addEv", False, False),
        ("_ZZN3c103logEvENKUlvE_clEv", False, False),
        ("_ZN12attribute3getEv", False, False),
        ("_ZN10foo2atomic3getEv", False, False),
        ("_ZNSt6vectorIiSaIiEED1Ev", False, False),
        ("memcpy", False, False),
    ],
)
def test_whose_a_symbol_is(name: str, ours: bool, shim: bool) -> None:
    assert (is_torch(name), is_shim(name)) == (ours, shim)


def test_kinds() -> None:
    assert kind_of(["memcpy"]) is Kind.NONE
    assert kind_of([SHIM, "memcpy"]) is Kind.STABLE
    assert kind_of([SHIM, ADD]) is Kind.CLASSIC


def test_b01_the_first_missing_symbol_is_named() -> None:
    made = atlas(
        (release("2.4.1"), {"libtorch_cpu.so": [ADD]}),
        (release("2.5.0"), {"libtorch_cpu.so": [ADD, LATER]}),
    )
    first, second = answer(made, [LATER, ADD, "memcpy"], Kind.CLASSIC)
    assert (first.verdict, first.missing) == (FAILS, (LATER,))
    assert first.reason == "1 of 2 symbols are missing"
    assert (second.verdict, second.missing) == (LOADS, ())


def test_a_symbol_counts_only_where_the_loader_looks() -> None:
    made = atlas((release("2.4.1", BOTH), {"libtorch_cpu.so": [ADD], "libtorch_cuda.so": [CUDA]}))
    (item,) = answer(made, [ADD, CUDA], needed=["libtorch_cpu.so"])
    assert (item.verdict, item.missing) == (FAILS, (CUDA,))
    assert "libtorch_cuda.so would have some" in item.reason
    assert verdicts(made, ADD, CUDA, needed=["libtorch_cpu.so", "libtorch_cuda.so"]) == [LOADS]
    assert verdicts(made, ADD, CUDA) == [LOADS]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("_ZN3c105ErrorC1ENS_14SourceLocationESs", "old string ABI, this release the C++11 one"),
        ("_ZN3c106detail14torchCheckFailEPKcS2_jRKSs", "old string ABI, this"),
        ("_ZN3c105ErrorC1ENSt7__cxx1112basic_stringE", "are missing"),
        ("_ZN2at6Tensor5laterEv", "are missing"),
    ],
)
def test_b03_string_abis_that_differ_are_named(name: str, words: str) -> None:
    made = atlas((release("2.7.0"), {"libtorch_cpu.so": [ADD]}))
    (item,) = answer(made, [ADD, name])
    assert words in item.reason
    assert ("string ABI" in words) == ("string ABI" in item.reason)


def test_needs_of_needs_are_looked_into() -> None:
    both = {"libtorch.so": ("libtorch_cpu.so",), "libtorch_cpu.so": ("libtorch.so",)}
    made = atlas((release("2.4.1", both), {"libtorch_cpu.so": [ADD]}))
    assert verdicts(made, ADD, needed=["libtorch.so"]) == [LOADS]


def test_a_library_of_torch_that_is_not_there() -> None:
    made = atlas((release("2.4.1"), {"libtorch_cpu.so": [ADD]}))
    (item,) = answer(made, [ADD], needed=["libtorch_cpu.so", "libc10_cuda.so"])
    assert item.verdict is FAILS
    assert item.reason.startswith("libc10_cuda.so is not in this release")


def test_a_release_that_was_not_wholly_read_is_unknown() -> None:
    made = atlas(
        (
            release("2.4.1", complete=False, notes=("libtorch_cuda.so was not read",)),
            {"libtorch_cpu.so": [ADD]},
        )
    )
    (item,) = answer(made, [ADD, LATER])
    assert item.verdict is UNKNOWN
    assert "libtorch_cuda.so was not read" in item.reason
    assert verdicts(made, ADD) == [LOADS]


def test_another_cuda_major_is_no_certainty() -> None:
    here = {"libtorch_cpu.so": (), "libtorch_cuda.so": ("libcudart.so.13",)}
    made = atlas((release("2.11.0", here), {"libtorch_cpu.so": [ADD]}))
    (item,) = answer(made, [ADD], needed=["libtorch_cpu.so", "libcudart.so.12"])
    assert item.verdict is UNKNOWN
    assert "it brings libcudart.so.13" in item.reason
    assert verdicts(made, ADD, needed=["libtorch_cpu.so", "libcudart.so.13"]) == [LOADS]
    assert verdicts(made, ADD, needed=["libtorch_cpu.so", "libcuda.so.1"]) == [LOADS]


@pytest.fixture
def shifted() -> Atlas:
    """Two releases with the same symbols; the later one has a dispatch key less."""
    return atlas(
        (release("2.12.1", dispatch=KEYS), {"libtorch_cpu.so": [ADD]}),
        (release("2.13.0", dispatch=LATER_KEYS), {"libtorch_cpu.so": [ADD]}),
    )


def test_a_kernel_under_a_number_that_is_no_backend_never_answers(shifted: Atlas) -> None:
    cpu, cuda = LATER_KEYS.index("CPU"), LATER_KEYS.index("CUDA")
    first, second = answer(shifted, [ADD], keys=Keys(numbers=frozenset({cpu, cuda})))
    assert (first.verdict, second.verdict) == (FAILS, LOADS)
    assert first.missing == ()
    assert "NotImplementedError" in first.reason
    assert "keys 3, 4 are StartOfDenseBackends, CPU here, where CPU, CUDA was meant" in first.reason


def test_numbers_that_mean_something_on_both_are_settled_by_metadata(shifted: Atlas) -> None:
    keys = Keys(numbers=frozenset({KEYS.index("CPU")}))  # CUDA's on the later one
    assert verdicts(shifted, ADD, keys=keys) == [UNKNOWN, UNKNOWN]
    old = SpecifierSet("<2.13")
    assert verdicts(shifted, ADD, keys=keys, allowed=old) == [LOADS, FAILS]
    assert verdicts(shifted, ADD, keys=keys, allowed=SpecifierSet(">=2")) == [UNKNOWN, UNKNOWN]


def test_nobody_registers_for_hip() -> None:
    later = (*LATER_KEYS[:5], "HIP", "Meta")
    made = atlas(
        (release("2.12.1", dispatch=KEYS), {"libtorch_cpu.so": [ADD]}),
        (release("2.13.0", dispatch=later), {"libtorch_cpu.so": [ADD]}),
    )
    keys = Keys(numbers=frozenset({KEYS.index("CPU"), KEYS.index("CUDA")}))
    assert verdicts(made, ADD, keys=keys) == [LOADS, FAILS]


def test_numbers_that_could_not_be_read(shifted: Atlas) -> None:
    assert verdicts(shifted, ADD, keys=Keys(read=False)) == [UNKNOWN, UNKNOWN]
    assert verdicts(shifted, ADD) == [LOADS, LOADS]


def test_the_stable_abi_names_its_keys() -> None:
    made = atlas(
        (release("2.12.1", dispatch=KEYS), {"libtorch_cpu.so": [SHIM]}),
        (release("2.13.0", dispatch=LATER_KEYS), {"libtorch_cpu.so": [SHIM]}),
    )
    assert verdicts(made, SHIM, keys=Keys(read=False)) == [LOADS, LOADS]
