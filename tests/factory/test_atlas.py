"""The atlas's data: what goes in comes out, in few bytes, the same ones each time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from wheelfab import facts
from wheelfab.atlas import Checked, answer, read_atlas
from wheelfab.atlas.atlas import OWN, pack_atlas, unpack_atlas, write_atlas
from wheelfab.errors import FormatError

from .atlasmaker import atlas, release

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), min_size=1, max_size=40)
LIBRARIES = ("libc10.so", "libtorch_cpu.so")
SYMBOLS = st.fixed_dictionaries({name: st.frozensets(NAMES, max_size=30) for name in LIBRARIES})


@settings(max_examples=60, deadline=None)
@given(st.lists(SYMBOLS, min_size=1, max_size=5))
def test_what_goes_in_comes_out(several: list[dict[str, frozenset[str]]]) -> None:
    parts = [(release(f"2.{number}.0"), symbols) for number, symbols in enumerate(several)]
    data = pack_atlas("linux-x86_64", parts)
    read = unpack_atlas(data, where="here")
    assert read.releases == tuple(item for item, _ in parts)
    assert read.symbols() == {item.version: symbols for item, symbols in parts}
    assert data == pack_atlas("linux-x86_64", list(reversed(parts)))
    for number, symbols in enumerate(several):
        for library, names in symbols.items():
            found = read.where(names)
            assert all(library in found[name][number] for name in names)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_file_is_refused_or_read_as_it_was(data: st.DataObject) -> None:
    whole = pack_atlas("linux-x86_64", [(release("2.4.1"), {"libc10.so": ["a", "b", "c"]})])
    at = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    damaged = whole[:at] if cut else whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
    try:
        found = unpack_atlas(damaged, where="here").symbols()
    except FormatError:
        return
    assert found == unpack_atlas(whole, where="here").symbols()


def test_a_symbol_that_no_release_has() -> None:
    found = atlas((release("2.4.1"), {"libc10.so": ["b"]})).where(["a", "b", "c"])
    assert found == {"a": (frozenset(),), "b": (frozenset({"libc10.so"}),), "c": (frozenset(),)}


def test_a_file_is_checked_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not an atlas"):
        write_atlas(tmp_path / "a", b"something else")
    assert list(tmp_path.iterdir()) == []


def test_where_there_is_none_it_is_said_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as caught:
        read_atlas(tmp_path / "none")
    assert "wheelfab atlas update" in str(caught.value)


def test_our_own_has_every_release_that_the_facts_name() -> None:
    read = read_atlas()
    known = {item.version for item in facts.torch_releases()}
    assert {item.version for item in read.releases} >= {v for v in known if v >= Version("2.1")}
    assert all(item.complete and item.checked is Checked.MEMBERS for item in read.releases)
    assert OWN.stat().st_size < 3_000_000


def test_our_own_agrees_with_the_facts() -> None:
    for item in read_atlas().releases:
        known = facts.torch_release(item.version)
        assert known is not None
        assert item.cxx11_abi == known.cxx11_abi
        assert item.cuda is not None
        assert Version(item.cuda) == known.pypi_cuda
        assert item.glibc is not None
        assert {tag.removeprefix("cp3").rstrip("t") for tag in item.pythons} == {
            str(python.minor) for python in known.pythons
        }


def test_our_own_is_read_and_asked_in_a_moment() -> None:
    names = ["_ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_RKN3c106ScalarE", "aoti_torch_nothing"]
    started = time.process_time()
    fresh = unpack_atlas(OWN.read_bytes(), where=str(OWN))
    read = time.process_time()
    answers = answer(fresh, names)
    assert read - started < 0.1
    assert time.process_time() - read < 0.5
    assert {item.missing for item in answers} == {("aoti_torch_nothing",)}
