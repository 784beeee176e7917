"""How libraries were linked: for each rule a wheel that breaks it and one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.factory.auditmaker import Case, audited, finds, keeps, library
from tests.factory.elfmaker import FLAGS, OFFSET, TYPE, with_field
from wheelfab.audit import Severity
from wheelfab.audit.instructions import Instructions, read_instructions
from wheelfab.audit.library import LibraryFacts, read_library
from wheelfab.audit.traces import Traces, read_traces
from wheelfab.elf import read_elf

OURS = "freewheel/_kernels.so"
REGISTERS = ("_ZN5torch7LibraryC1ENS0_4KindE",)


def one(**switches: Any) -> dict[str, Any]:
    """Switches for one library."""
    return {"files": {OURS: library(**switches)}}


def two(**libraries: bytes) -> dict[str, Any]:
    """Switches for several libraries, by name without folder and suffix."""
    return {"files": {f"freewheel/{name}.so": data for name, data in libraries.items()}}


def defining(name: str, kind: str = "") -> bytes:
    """A library that is not stripped and registers operators of the namespace ``name``."""
    symbol = f"TORCH_LIBRARY_{kind}init_{name}"
    return library(undefined=REGISTERS, local=(f"_ZL{len(symbol)}{symbol}RN5torch7LibraryE",))


CASES = [
    Case(
        rule="elf-readable",
        name="cut off",
        bad={"files": {OURS: library()[:-64]}},
        found="lies outside the file",
        subject=OURS,
        good=one(),
    ),
    Case(
        rule="elf-machine",
        name="another than the tag's",
        bad=two(a=library(), b=library(machine=183)),
        found="is for aarch64",
        subject="freewheel/b.so",
        good=two(a=library(machine=183), gpu=library(machine=224))
        | {"tag": "cp310-abi3-manylinux_2_28_aarch64"},
    ),
    Case(
        rule="elf-machine",
        name="no policy is known of it",
        bad=one(machine=8),
        found="is for e_machine 8",
        good=one(machine=62) | {"tag": "cp310-abi3-musllinux_1_2_x86_64"},
    ),
    Case(
        rule="elf-executable-stack",
        name="B41: asked for",
        bad=one(stack=7),
        found="an executable stack",
        subject=OURS,
        good=one(stack=6),
    ),
    Case(
        rule="elf-executable-stack",
        name="B41: not denied",
        bad=one(stack=None),
        found="an executable stack",
    ),
    Case(
        rule="elf-text-relocations",
        name="a tag",
        bad=one(tags=((22, 0),)),
        found="relocations in its code",
        good=one(),
    ),
    Case(
        rule="elf-relro",
        name="none",
        bad=one(relro=False),
        found="RELRO: none",
        severity=Severity.WARNING,
        good=one(relro=True),
    ),
    Case(
        rule="elf-relro",
        name="the policy wants all of it",
        bad=one(relro=True),
        found="RELRO: partial",
        severity=Severity.WARNING,
        good=one(relro=True, tags=((24, 0),)),
        policy={"elf": {"relro": "full"}},
    ),
    *(
        Case(
            rule="elf-run-path",
            name=name,
            bad=one(runpath=path),
            found=found,
            subject=OURS,
            good=one(runpath="$ORIGIN/../torch/lib:${ORIGIN}"),
        )
        for name, path, found in (
            ("absolute", "$ORIGIN:/usr/local/cuda/lib64", "/usr/local/cuda/lib64: an absolute"),
            ("stubs", "$ORIGIN/lib/stubs", "stubs of the driver"),
            ("empty", "$ORIGIN::", "an empty element: below the current folder"),
            ("relative", "lib", "below the current folder"),
            ("B42: a file", "$ORIGIN/../x.libs/libx.so.1", "a file, not a folder"),
        )
    ),
    Case(rule="elf-run-path", name="RPATH", bad=one(rpath="/opt/x"), found="/opt/x", good=one()),
    Case(
        rule="elf-reach",
        name="B42: no path to it",
        bad={"files": {OURS: library(needed=("libx.so",)), "x.libs/libx.so": library()}},
        found="needs libx.so, which lies at x.libs/libx.so",
        severity=Severity.WARNING,
        good={
            "files": {
                OURS: library(needed=("libx.so",), runpath="$ORIGIN/../x.libs"),
                "x.libs/libx.so": library(),
            }
        },
    ),
    Case(
        rule="elf-builder-paths",
        name="a source file's path",
        bad=one(sections={".rodata": b"x\0/home/me/proj/csrc/ops.cu\0"}),
        found="/home/me/proj",
        severity=Severity.WARNING,
        good=one(sections={".rodata": b"csrc/ops.cu\0/usr/include/c++/12/x.h\0/tmp/socket\0"}),
    ),
    Case(
        rule="elf-builder-paths",
        name="an environment",
        bad=one(sections={".debug_str": b"/opt/env/lib/python3.11/site-packages/torch/x\0"}),
        found="/opt/env/lib",
        severity=Severity.WARNING,
        good=one(sections={".rodata": b"http://x/site-packages/y"}),
    ),
    Case(
        rule="elf-debug",
        name="debug information",
        bad=one(sections={".debug_info": b"12345678"}),
        found="8 bytes of debug information",
        severity=Severity.WARNING,
        good=one(),
    ),
    Case(
        rule="elf-debug",
        name="the policy wants it stripped",
        bad=one(sections=(".symtab",)),
        found="the table of all symbols",
        severity=Severity.WARNING,
        good=one(),
        policy={"elf": {"stripped": True}},
    ),
    Case(
        rule="elf-operator-namespace",
        name="two define one",
        bad=two(a=defining("ops"), b=defining("ops")),
        found="ops is defined by freewheel/a.so and freewheel/b.so",
        severity=Severity.WARNING,
        good=two(a=defining("ops"), b=defining("ops", "FRAGMENT_")),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_finds_what_it_is_for(case: Case, tmp_path: Path) -> None:
    finds(case, tmp_path)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_is_silent_about_a_wheel_that_keeps_it(case: Case, tmp_path: Path) -> None:
    keeps(case, tmp_path)


def test_two_stripped_files_that_register_are_not_judged(tmp_path: Path) -> None:
    files = two(a=library(undefined=REGISTERS), b=library(undefined=REGISTERS))
    found = [each for each in audited(tmp_path, **files).unchecked if "namespace" in each.rule]
    assert [each.reason for each in found] == ["registers operators and is stripped, like 1 more"]
    single = audited(tmp_path / "one", **two(a=library(undefined=REGISTERS)))
    assert [each for each in single.unchecked if "namespace" in each.rule] == []


@pytest.mark.parametrize("name", [".rodata", ".comment", ".strtab"])
def test_what_is_not_stored_is_not_looked_into(name: str, tmp_path: Path) -> None:
    where, nowhere = (1 << 63) - 1, 8
    data = library(sections={".rodata": b"/home/me/x/ops.cc\0", ".comment": b"gcc\0"}, local=["a"])
    data = with_field(with_field(data, name, TYPE, nowhere), name, OFFSET, where)
    path = tmp_path / "x.so"
    path.write_bytes(data)
    found = read_library(
        LibraryFacts(name="x.so", size=1, sha256="", executable=False), path, deep=False
    )
    assert found.problem == ""
    assert found.traces == Traces(
        paths=() if name == ".rodata" else ("/home/me/x",),
        path_count=name != ".rodata",
        compilers=() if name == ".comment" else ("gcc",),
        defines=None if name == ".strtab" else (),
    )


def test_code_that_is_not_stored_has_no_instructions(tmp_path: Path) -> None:
    data = library(sections={".text": b"\x90" * 8})
    for field, value in ((FLAGS, 4), (TYPE, 0), (OFFSET, (1 << 63) - 1)):
        data = with_field(data, ".text", field, value)
    path = tmp_path / "x.so"
    path.write_bytes(data)
    assert read_instructions(path, read_elf(path)) == Instructions()


def test_a_length_that_no_name_has_is_no_namespace(tmp_path: Path) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(library(local=["_ZL" + "9" * 5000 + "TORCH_LIBRARY_init_x"]))
    assert read_traces(path, read_elf(path)).defines == ()


def test_a_path_across_two_pieces_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wheelfab.audit.traces._CHUNK", 64)
    monkeypatch.setattr("wheelfab.audit.traces._OVERLAP", 32)
    path = tmp_path / "x.so"
    path.write_bytes(library(sections={".rodata": b" " * 50 + b"/home/me/x/ops.cc\0" + b" " * 99}))
    facts = LibraryFacts(name="x.so", size=1, sha256="", executable=False)
    assert read_library(facts, path, deep=False).traces.paths == ("/home/me/x",)
