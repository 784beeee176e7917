"""Arch lists: what is accepted, how it is worded when not, and what runs where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfab import facts
from wheelfab.arch import (
    Arch,
    Code,
    alternative,
    code_for,
    cubin_runs_on,
    format_arch_list,
    parse_arch_list,
    ptx_runs_on,
    runs_on,
)
from wheelfab.errors import MatrixError, UsageError

FORM = "write each arch as 8.0, 9.0a or 9.0+PTX, with ; between them"

ENTRIES = st.builds(
    lambda target, ptx: target + ("+PTX" if ptx else ""),
    st.sampled_from(facts.known_archs()),
    st.booleans(),
)
SEPARATORS = st.text(alphabet="; ,\t\n", min_size=1, max_size=3)
CAPABILITIES = st.tuples(st.integers(3, 13), st.integers(0, 9))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8.0,8.6", "8.0;8.6"),
        ("8.0;8.0", "8.0"),
        ("9.0a+PTX", "9.0a+PTX"),
        ("12.0;", "12.0"),
        ("5.2 6.0 6.1 7.0 7.5 8.0 8.6 9.0+PTX", "5.2;6.0;6.1;7.0;7.5;8.0;8.6;9.0+PTX"),
        ("9.0;9.0+PTX", "9.0+PTX"),
        ("9.0 9.0a", "9.0;9.0a"),
        ("10.0f", "10.0f"),
        ("8.6;8.0", "8.0;8.6"),
        ("Ampere", "8.0;8.6+PTX"),
        ("Ada;Hopper", "8.9+PTX;9.0+PTX"),
        ("Turing Volta", "7.0+PTX;7.5+PTX"),
        ("Volta+Tegra", "7.2"),
        ("Blackwell", "10.0;10.3;12.0;12.1+PTX"),
        ("Ampere 8.0+PTX", "8.0+PTX;8.6+PTX"),
    ],
)
def test_lists_that_are_read(text: str, expected: str) -> None:
    assert format_arch_list(parse_arch_list(text)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"is empty; {FORM}"),
        (" \t;,", f"is empty; {FORM}"),
        (
            "native",
            "'native' would ask the GPUs of the build machine, which never decide what is built; "
            + FORM,
        ),
        ("90", "unknown arch '90'; write 9.0"),
        ("sm_90", "unknown arch 'sm_90'; write 9.0"),
        ("compute_90a+PTX", "unknown arch 'compute_90a+PTX'; write 9.0a+PTX"),
        ("8.0;120", "unknown arch '120'; write 12.0"),
        ("9.0A", "unknown arch '9.0A'; write 9.0a"),
        ("9.0+ptx", "unknown arch '9.0+ptx'; write 9.0+PTX"),
        ("8.9.1", f"unknown arch '8.9.1'; {FORM}, or a name such as Ampere"),
        ("All", f"unknown arch 'All'; {FORM}, or a name such as Ampere"),
        ("+PTX", f"unknown arch '+PTX'; {FORM}, or a name such as Ampere"),
        ("9.0+PTX+PTX", f"unknown arch '9.0+PTX+PTX'; {FORM}, or a name such as Ampere"),
        ("ampere", "unknown arch 'ampere'; did you mean 'Ampere'?"),
        ("Ampere+PTX", "unknown arch 'Ampere+PTX'; Ampere stands for 8.0;8.6+PTX"),
        ("8.9a", "no CUDA release knows 8.9a; use 8.9"),
        ("9.7", "no CUDA release knows 9.7; use 9.0"),
        ("13.0", "no CUDA release knows 13.0; use 12.1+PTX"),
        ("1.0", f"no CUDA release knows 1.0; {FORM}"),
        ("\uff19.0", f"unknown arch '\uff19.0'; {FORM}, or a name such as Ampere"),
    ],
)
def test_lists_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arch_list(text, where="TORCH_CUDA_ARCH_LIST")
    assert str(caught.value) == f"TORCH_CUDA_ARCH_LIST: {message}"


def test_the_caller_chooses_the_error() -> None:
    with pytest.raises(MatrixError, match=r"variants\.x\.arch: is empty"):
        parse_arch_list("", where="variants.x.arch", error=MatrixError)


def test_a_list_is_bounded() -> None:
    with pytest.raises(UsageError, match="has 129 entries; at most 128 are read"):
        parse_arch_list("8.0;" * 129)
    with pytest.raises(UsageError, match="has 8000 characters; at most 4096 are read"):
        parse_arch_list("8.0;" * 2000)


@given(st.lists(ENTRIES, min_size=1, max_size=20), st.data())
def test_any_separator_order_and_repetition_give_the_same_list(
    entries: list[str], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(entries + entries[:3]))
    text = "".join(entry + data.draw(SEPARATORS) for entry in shuffled)
    archs = parse_arch_list(text)
    assert archs == parse_arch_list(";".join(entries))
    assert archs == parse_arch_list(format_arch_list(archs))
    assert [arch.target for arch in archs] == list(dict.fromkeys(arch.target for arch in archs))
    assert {str(arch) for arch in archs if arch.ptx} == {e for e in entries if "+" in e}


@given(st.text(max_size=30))
def test_any_text_is_a_list_or_an_error_that_says_what_to_do(text: str) -> None:
    try:
        archs = parse_arch_list(text)
    except UsageError as error:
        assert error.next_step  # noqa: PT017 (the text may as well be a list)
    else:
        assert archs
        assert {arch.target for arch in archs} <= set(facts.known_archs())


def test_the_names_of_an_arch() -> None:
    arch = Arch(9, 0, "a", ptx=True)
    assert (arch.number, arch.sm, arch.compute) == (90, "sm_90a", "compute_90a")
    assert (str(arch), arch.target, arch.capability) == ("9.0a+PTX", "9.0a", (9, 0))
    assert Arch(12, 0).sm == "sm_120"
    assert min([Arch(10, 0), Arch(9, 0, "a"), Arch(9, 0)]) == Arch(9, 0)


@pytest.mark.parametrize(
    ("arch", "runs", "does_not"),
    [
        ("8.0", [(8, 0), (8, 6), (8, 9)], [(7, 5), (9, 0)]),
        ("8.6", [(8, 6), (8, 9)], [(8, 0), (9, 0)]),
        ("9.0", [(9, 0)], [(10, 0), (8, 9)]),
        ("9.0a", [(9, 0)], [(10, 0)]),
        ("9.0a+PTX", [(9, 0)], [(10, 0)]),
        ("10.0f", [(10, 0), (10, 3), (10, 7)], [(11, 0), (12, 0), (9, 0)]),
        ("10.3f+PTX", [(10, 3), (10, 7)], [(10, 0), (11, 0), (12, 0)]),
        ("12.0f", [(12, 0), (12, 1)], [(10, 0)]),
        ("10.0a", [(10, 0)], [(10, 3)]),
        ("9.0+PTX", [(9, 0), (10, 0), (12, 1)], [(8, 9)]),
    ],
)
def test_what_runs_where(
    arch: str, runs: list[tuple[int, int]], does_not: list[tuple[int, int]]
) -> None:
    (parsed,) = parse_arch_list(arch)
    assert [capability for capability in runs if not runs_on(parsed, capability)] == []
    assert [capability for capability in does_not if runs_on(parsed, capability)] == []


@given(ENTRIES, CAPABILITIES)
def test_laws_of_compatibility(entry: str, capability: tuple[int, int]) -> None:
    (arch,) = parse_arch_list(entry)
    assert cubin_runs_on(arch, arch.capability)
    assert ptx_runs_on(arch, arch.capability)
    if cubin_runs_on(arch, capability):
        assert ptx_runs_on(arch, capability)
        assert arch.major == capability[0]
    if capability < arch.capability:
        assert not ptx_runs_on(arch, capability)
    if arch.suffix and runs_on(arch, capability):
        assert runs_on(Arch(arch.major, arch.minor, "", ptx=True), capability)


def test_what_a_gpu_runs_of_a_list() -> None:
    archs = parse_arch_list("8.0;8.6;8.9;9.0+PTX")
    assert code_for(archs, (8, 9)) is Code.CUBIN
    assert code_for(archs, (9, 0)) is Code.CUBIN
    assert code_for(archs, (12, 0)) is Code.PTX
    assert code_for(archs, (7, 5)) is None


@pytest.mark.parametrize(
    ("arch", "known", "expected"),
    [
        (Arch(9, 0, "a"), ("8.0", "9.0"), "9.0"),
        (Arch(9, 0, "a", ptx=True), ("8.0", "9.0"), "9.0+PTX"),
        (Arch(8, 9), ("8.0", "8.6", "9.0"), "8.6"),
        (Arch(12, 0), ("8.0", "9.0", "9.0a"), "9.0+PTX"),
        (Arch(7, 0), ("7.5", "8.0"), None),
    ],
)
def test_the_nearest_arch(arch: Arch, known: tuple[str, ...], expected: str | None) -> None:
    assert alternative(arch, known) == expected
