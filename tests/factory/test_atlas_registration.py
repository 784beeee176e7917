"""Dispatch keys out of machine code: handmade code with a stub, a slot and constants."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wheelfab.atlas.registration import NO_KEYS, UNREAD, Keys, read_keys
from wheelfab.elf import Elf, Section, Symbol, parse_elf
from wheelfab.errors import FormatError

from .elfmaker import make_library

NEW = "_ZN5torch7LibraryC1ENS0_4KindESsSt8optionalIN3c1011DispatchKeyEEPKcj"
OLD = "_ZN5torch7LibraryC1ENS0_4KindESsN3c108optionalINS2_11DispatchKeyEEEPKcj"
INIT = "_ZN5torch6detail16TorchLibraryInitC1ENS_7Library4KindESt8optionalIN3c1011DispatchKeyEE"
STUB, SLOT, TEXT = 0x5000, 0x9000, 0x6000
IMPL, DEF = b"\xbe\x01\x00\x00\x00", b"\x31\xf6"  # mov $1, %esi; xor %esi, %esi


@dataclass(frozen=True)
class Made:
    """Code at ``TEXT``, a stub that jumps through ``SLOT``, and the symbol it belongs to."""

    code: bytes
    symbol: str = NEW

    def read(self) -> Keys:
        """The keys that are found in it."""
        return read_keys(*self.parts())

    def parts(self) -> tuple[bytes, Elf]:
        """The bytes, and their facts as a reader of the whole would have them."""
        base = make_library(undefined=[self.symbol], sections=["x"])
        facts = parse_elf(base, where="made")
        stub = b"\xf3\x0f\x1e\xfa\xf2\xff\x25" + struct.pack("<i", SLOT - (STUB + 11)) + b"\x90" * 5
        relocation = struct.pack("<QQq", SLOT, 1 << 32 | 7, 0)
        data, sections = base, list(facts.sections)
        for name, address, flags, content in (
            (".plt.sec", STUB, 4, stub),
            (".text", TEXT, 4, self.code),
            (".rela.plt", 0, 0, relocation),
        ):
            sections.append(
                Section(
                    name=name,
                    type=1,
                    flags=flags,
                    address=address,
                    offset=len(data),
                    size=len(content),
                    link=0,
                    info=0,
                )
            )
            data += content
        return data, replace(facts, sections=tuple(sections))


def call(before: bytes, target: int = STUB, at: int = 0) -> bytes:
    """``before`` and a call to ``target``, ``at`` bytes into the code."""
    return before + b"\xe8" + struct.pack("<i", target - (TEXT + at + len(before) + 5))


def constant(number: int, opcode: bytes = b"\xb9", *, old: bool = False) -> bytes:
    """An optional key, as a compiler writes it."""
    return opcode + (bytes((1, 0, number, 0)) if old else bytes((number, 0, 1, 0)))


@pytest.mark.parametrize(
    "opcode", [b"\xb9", b"\x41\xb8", b"\xc7\x44\x24\x18", b"\xc7\x04\x24", b"\x68"]
)
def test_a_constant_before_the_call(opcode: bytes) -> None:
    assert Made(call(IMPL + constant(49, opcode))).read() == Keys(numbers=frozenset({49}))


def test_several_registrations() -> None:
    first = call(IMPL + constant(49))
    second = call(IMPL + constant(147), at=len(first))
    assert Made(first + second).read().numbers == {49, 147}


def test_before_c10_had_the_standards_optional() -> None:
    assert Made(call(IMPL + constant(48, old=True)), OLD).read().numbers == {48}


def test_through_a_constructor_of_the_librarys_own() -> None:
    own = call(b"\x90" * 20)
    user = call(IMPL + constant(50), target=TEXT, at=len(own))
    assert Made(own + user).read() == Keys(numbers=frozenset({50}))


def test_through_the_slot_without_a_stub() -> None:
    before = IMPL + constant(51)
    code = before + b"\xff\x15" + struct.pack("<i", SLOT - (TEXT + len(before) + 6))
    assert Made(code, INIT).read().numbers == {51}


def test_constants_before_other_calls_do_not_count() -> None:
    code = call(constant(49), target=TEXT + 4000)
    assert Made(code + b"\x90" * 600 + call(DEF, at=len(code) + 600)).read() == NO_KEYS


def test_a_one_for_another_call_is_no_kernel() -> None:
    other = call(IMPL, target=TEXT + 900)
    assert Made(other + call(DEF, at=len(other)) + b"\x90" * 1000).read() == NO_KEYS


def test_definitions_alone_have_no_keys() -> None:
    assert Made(call(DEF)).read() == NO_KEYS


def test_a_number_that_is_stored_without_its_flag() -> None:
    apart = b"\x66\xc7\x45\xfa\x33\x00"  # movw $0x33, -6(%rbp)
    assert Made(call(apart + b"\x90" * 9 + IMPL)).read() == Keys(numbers=frozenset({0x33}))
    assert Made(call(apart + DEF)).read() == NO_KEYS
    by_register = b"\xb8\x90\x00\x00\x00" + b"\x90" * 12 + b"\x66\x89\x44\x24\x1c"
    assert Made(call(by_register + IMPL)).read() == Keys(numbers=frozenset({0x90}))


def test_a_kernel_without_a_legible_number_is_said_so() -> None:
    assert not Made(call(IMPL + b"\x90" * 9)).read().read
    first = call(IMPL + constant(49))
    both = first + b"\x90" * 600 + call(IMPL, at=len(first) + 600)
    assert Made(both).read() == Keys(numbers=frozenset({49}), read=False)


def test_a_library_that_registers_nothing() -> None:
    data = make_library(undefined=["_ZN2at6Tensor3addEv"])
    assert read_keys(data, parse_elf(data, where="x")) == NO_KEYS


def test_another_machine_or_no_relocations() -> None:
    data = make_library(undefined=[NEW])
    facts: Elf = parse_elf(data, where="x")
    assert facts.undefined == (Symbol(name=NEW),)
    assert read_keys(data, facts) == UNREAD
    assert read_keys(data, replace(facts, machine=183)) == UNREAD


@settings(max_examples=150, deadline=2000)
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=8)), max_size=5))
def test_no_mutation_gives_an_error(changes: list[tuple[int, bytes]]) -> None:
    made = Made(call(IMPL + constant(49)) + b"\x90" * 40)
    data, facts = made.parts()
    damaged = bytearray(data)
    for at, piece in changes:
        damaged[at % len(data) : at % len(data) + len(piece)] = piece
    assert read_keys(bytes(damaged), facts).numbers <= set(range(256))
    with suppress(FormatError):
        assert read_keys(bytes(damaged), parse_elf(bytes(damaged), where="x")).numbers <= {49}
