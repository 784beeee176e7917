"""Every rule finds what it is for in a wheel that breaks it, and nothing in one that does not."""

from __future__ import annotations

import importlib
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.factory.auditmaker import VERSION, Case, audited, finds, keeps, library
from tests.factory.imagemaker import with_images
from tests.factory.wheelmaker import CP310_ABI3, build_record, cut, flip, make_cell, make_wheel
from wheelfab.archive import FlawKind
from wheelfab.audit import Audit, Severity, Verdict, audit, audit_all
from wheelfab.audit.rules import RULES, archive, metadata, python_abi, record

INIT = "freewheel/__init__.py"
INFO = "freewheel-0.1.0+cpu.torch2.4.dist-info"
ZEROS = "sha256=" + "A" * 43
WRONG = {"record_edit": {INIT: (ZEROS, "37")}}
OF_312 = "cpython-312-x86_64-linux-gnu.so"
CP312 = "cp312-cp312-manylinux_2_28_x86_64"
CP313T = "cp313-cp313t-manylinux_2_28_x86_64"
PY3 = "py3-none-manylinux_2_28_x86_64"


def file(name: str, content: bytes = b"x") -> dict[str, Any]:
    """Switches for one more file."""
    return {"files": {name: content}}


def module(name: str, *undefined: str, **switches: Any) -> dict[str, Any]:
    """Switches for one more library, which needs these symbols."""
    return file(f"freewheel/{name}", library(undefined=undefined)) | switches


CASES = [
    Case(
        rule="archive-path",
        name="leaves the folder",
        bad=file("freewheel/../../x"),
        found="'..' component",
        subject="freewheel/../../x",
    ),
    Case(rule="archive-path", name="absolute", bad=file("/etc/x"), found="not a relative path"),
    Case(rule="archive-link", name="a link", bad={"link": "freewheel/l"}, found="symbolic link"),
    Case(
        rule="record-complete",
        name="B56: a file without a row",
        bad={"unrecorded": {"freewheel/x.py": b""}},
        found="is not listed",
        subject="freewheel/x.py",
    ),
    Case(
        rule="record-complete",
        name="B56: a row without a file",
        bad={"record_lines": (f"freewheel/gone.py,{ZEROS},1",)},
        found="not in the archive",
    ),
    Case(rule="record-complete", name="no RECORD", bad={"omit": ("RECORD",)}, found="is missing"),
    Case(rule="record-hash", name="B56: another hash", bad=WRONG, found=f"says {ZEROS}"),
    Case(
        rule="record-hash-form",
        name="B56: padded",
        bad={"padded": True},
        found="is padded",
    ),
    Case(
        rule="file-name",
        name="no tag",
        bad={"tag": "cp310-abi3", "wheel_tag": CP310_ABI3},
        found="wheel filename",
    ),
    Case(
        rule="dist-info",
        name="two of them",
        bad=file("a-1.dist-info/METADATA"),
        found="2 dist-info folders",
    ),
    Case(
        rule="metadata-valid",
        name="a requirement that is none",
        bad={"requires_dist": ("torch=2",)},
        found="requires-dist",
        subject=f"{INFO}/METADATA",
    ),
    Case(
        rule="metadata-valid",
        name="a field before its time",
        bad={"extra_metadata": "License-File: LICENSE\n"},
        found="introduced in metadata version 2.4",
        severity=Severity.WARNING,
    ),
    Case(rule="metadata-valid", name="none", bad={"omit": ("METADATA",)}, found="is missing"),
    Case(rule="name-equal", name="METADATA", bad={"metadata_name": "other"}, found="'other'"),
    Case(
        rule="version-equal",
        name="B11: METADATA has no local version",
        bad={"metadata_version": "0.1.0"},
        found="says version '0.1.0', the file name says '0.1.0+cpu.torch2.4'",
        subject=f"{INFO}/METADATA",
    ),
    Case(
        rule="version-equal",
        name="B11: the folder has no local version",
        bad={"folder_version": "0.1.0"},
        found="says version '0.1.0'",
    ),
    Case(
        rule="version-equal",
        name="B11: the build record is of another",
        bad={"build": build_record("cu121-torch2.4", "0.1.0")},
        found="says version '0.1.0'",
    ),
    Case(
        rule="build-record",
        name="no JSON",
        bad=file("freewheel/_build.json", b"{"),
        found="is not JSON",
        good=file("freewheel/_build.json", b'{"version": "0.1.0+cpu.torch2.4"}'),
    ),
    Case(
        rule="wheel-file",
        name="another format",
        bad={"wheel_head": "Wheel-Version: 2.0\n"},
        found="not 1.x",
    ),
    Case(
        rule="wheel-tags",
        name="renamed",
        bad={"wheel_tag": "cp311-abi3-linux_x86_64"},
        found="the file name says",
    ),
    Case(
        rule="local-version",
        name="B52: cu92",
        bad={"version": "0.1.0+cu92"},
        found="'cu92' is compared as text, so that cu100 is below it",
        severity=Severity.WARNING,
        good={"version": "0.1.0+cu118"},
    ),
    Case(
        rule="contents-build",
        name="B62: an object file",
        bad=file("freewheel/csrc/a.o"),
        found="is shipped",
        subject="freewheel/csrc/a.o",
        good=file("freewheel/build/x.py"),
    ),
    Case(
        rule="contents-build",
        name="B62: CMake's folder, many files",
        bad={"files": {f"freewheel/CMakeFiles/{n}.txt": b"" for n in range(9)}},
        found="is shipped",
    ),
    Case(rule="contents-build", name="a build folder", bad=file("build/lib/a.py"), found="is"),
    Case(
        rule="contents-build",
        name="let in by the policy",
        bad=file("freewheel/other.o"),
        found="is shipped",
        good=file("freewheel/device.o"),
        policy={"contents": {"files": ["*/device.o"]}},
    ),
    Case(
        rule="contents-caches",
        name="compiled Python",
        bad=file("freewheel/__pycache__/a.cpython-310.pyc"),
        found="is shipped",
    ),
    Case(
        rule="contents-top-level",
        name="tests",
        bad=file("tests/test_a.py"),
        found="at the top of site-packages (tests/test_a.py)",
        subject="tests",
        good=file("freewheel/tests/test_a.py"),
    ),
    Case(
        rule="contents-top-level",
        name="by way of the data folder",
        bad=file("freewheel-0.1.0+cpu.torch2.4.data/purelib/setup.py"),
        found="at the top",
        subject="setup.py",
        good=file("freewheel-0.1.0+cpu.torch2.4.data/scripts/setup.py"),
    ),
    Case(
        rule="contents-packages",
        name="another project's",
        bad=file("other/__init__.py"),
        found="at the top",
        subject="other",
        severity=Severity.WARNING,
        good={
            "files": {"_freewheel/a.py": b"", "freewheel.libs/a.txt": b"", "freewheel_x.py": b""}
        },
    ),
    Case(
        rule="contents-packages",
        name="named in the policy",
        bad=file("other/__init__.py"),
        found="at the top",
        severity=Severity.WARNING,
        good=file("plugins/__init__.py"),
        policy={"contents": {"packages": ["plugins"]}},
    ),
    Case(
        rule="contents-kind",
        name="B20: a cpu wheel of a CUDA variant",
        bad=module("_C.so"),
        found="a cpu wheel",
        good=file("freewheel/_C.so", library(sections=(".nv_fatbin",))),
        policy={"kind": "cuda-driver"},
    ),
    Case(
        rule="contents-foreign",
        name="a Windows library in a Linux wheel",
        bad=file("freewheel/a.dll"),
        found="is shipped",
        severity=Severity.WARNING,
    ),
    Case(
        rule="contents-startup",
        name="a .pth file",
        bad=file("freewheel.pth", b"import freewheel"),
        found="runs at each start",
        severity=Severity.WARNING,
        good=file("freewheel/data/a.pth"),
    ),
    Case(
        rule="contents-size",
        name="B69: over its budget",
        bad=file("freewheel/big", bytes(range(256)) * 4096),
        found="freewheel/big",
        policy={"contents": {"budget": "2 kB"}},
    ),
    Case(
        rule="contents-size",
        name="B69: the bytes of each arch are named",
        bad={
            "files": {
                "freewheel/_k.so": with_images(library(), ("80", "90a")),
                "freewheel/data": random.Random(0).randbytes(4000),
            }
        },
        found="; device code: 8.0 ",
        policy={"contents": {"budget": "4 kB"}},
    ),
    Case(
        rule="python-suffix",
        name="B43: of one Python in an abi3 wheel",
        bad=file(f"freewheel/_C.{OF_312}", library(defined=("PyInit__C",))),
        found="looks for this suffix",
        good=file("freewheel/_C.abi3.so", library(defined=("PyInit__C",))),
    ),
    Case(
        rule="python-suffix",
        name="the same of a library that is no module",
        bad=file(f"freewheel/_C.{OF_312}", library(defined=("fw_run",))),
        found="looks for this suffix",
        severity=Severity.WARNING,
    ),
    Case(
        rule="python-suffix",
        name="a library in a wheel for any platform",
        bad=file("freewheel/a.so", library()) | {"tag": "py3-none-any"},
        found="for any platform",
        good=file("freewheel/a.so", library()) | {"tag": PY3},
    ),
    Case(
        rule="python-abi3",
        name="B43: not of the stable ABI",
        bad=module("_C.abi3.so", "PyUnicode_AsUTF8"),
        found="uses PyUnicode_AsUTF8, not of the stable ABI",
        subject="freewheel/_C.abi3.so",
        good=module("_C.abi3.so", "PyModule_Create2", "PyType_FromSpec"),
    ),
    Case(
        rule="python-abi3",
        name="B43: newer than the tag",
        bad=module("_C.abi3.so", "PyType_GetName", tag=CP310_ABI3),
        found="uses PyType_GetName (3.11)",
        good=module("_C.abi3.so", "PyType_GetName", tag=CP310_ABI3.replace("310", "311")),
    ),
    Case(
        rule="python-abi3",
        name="a module without abi3 in its name, under the tag",
        bad=module("_C.so", "_PyLong_Sign"),
        found="not of the stable ABI",
        good=module("_C.cpython-312-x86_64-linux-gnu.so", "_PyLong_Sign", tag=CP312),
    ),
    Case(
        rule="python-tag",
        name="a module for any Python",
        bad=module("_C.so", "PyModule_Create2", tag=PY3),
        found="uses PyModule_Create2",
        good=module("_C.so", "cudaMalloc", tag=PY3),
    ),
    Case(
        rule="python-free-threaded",
        name="a free-threaded module in another's wheel",
        bad=module("_C.so", "_Py_DecRefShared", tag=CP312),
        found="uses _Py_DecRefShared",
        good=module("_C.cpython-313t-x86_64-linux-gnu.so", "_Py_DecRefShared", tag=CP313T),
    ),
    Case(
        rule="python-free-threaded",
        name="abi3 in a free-threaded wheel",
        bad=module("_C.abi3.so", tag=CP313T),
        found="an abi3 module",
        good=module("_C.so", tag=CP313T),
    ),
]


def all_cases() -> list[Case]:
    """The cases of this file and of each family that has a file of its own."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("test_audit_*.py"))
    modules = [importlib.import_module(f"tests.factory.{name}") for name in names]
    return [case for one in modules for case in getattr(one, "CASES", ())]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_finds_what_it_is_for(case: Case, tmp_path: Path) -> None:
    finds(case, tmp_path)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_is_silent_about_a_wheel_that_keeps_it(case: Case, tmp_path: Path) -> None:
    keeps(case, tmp_path)


def test_every_rule_has_a_wheel_that_breaks_it() -> None:
    by_hand = set(BY_HAND) | {"siblings-metadata", "siblings-order"}
    by_hand |= {
        "imports-load",
        "elf-cpu-level",
    }  # tests/integration/test_audit_binaries.py: it starts processes
    assert {case.rule for case in all_cases()} | by_hand == set(RULES)


def test_every_kind_of_flaw_belongs_to_one_rule() -> None:
    source = "".join(
        Path(str(one.__file__)).read_text(encoding="utf-8")
        for one in (archive, record, metadata, python_abi)
    )
    named = re.findall(r"FlawKind\.([A-Z_]+)", source)
    assert sorted(named) == sorted(kind.name for kind in FlawKind)


def duplicate(path: Path) -> None:
    """Write a member a second time."""
    with (
        pytest.warns(UserWarning, match="Duplicate name"),
        zipfile.ZipFile(path, "a") as archive,
    ):
        archive.writestr(INIT, b"second")


def bomb(path: Path) -> None:
    """Add a member that unpacks to a thousand times its size."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("freewheel/zeros", bytes(65 << 20))


def prefix(path: Path) -> None:
    """Put bytes before the archive."""
    path.write_bytes(b"#!/bin/sh\n" + path.read_bytes())


def between(path: Path) -> None:
    """Put bytes between the last member and the list of members, and mend the list's place."""
    data = path.read_bytes()
    at = int.from_bytes(data[-6:-2], "little")
    end = (at + 4).to_bytes(4, "little")
    path.write_bytes(data[:at] + b"\0\0\0\0" + data[at:-6] + end + data[-2:])


def rename_in_header(path: Path) -> None:
    """Change a name in the member's own header but not in the list."""
    data = path.read_bytes()
    path.write_bytes(data.replace(INIT.encode(), INIT.upper().encode(), 1))


BY_HAND: dict[str, list[tuple[Callable[[Path], None], str]]] = {
    "archive-zip": [
        (cut, "truncated"),
        (flip, ""),
        (prefix, "before the first member"),
        (between, "between the last member and the list"),
        (rename_in_header, "another name"),
    ],
    "archive-duplicate": [(duplicate, "2 times")],
    "archive-bomb": [(bomb, "more than 1:200")],
}


@pytest.mark.parametrize(
    ("rule", "spoil", "found"),
    [(rule, *one) for rule, ways in BY_HAND.items() for one in ways],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_an_archive_that_was_spoiled(
    rule: str, spoil: Callable[[Path], None], found: str, tmp_path: Path
) -> None:
    content = file("freewheel/a.txt", bytes(range(256)) * 40)
    path = make_wheel(tmp_path, version=VERSION, **content)
    assert audit(path).verdict is Verdict.PASS
    spoil(path)
    spoiled = audit(path)
    assert spoiled.verdict is Verdict.FAIL
    assert rule in {one.rule for one in spoiled.findings}
    assert any(found in one.found for one in spoiled.findings)
    assert spoiled.facts is None
    unasked = {one.rule for one in spoiled.unchecked}
    asked = {one.id for one in RULES.values() if one.unsound or one.deep or one.siblings}
    assert unasked == set(RULES) - asked


def test_many_strays_are_counted(tmp_path: Path) -> None:
    strays = {f"freewheel/CMakeFiles/{number}.txt": b"" for number in range(9)}
    found = audited(tmp_path, files=strays).findings
    assert len(found) == 6
    assert found[-1].found == "4 more"


def test_another_systems_wheel_is_said_to_be_unchecked(tmp_path: Path) -> None:
    found = audited(tmp_path, tag="cp312-cp312-win_amd64", **file("freewheel/_C.pyd", b"MZ"))
    assert found.verdict is Verdict.UNCHECKED
    assert "contents-foreign" in {one.rule for one in found.unchecked}


def test_without_a_budget_only_what_pypi_refuses_is_a_warning(tmp_path: Path) -> None:
    assert audited(tmp_path).findings == ()
    path = make_wheel(tmp_path, version=VERSION)
    with zipfile.ZipFile(path, "a") as archive, archive.open("freewheel/big", "w") as big:
        for _ in range(101):
            big.write(bytes(1 << 20))
    found = [one for one in audit(path).findings if one.rule == "contents-size"]
    assert [one.severity for one in found] == [Severity.WARNING]
    assert "freewheel/big 105,906,176" in found[0].found


def siblings(folder: Path, *wheels: dict[str, Any]) -> tuple[Audit, ...]:
    """The audits of several wheels, each in a folder of its own."""
    return audit_all([make_wheel(folder / str(at), **one) for at, one in enumerate(wheels)])


def told(audits: tuple[Audit, ...], rule: str) -> list[tuple[int, str, str]]:
    """Which wheel, subject and finding of a rule."""
    return [
        (at, one.subject, one.found)
        for at, each in enumerate(audits)
        for one in each.findings
        if one.rule == rule
    ]


def test_what_a_variant_explains_is_no_difference(tmp_path: Path) -> None:
    cells = ("cpu-torch2.4", "cu118-torch2.4", "cu121-torch2.10")
    paths = [
        make_cell(tmp_path, cell, requires_python=">=3.10,<3.13" if "2.4" in cell else ">=3.10")
        for cell in cells
    ]
    audits = audit_all(paths)
    assert told(audits, "siblings-metadata") == told(audits, "siblings-order") == []


def test_what_no_variant_explains_is_a_difference(tmp_path: Path) -> None:
    one = {"version": "1+cpu", "requires_dist": ("torch==2.4", "numpy>=1")}
    other = {"version": "1+cu118", "requires_dist": ("torch==2.4", "numpy>=2")}
    python = {"version": "1+cu121", "requires_dist": ("torch==2.4", "numpy>=1")}
    audits = siblings(tmp_path, one, other, python | {"requires_python": ">=3.11"})
    assert told(audits, "siblings-metadata") == [
        (1, "Requires-Dist", "numpy>=2"),
        (1, "Requires-Dist", "not there"),
        (2, "Requires-Python", ">=3.11"),
    ]


def test_within_one_version_not_even_torch_may_differ(tmp_path: Path) -> None:
    tags = "cp310-cp310-linux_x86_64", "cp311-cp311-linux_x86_64"
    wheels = [
        {"version": "1", "tag": tag, "requires_dist": (f"torch=={at}",)}
        for at, tag in enumerate(tags)
    ]
    found = told(siblings(tmp_path, *wheels), "siblings-metadata")
    assert found == [(1, "Requires-Dist", "torch==1"), (1, "Requires-Dist", "not there")]


def test_other_projects_and_versions_are_no_siblings(tmp_path: Path) -> None:
    wheels = ({"version": "1"}, {"version": "2", "requires_dist": ()}, {"name": "other"})
    assert told(siblings(tmp_path, *wheels), "siblings-metadata") == []


@pytest.mark.parametrize(
    ("low", "high", "bad"),
    [
        ("cu92", "cu118", True),
        ("pt29", "pt210", True),
        ("rocm7.0", "rocm10.0", True),
        ("cu118", "cu121", False),
        ("cpu.torch2.4", "cu121.torch2.10", False),
        ("cpu", "cu118", False),
    ],
)
def test_b52_the_order_of_siblings_is_by_number(
    low: str, high: str, bad: bool, tmp_path: Path
) -> None:
    audits = siblings(tmp_path, {"version": f"1+{high}"}, {"version": f"1+{low}"})
    wanted = [(1, f"+{low}", f"+{low} is above +{high}")] if bad else []
    assert told(audits, "siblings-order") == wanted
