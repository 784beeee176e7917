"""The table: facts from wheels, verdicts from loops of the same bytes, GPUs by the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tests.factory.cellmaker import build_all, build_cell, cells, record_cell, record_loops
from tests.factory.elfmaker import make_library
from wheelfab.build import CellState
from wheelfab.compat import Sources, Spoken, tabulate, write_table
from wheelfab.compat.cells import built_wheels
from wheelfab.compat.record import (
    Answer,
    AuditEntry,
    By,
    CompatTable,
    HostsEntry,
    PythonEntry,
    TorchEntry,
    WheelRow,
)
from wheelfab.compat.render import show_table, to_markdown
from wheelfab.errors import FormatError
from wheelfab.hosts.report import SCHEMA as HOSTS_SCHEMA
from wheelfab.records import file_digest, write_json
from wheelfab.variant import Excluded

CU121 = "cu121-torch2.4"


def row(table: CompatTable, cell: str) -> WheelRow:
    """The row of a cell's wheel."""
    return next(item for item in table.wheels if item.cell == cell)


def entry(table: CompatTable, cell: str, torch: str) -> TorchEntry:
    """A wheel on a torch release."""
    return next(item for item in row(table, cell).torch if item.torch == torch)


def python(table: CompatTable, cell: str, name: str) -> PythonEntry:
    """A wheel on a Python."""
    return next(item for item in row(table, cell).pythons if item.python == name)


def gpu(
    table: CompatTable, cell: str, capability: str
) -> tuple[str | None, str | None, str | None]:
    """Code, arch and driver of a wheel on a capability."""
    found = next(item for item in row(table, cell).gpus if item.capability == capability)
    return found.code, found.arch, found.driver


def record_hosts(root: Path, cell: str, wheel: Path, *results: dict[str, Any]) -> None:
    """Write ``build/hosts/report.json``: for each host what is not as usual there."""
    usual = {
        "cell": cell,
        "sha256": file_digest(wheel),
        "torch": "2.4.1+cpu",
        "base": "debian-12",
        "with_torch": "passes",
        "verdict": "passed",
    }
    report = {"schema": HOSTS_SCHEMA, "results": [{**usual, **result} for result in results]}
    write_json(root / "build" / "hosts" / "report.json", report)


def test_facts_of_a_row(tmp_path: Path) -> None:
    wheel = build_cell(tmp_path, "cu121-torch2.4")
    (found,) = tabulate(tmp_path, cells(["cu121-torch2.4"]), ()).wheels
    assert found.file == wheel.name
    assert (found.cuda, found.archs) == ("12.1", ("8.0", "8.6", "8.9", "9.0", "9.0+PTX"))
    assert found.requires_torch == ">=2.4.1,<2.5"
    assert (found.requires_python, found.tags) == (">=3.10", ("cp310-abi3-manylinux_2_28_x86_64",))
    assert found.glibc == "2.28"
    # NVIDIA's release notes: CUDA 12 runs cubins from 525.60.13, 12.1 compiles PTX from 530.30.02
    assert (found.driver_cubin, found.driver_ptx) == ("525.60.13", "530.30.02")
    assert found.install == (
        'pip install "freewheel==0.1.0+cu121.torch2.4" '
        "--extra-index-url https://INDEX/cu121/torch2.4/"
    )


def test_b45_the_newest_libstdcxx_that_a_library_wants(tmp_path: Path) -> None:
    wants = {
        "freewheel/a.so": ["GLIBCXX_3.4.9", "GLIBCXX_3.4.22", "CXXABI_1.3.11"],
        "freewheel/b.so": ["GLIBCXX_3.4.21", "GLIBCXX_3.4"],
    }
    files = {
        name: make_library(needed=["libstdc++.so.6"], versions={"libstdc++.so.6": found})
        for name, found in wants.items()
    }
    build_cell(tmp_path, "cu121-torch2.4", files={**files, "freewheel/c.txt": b"GLIBCXX_3.4.30"})
    build_cell(tmp_path, "cpu-torch2.4", files={"freewheel/a.so": make_library()})
    table = tabulate(tmp_path, cells(["cu121-torch2.4", "cpu-torch2.4"]), ())
    assert [item.glibcxx for item in table.wheels] == ["3.4.22", None]
    lines = [line for line in to_markdown(table).splitlines() if "manylinux" in line]
    head = next(line for line in to_markdown(table).splitlines() if "GLIBCXX" in line)
    column = head.split(" | ").index("GLIBCXX")
    assert [line.split(" | ")[column] for line in lines if " | " in line] == ["3.4.22", "none"]
    write_table(table, tmp_path)
    written = json.loads((tmp_path / "compat.json").read_text())
    assert [item["glibcxx"] for item in written["wheels"]] == ["3.4.22", None]
    assert "with GLIBCXX_3.4.22" in (tmp_path / "compat.html").read_text()


def test_cubin_and_ptx_floors_are_not_mixed_up(tmp_path: Path) -> None:
    build_cell(tmp_path, "cu118-torch2.4")
    build_cell(tmp_path, "cu121-torch2.4", record={"archs": ["8.0", "9.0a"]})
    build_cell(tmp_path, "cpu-torch2.4")
    names = ["cu118-torch2.4", "cu121-torch2.4", "cpu-torch2.4"]
    cu118, cu121, cpu = tabulate(tmp_path, cells(names), ()).wheels
    assert (cu118.driver_cubin, cu118.driver_ptx) == ("450.80.02", "520.61.05")
    assert (cu121.driver_cubin, cu121.driver_ptx) == ("525.60.13", None)
    assert (cpu.driver_cubin, cpu.driver_ptx, cpu.cuda, cpu.archs) == (None, None, None, ())


def test_gpus_follow_the_rules_of_cubin_and_ptx(tmp_path: Path) -> None:
    cell = "cu121-torch2.4"
    build_cell(tmp_path, cell, record={"archs": ["8.0", "8.6", "9.0a", "9.0+PTX"]})
    table = tabulate(tmp_path, cells([cell]), ())
    assert gpu(table, cell, "7.5") == (None, None, None)
    assert gpu(table, cell, "8.0") == ("cubin", "8.0", "525.60.13")
    assert gpu(table, cell, "8.9") == ("cubin", "8.6", "525.60.13")
    assert gpu(table, cell, "9.0") == ("cubin", "9.0a", "525.60.13")
    assert gpu(table, cell, "10.0") == ("ptx", "9.0", "530.30.02")
    assert gpu(table, cell, "12.0") == ("ptx", "9.0", "530.30.02")
    assert "7.0" in table.capabilities
    assert not {"8.7", "11.0"} & set(table.capabilities)  # Tegra
    columns = next(x for x in to_markdown(table).splitlines() if x.startswith("| cell | 7.0"))
    assert "6.1" not in columns  # no wheel has code for Pascal


def test_without_ptx_a_newer_gpu_has_no_image(tmp_path: Path) -> None:
    build_cell(tmp_path, "cu121-torch2.4", record={"archs": ["8.0", "9.0"]})
    table = tabulate(tmp_path, cells(["cu121-torch2.4"]), ())
    assert gpu(table, "cu121-torch2.4", "10.0") == (None, None, None)


def test_what_was_not_looped_is_untested(tmp_path: Path) -> None:
    build_cell(tmp_path, "cu121-torch2.10")
    table = tabulate(tmp_path, cells(["cu121-torch2.10"]), ())
    assert table.releases == ("2.10.0", "2.13.0")
    allowed = [item for item in table.wheels[0].torch if item.by is not By.METADATA]
    assert {item.answer for item in allowed} == {Answer.UNTESTED}
    assert "works" not in to_markdown(table).partition("says anything.")[2]


def test_verdicts_come_from_loops(tmp_path: Path) -> None:
    cell = "cu121-torch2.10"
    wheel = build_cell(tmp_path, cell)
    record_loops(
        tmp_path,
        cell,
        wheel,
        {"2.10.0": {}, "2.13.0": {"passed": False, "text": "99 of 100 fresh", "libraries": "full"}},
        [{"torch": "2.14.0", "kind": "not possible", "reason": "no wheel for this Python"}],
    )
    build_cell(tmp_path, "cu121-torch2.4")
    table = tabulate(tmp_path, cells([cell, "cu121-torch2.4"]), ())
    works, fails = entry(table, cell, "2.10.0"), entry(table, cell, "2.13.0")
    assert (works.answer, works.by) == (Answer.WORKS, By.LOOP)
    assert (works.pythons_seen, works.glibcs_seen) == (("3.11",), ())
    assert works.reason == (
        "loop 100 of 100 fresh, 1000 of 1000 forked, NVIDIA libraries: stubs; Python 3.11.7"
    )
    assert (fails.answer, fails.by) == (Answer.NO, By.LOOP)
    assert fails.reason == "loop 99 of 100 fresh, NVIDIA libraries: full; Python 3.11.7"
    assert fails.pythons_seen == ()
    untested = entry(table, cell, "2.14.0")
    assert (untested.answer, untested.reason) == (Answer.UNTESTED, "no wheel for this Python")
    refused = entry(table, "cu121-torch2.4", "2.13.0")
    assert (refused.answer, refused.by) == (Answer.NO, By.METADATA)
    assert refused.reason == "requires torch >=2.4.1,<2.5"


def test_a_loop_of_other_bytes_says_nothing_of_this_wheel(tmp_path: Path) -> None:
    wheel = build_cell(tmp_path, "cu121-torch2.4")
    record_loops(tmp_path, "cu121-torch2.4", wheel, {"2.4.1": {}})
    first = tabulate(tmp_path, cells(["cu121-torch2.4"]), ())
    assert entry(first, "cu121-torch2.4", "2.4.1").answer is Answer.WORKS
    build_cell(tmp_path, "cu121-torch2.4", files={"freewheel/new.py": b""})
    again = tabulate(tmp_path, cells(["cu121-torch2.4"]), ())
    assert entry(again, "cu121-torch2.4", "2.4.1").answer is Answer.UNTESTED


def test_loops_say_which_python_and_glibc_they_ran_with(tmp_path: Path) -> None:
    wheel = build_cell(tmp_path, CU121)
    record_loops(tmp_path, CU121, wheel, {"2.4.1": {"machine": {"libc": "glibc 2.36"}}})
    found = entry(tabulate(tmp_path, cells([CU121]), ()), CU121, "2.4.1")
    assert (found.pythons_seen, found.glibcs_seen) == (("3.11",), ("2.36",))


def test_hosts_are_joined_by_the_bytes_of_the_wheel(tmp_path: Path) -> None:
    wheel = build_cell(tmp_path, CU121)
    record_hosts(
        tmp_path,
        CU121,
        wheel,
        {"host": "bare"},
        {"host": "debian-11", "base": "debian-11"},
        {"host": "wrong", "torch": "2.13.0", "with_torch": "clear error"},
        {"host": "hangs", "base": "debian-13", "verdict": "failed", "with_torch": "died"},
        {"host": "old", "sha256": "0" * 64, "base": "debian-13"},
        {"host": "left", "verdict": "not run", "with_torch": "", "torch": ""},
    )
    table = tabulate(tmp_path, cells([CU121]), ())
    found = entry(table, CU121, "2.4.1")
    assert (found.answer, found.by) == (Answer.WORKS, By.LOOP)
    assert found.reason == "loaded on 2 of 3 hosts, not as expected on hangs"
    # Debian 11 has glibc 2.31, Debian 12 has 2.36; what failed says nothing for its own
    assert (found.pythons_seen, found.glibcs_seen) == ((), ("2.31", "2.36"))
    assert row(table, CU121).hosts == HostsEntry(passed=3, failed=("hangs",), not_run=("left",))
    assert "| 3 of 4, not hangs |" in to_markdown(table)
    assert entry(table, CU121, "2.13.0").by is By.METADATA


def test_the_atlas_speaks_where_no_load_does_and_never_over_metadata(tmp_path: Path) -> None:
    cell = "cu121-torch2.10"
    wheel = build_cell(tmp_path, cell)
    record_loops(tmp_path, cell, wheel, {"2.13.0": {}})
    said = {"2.4.1": True, "2.10.0": True, "2.11.0": False, "2.12.1": None, "2.13.0": False}

    def atlas(_: object) -> tuple[Spoken, ...]:
        return tuple(
            Spoken(torch=Version(name), build=f"{name}+cu130", loads=loads, reason="3 symbols")
            for name, loads in said.items()
        )

    table = tabulate(tmp_path, cells([cell]), (), sources=Sources(atlas=atlas))
    found = {name: (entry(table, cell, name).answer, entry(table, cell, name).by) for name in said}
    assert found == {
        "2.4.1": (Answer.NO, By.METADATA),
        "2.10.0": (Answer.WORKS, By.ATLAS),
        "2.11.0": (Answer.NO, By.ATLAS),
        "2.12.1": (Answer.UNTESTED, None),
        "2.13.0": (Answer.WORKS, By.LOOP),
    }
    assert entry(table, cell, "2.11.0").reason == "torch 2.11.0+cu130: 3 symbols"
    assert "works by the atlas (torch 2.10.0+cu130: 3 symbols)" in to_markdown(table)


def test_the_audit_is_shown_with_its_errors(tmp_path: Path) -> None:
    build_cell(tmp_path, CU121)
    audit = AuditEntry(verdict="fail", errors=("elf-needed: libcuda.so.1",))
    table = tabulate(tmp_path, cells([CU121]), (), sources=Sources(audit=lambda *_: audit))
    assert row(table, CU121).audit == audit
    assert "| fail; elf-needed: libcuda.so.1 |" in to_markdown(table)


def test_pythons_follow_metadata_and_tags(tmp_path: Path) -> None:
    build_cell(tmp_path, CU121, requires_python=">=3.10,<3.13")
    table = tabulate(tmp_path, cells([CU121]), ())
    refused, old = python(table, CU121, "3.13"), python(table, CU121, "3.9")
    assert (refused.answer, refused.reason) == (Answer.NO, "requires Python >=3.10,<3.13")
    assert old.answer is Answer.NO
    fits = python(table, CU121, "3.12")
    assert (fits.answer, fits.reason) == (Answer.WORKS, "tag cp310-abi3")
    build_cell(tmp_path, CU121)
    free = python(tabulate(tmp_path, cells([CU121]), ()), CU121, "3.14t")
    # PEP 703: the stable ABI of 3.10 does not hold without the lock, and pip takes no such tag
    assert (free.answer, free.reason) == (
        Answer.NO,
        "no tag of the wheel (cp310-abi3) is for the free-threaded build 3.14t",
    )


def test_what_a_verdict_needs_of_torch_is_in_the_row(tmp_path: Path) -> None:
    build_cell(tmp_path, CU121)
    table = tabulate(tmp_path, cells([CU121]), ())
    found = entry(table, CU121, "2.15.0")
    assert found.pythons == ("3.11", "3.12", "3.13", "3.14", "3.15", "3.14t", "3.15t")
    # its one known build is for CUDA 13.2, and the family of 13 needs 580.65.06
    assert (found.glibc, found.driver, found.builds_complete) == ("2.28", "580.65.06", False)
    assert entry(table, CU121, "2.4.1").driver == "450.80.02"  # it was built for 11.8, too


def test_an_image_that_ran_on_one_kind_of_device_is_measured(tmp_path: Path) -> None:
    wheel = build_cell(tmp_path, CU121, record={"archs": ["8.0", "8.6", "9.0"]})
    report = {
        "cell": CU121,
        "sha256": file_digest(wheel),
        "harness": "process",
        "on_device": "passed",
        "devices": [{"image": "9.0"}, {"image": "8.6"}],
    }
    path = tmp_path / "build" / "gpu" / f"{CU121}.json"
    write_json(path, report)
    (found,) = tabulate(tmp_path, cells([CU121]), ()).wheels
    # 8.6 is the image of 8.6 and of 8.9: which of them it ran on, the report does not say
    assert [item.capability for item in found.gpus if item.measured] == ["9.0"]
    write_json(path, report | {"harness": "emulated", "on_device": "untested"})
    (found,) = tabulate(tmp_path, cells([CU121]), ()).wheels
    assert not any(item.measured for item in found.gpus)


def test_every_cell_without_a_wheel_is_named_with_its_reason(tmp_path: Path) -> None:
    names = ["cpu-torch2.4", "cu118-torch2.4", "cu121-torch2.4", "cu121-torch2.10"]
    build_cell(tmp_path, "cpu-torch2.4")
    record_cell(tmp_path, "cu118-torch2.4", "failed", reason="nvrtc: error | in x.cu")
    record_cell(tmp_path, "cu121-torch2.4", "missing", reason="left no wheel")
    excluded = [Excluded(id="cu130-torch2.4", reason="torch 2.4 was never built for it")]
    table = tabulate(tmp_path, cells(names), excluded)
    assert [(item.cell, item.state, item.reason) for item in table.absent] == [
        ("cu118-torch2.4", CellState.FAILED, "nvrtc: error | in x.cu"),
        ("cu121-torch2.4", CellState.MISSING, "left no wheel"),
        ("cu121-torch2.10", CellState.MISSING, "it was not built"),
        ("cu130-torch2.4", CellState.SKIPPED, "torch 2.4 was never built for it"),
    ]
    assert "| cu118-torch2.4 | failed | nvrtc: error \\| in x.cu |" in to_markdown(table)


def test_states_of_cells(tmp_path: Path) -> None:
    names = ["cpu-torch2.4", "cpu-torch2.10", "cu118-torch2.4", "cu121-torch2.4"]
    gone = build_cell(tmp_path, "cpu-torch2.10")
    gone.unlink()
    changed = build_cell(tmp_path, "cu118-torch2.4")
    changed.write_bytes(changed.read_bytes() + b"\n")
    other = build_cell(tmp_path, "cpu-torch2.4")
    states = {item.cell: item for item in built_wheels(tmp_path, cells(names))}
    assert states["cpu-torch2.4"].wheel is not None
    assert states["cpu-torch2.4"].wheel.path == other
    assert states["cpu-torch2.4"].page == "cpu/torch2.4"
    assert str(states["cpu-torch2.10"]).endswith(f"missing (its wheel {gone.name} is not in dist/)")
    assert str(states["cu118-torch2.4"]).endswith("other bytes than the build left)")
    assert states["cu118-torch2.4"].state is CellState.FAILED
    assert str(states["cu121-torch2.4"]) == "cu121-torch2.4: missing (it was not built)"


def test_a_wheel_of_another_cell_is_not_taken_for_this_one(tmp_path: Path) -> None:
    build_cell(tmp_path, "cu121-torch2.4", record={"cell": "cu118-torch2.4"})
    (item,) = built_wheels(tmp_path, cells(["cu121-torch2.4"]))
    assert item.state is CellState.FAILED
    assert "of cell 'cu118-torch2.4'" in item.reason


@pytest.mark.parametrize("text", ["{", "[]", '{"cell": "cu121-torch2.4", "state": "done"}', "{}"])
def test_a_build_record_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "build" / "cu121-torch2.4" / "build.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(FormatError, match=r"build\.json: is not"):
        tabulate(tmp_path, cells(["cu121-torch2.4"]), ())


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"schema": 2, "cell": "cu121-torch2.4"}'])
def test_a_loop_record_that_is_none(tmp_path: Path, text: str) -> None:
    build_cell(tmp_path, "cu121-torch2.4")
    path = tmp_path / "build" / "loops" / "cu121-torch2.4.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(FormatError, match=r"cu121-torch2\.4\.json: is not the record of a loop"):
        tabulate(tmp_path, cells(["cu121-torch2.4"]), ())


def test_the_files_are_stable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_all(tmp_path)
    table = tabulate(tmp_path, cells(), ())
    write_table(table, tmp_path / "build" / "compat")
    first = (tmp_path / "build" / "compat" / "compat.json").read_bytes()
    write_table(tabulate(tmp_path, cells(), ()), tmp_path / "build" / "compat")
    assert (tmp_path / "build" / "compat" / "compat.json").read_bytes() == first
    data = json.loads(first)
    assert sorted(data) == [
        *("absent", "axes", "facts_as_of", "index_url", "project", "schema", "wheels"),
    ]
    assert data["schema"] == 2
    markdown = (tmp_path / "build" / "compat" / "compat.md").read_text()
    assert "not measured on a device" in markdown
    tables = [line for line in markdown.splitlines() if line.startswith("| cu121-torch2.4 ")]
    assert len(tables) == 3
    assert "cubin 8.9" in tables[2]
    show_table(table)
    shown = capsys.readouterr().out
    assert "cu118-torch2.10" in shown
    assert "computed, not measured" in shown
