"""ELF facts agree with pyelftools; broken files are refused, whatever is broken in them."""

from __future__ import annotations

import importlib.util
import random
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import NoteSection, SymbolTableSection
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.factory.elfmaker import OFFSET, SIZE, TYPE, make_library, with_field
from wheelfab.elf import Elf, Relro, is_elf, parse_elf, read_elf, symbol_places
from wheelfab.errors import FormatError

LIBRARY = make_library(
    defined=("first", "second"),
    undefined=("wanted",),
    weak=("maybe",),
    needed=("libc.so.6", "libm.so.6"),
    soname="libours.so",
    runpath="$ORIGIN",
)
EMPTY = make_library(sections=(".rodata",))
BSS = with_field(make_library(sections=(".bss",)), ".bss", TYPE, 8)


def real_files() -> list[Path]:
    """Extension modules of this Python's environment: compiled by others, with versions."""
    names = ("_ctypes", "pydantic_core._pydantic_core", "zlib", "_ssl")
    specs = [importlib.util.find_spec(name) for name in names]
    origins = [spec.origin for spec in specs if spec and spec.origin]
    return [Path(origin) for origin in origins if origin.endswith(".so")]


@pytest.mark.parametrize("path", real_files(), ids=lambda path: path.name)
def test_facts_agree_with_pyelftools(path: Path) -> None:
    facts = read_elf(path)
    with path.open("rb") as file:
        elf = ELFFile(file)
        dynamic = elf.get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)

        def named(tag: str) -> list[str]:
            """The names that tags of one kind hold; pyelftools calls the attribute by the tag."""
            attribute = tag.removeprefix("DT_").lower()
            return [getattr(item, attribute) for item in dynamic.iter_tags(tag)]

        assert facts.machine == {"EM_X86_64": 62, "EM_AARCH64": 183}[elf["e_machine"]]
        assert list(facts.needed) == named("DT_NEEDED")
        for tag, own in (
            ("DT_SONAME", facts.soname),
            ("DT_RPATH", facts.rpath),
            ("DT_RUNPATH", facts.runpath),
        ):
            assert ([own] if own is not None else []) == named(tag)
        assert [section.name for section in facts.sections] == [s.name for s in elf.iter_sections()]
        assert (facts.relro, facts.build_id) == (reference_relro(elf, dynamic), build_id(elf))
        assert facts.initialisers == next(tag["d_val"] for tag in array_sizes(dynamic)) // 8
        assert not facts.text_relocations
        assert facts.stripped == (elf.get_section_by_name(".symtab") is None)
        assert facts.debug == elf.has_dwarf_info(strict=True)
        assert symbols_of(facts) == reference_symbols(elf)
        assert dict(facts.version_needs) == reference_needs(elf)


def array_sizes(dynamic: DynamicSection) -> list[Any]:
    return list(dynamic.iter_tags("DT_INIT_ARRAYSZ"))


def reference_relro(elf: ELFFile, dynamic: DynamicSection) -> Relro:
    """By pyelftools, from the flags that each of the three tags may hold."""
    if not any(segment["p_type"] == "PT_GNU_RELRO" for segment in elf.iter_segments()):
        return Relro.NONE
    tags = {tag["d_tag"]: tag["d_val"] for tag in dynamic.iter_tags()}
    now = "DT_BIND_NOW" in tags or tags.get("DT_FLAGS", 0) & 8 or tags.get("DT_FLAGS_1", 0) & 1
    return Relro.FULL if now else Relro.PARTIAL


def build_id(elf: ELFFile) -> str | None:
    """By pyelftools."""
    sections = [one for one in elf.iter_sections() if isinstance(one, NoteSection)]
    notes = [note for one in sections for note in one.iter_notes()]
    found = [str(note["n_desc"]) for note in notes if note["n_type"] == "NT_GNU_BUILD_ID"]
    return found[0] if found else None


def symbols_of(facts: Elf) -> list[tuple[str, bool, str | None]]:
    """Name, whether defined, and version of each symbol, sorted."""
    return sorted(
        [(symbol.name, True, symbol.version) for symbol in facts.defined]
        + [(symbol.name, False, symbol.version) for symbol in facts.undefined],
        key=str,
    )


def reference_symbols(elf: ELFFile) -> list[tuple[str, bool, str | None]]:
    """As ``symbols_of``, by pyelftools; only versions that are wanted are compared."""
    table, versions = elf.get_section_by_name(".dynsym"), elf.get_section_by_name(".gnu.version")
    needs = elf.get_section_by_name(".gnu.version_r")
    assert isinstance(table, SymbolTableSection)
    assert isinstance(versions, GNUVerSymSection | None)
    names = {}
    if isinstance(needs, GNUVerNeedSection):
        for _, wanted in needs.iter_versions():
            names.update({item["vna_other"]: item.name for item in wanted})
    found = []
    for number, symbol in enumerate(table.iter_symbols()):
        if symbol.name:
            index = versions.get_symbol(number)["ndx"] if versions else None
            defined = symbol["st_shndx"] != "SHN_UNDEF"
            found.append((symbol.name, defined, names.get(index)))
    return sorted(found, key=str)


def reference_needs(elf: ELFFile) -> dict[str, tuple[str, ...]]:
    """Library to versions, by pyelftools."""
    section = elf.get_section_by_name(".gnu.version_r")
    if not isinstance(section, GNUVerNeedSection):
        return {}
    found = section.iter_versions()
    return {str(need.name): tuple(str(v.name) for v in wanted) for need, wanted in found}


def test_a_handmade_library_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "libours.so"
    path.write_bytes(LIBRARY)
    facts = read_elf(path)
    assert is_elf(path)
    assert facts.needed == ("libc.so.6", "libm.so.6")
    assert (facts.soname, facts.rpath, facts.runpath) == ("libours.so", None, "$ORIGIN")
    assert [symbol.name for symbol in facts.defined] == ["first", "second"]
    assert [(symbol.name, symbol.weak) for symbol in facts.undefined] == [
        ("wanted", False),
        ("maybe", True),
    ]
    section = facts.section(".dynstr")
    assert section is not None
    assert section.size > 0
    assert facts.section(".nv_fatbin") is None


@pytest.mark.parametrize(("stack", "executable"), [(6, False), (7, True), (None, True)])
def test_an_executable_stack_is_one_that_is_asked_for_or_not_denied(
    stack: int | None, executable: bool
) -> None:
    assert parse_elf(make_library(stack=stack), where="x").executable_stack is executable


@pytest.mark.parametrize(
    ("switches", "relro"),
    [
        ({}, Relro.NONE),
        ({"relro": True}, Relro.PARTIAL),
        ({"relro": True, "tags": ((24, 0),)}, Relro.FULL),
        ({"relro": True, "tags": ((30, 8),)}, Relro.FULL),
        ({"relro": True, "tags": ((0x6FFFFFFB, 1),)}, Relro.FULL),
        ({"tags": ((24, 0),)}, Relro.NONE),
    ],
)
def test_relro_is_full_where_all_is_bound_at_once(switches: Any, relro: Relro) -> None:
    assert parse_elf(make_library(**switches), where="x").relro is relro


@pytest.mark.parametrize(("tag", "value", "found"), [(22, 0, True), (30, 4, True), (30, 8, False)])
def test_text_relocations_are_a_tag_or_a_flag(tag: int, value: int, found: bool) -> None:
    assert parse_elf(make_library(tags=((tag, value),)), where="x").text_relocations is found


def test_initialisers_are_counted_and_the_build_id_is_read() -> None:
    facts = parse_elf(make_library(tags=((27, 24),), build_id=b"\xca\xfe"), where="x")
    assert (facts.initialisers, facts.build_id) == (3, "cafe")
    plain = parse_elf(make_library(), where="x")
    assert (plain.initialisers, plain.build_id, plain.stripped) == (0, None, True)
    assert not parse_elf(make_library(sections=(".symtab",)), where="x").stripped
    assert parse_elf(make_library(sections=(".debug_info",)), where="x").debug


def test_what_is_looked_into_lies_in_the_places_that_are_named() -> None:
    whole = make_library(defined=["one"], undefined=["two"], needed=["libx.so"], soname="liby.so")
    places = symbol_places(whole, where="whole")
    kept = bytearray(len(whole))
    for start, size in places:
        kept[start : start + size] = whole[start : start + size]
    assert parse_elf(bytes(kept), where="kept") == parse_elf(whole, where="whole")


def test_symbols_can_be_left_out() -> None:
    facts = parse_elf(LIBRARY, where="x", symbols=False)
    assert facts.defined == facts.undefined == ()
    assert facts.needed == ("libc.so.6", "libm.so.6")


def patched(offset: int, form: str, value: int) -> bytes:
    """The library with one field overwritten."""
    data = bytearray(LIBRARY)
    struct.pack_into(form, data, offset, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not an ELF file"),
        (b"#!/bin/sh\n" * 10, "not an ELF file"),
        (LIBRARY[:40], "not an ELF file"),
        (patched(4, "<B", 1), "not a 64-bit little-endian"),
        (patched(5, "<B", 2), "not a 64-bit little-endian"),
        (patched(40, "<Q", 1 << 40), "lies outside the file"),
        (patched(58, "<H", 63), "section headers of 63 bytes"),
        (patched(60, "<H", 60000), "lies outside the file"),
        (patched(62, "<H", 9), "section names in section 9 of 5"),
        (patched(56, "<H", 60000), "segments"),
        (LIBRARY[:-64], "lies outside the file"),
        (with_field(LIBRARY, ".dynstr", SIZE, 1 << 63), "section 2 lies outside the file"),
        (with_field(LIBRARY, ".dynstr", OFFSET, len(LIBRARY)), "section 2 lies outside the file"),
        (with_field(EMPTY, ".rodata", OFFSET, 1 << 63), "section 4 lies outside the file"),
        (with_field(BSS, ".bss", OFFSET, 1 << 63), "section 4 lies outside the file"),
    ],
)
def test_what_is_broken_is_named(data: bytes, says: str) -> None:
    with pytest.raises(FormatError, match=says) as caught:
        parse_elf(data, where="here.so")
    assert caught.value.where == "here.so"


def test_a_section_that_is_not_stored_may_be_of_any_size() -> None:
    data = with_field(with_field(BSS, ".bss", SIZE, 1 << 63), ".bss", OFFSET, (1 << 63) - 1)
    section = parse_elf(data, where="x").section(".bss")
    assert section is not None
    assert (section.stored, section.size) == (False, 1 << 63)


@settings(max_examples=300, deadline=2000)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, len(LIBRARY) - 1), st.binary(min_size=1, max_size=8)), max_size=6
    ),
    length=st.integers(0, len(LIBRARY)),
)
def test_no_mutation_gives_another_error(changes: list[tuple[int, bytes]], length: int) -> None:
    data = bytearray(LIBRARY)
    for at, piece in changes:
        data[at : at + len(piece)] = piece
    with suppress(FormatError):
        parse_elf(bytes(data[: length or None]), where="x")
    with suppress(FormatError):
        symbol_places(bytes(data[: length or None]), where="x")


@settings(max_examples=100, deadline=5000)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 40))
def test_no_mutation_of_a_real_header_gives_another_error(seed: int, count: int) -> None:
    random_ = random.Random(seed)
    data = bytearray(smallest_real_file())
    for _ in range(count):
        near = random_.choice((64, 2000, len(data)))
        at = random_.choice((random_.randrange(near), len(data) - 1 - random_.randrange(near)))
        data[at] = random_.choice((0, 1, 0x7F, 0x80, 0xFF, random_.randrange(256)))
    with suppress(FormatError):
        parse_elf(bytes(data), where="x")


def smallest_real_file() -> bytes:
    """The smallest extension module at hand: it has versions, which the handmade one lacks."""
    files = real_files()
    return min(files, key=lambda path: path.stat().st_size).read_bytes() if files else LIBRARY
