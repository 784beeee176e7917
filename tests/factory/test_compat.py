"""The table: facts from wheels, verdicts from loops of the same bytes, GPUs by the rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.factory.cellmaker import build_all, build_cell, cells, record_cell, record_loops
from wheelfab.build import CellState
from wheelfab.compat import tabulate, write_table
from wheelfab.compat.cells import built_wheels
from wheelfab.compat.render import show_table, to_markdown
from wheelfab.compat.table import CompatTable, TorchEntry, Verdict
from wheelfab.errors import FormatError
from wheelfab.variant import Excluded


def entry(table: CompatTable, cell: str, torch: str) -> TorchEntry:
    """The verdict on a wheel and a torch release."""
    return next(item for item in table.torch if (item.cell, item.torch) == (cell, torch))


def gpu(
    table: CompatTable, cell: str, capability: str
) -> tuple[str | None, str | None, str | None]:
    """Code, arch and driver of a wheel on a capability."""
    found = next(i for i in table.gpus if (i.cell, i.capability) == (cell, capability))
    return found.code, found.arch, found.driver


def test_facts_of_a_row(tmp_path: Path) -> None:
    wheel = build_cell(tmp_path, "cu121-torch2.4")
    (row,) = tabulate(tmp_path, cells(["cu121-torch2.4"]), ()).wheels
    assert row.file == wheel.name
    assert (row.cuda, row.archs) == ("12.1", ("8.0", "8.6", "8.9", "9.0", "9.0+PTX"))
    assert row.torch == "<2.5,>=2.4.1"
    assert (row.python, row.tags) == (">=3.10", ("cp310-abi3-manylinux_2_28_x86_64",))
    assert row.glibc == "2.28"
    # NVIDIA's release notes: CUDA 12 runs cubins from 525.60.13, 12.1 compiles PTX from 530.30.02
    assert (row.driver_cubin, row.driver_ptx) == ("525.60.13", "530.30.02")


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
    assert not {"6.1", "8.7", "11.0"} & set(table.capabilities)  # Pascal, and Tegra


def test_without_ptx_a_newer_gpu_has_no_image(tmp_path: Path) -> None:
    build_cell(tmp_path, "cu121-torch2.4", record={"archs": ["8.0", "9.0"]})
    table = tabulate(tmp_path, cells(["cu121-torch2.4"]), ())
    assert gpu(table, "cu121-torch2.4", "10.0") == (None, None, None)


def test_what_was_not_looped_is_untested(tmp_path: Path) -> None:
    build_cell(tmp_path, "cu121-torch2.10")
    table = tabulate(tmp_path, cells(["cu121-torch2.10"]), ())
    assert table.releases == ("2.10.0", "2.13.0")
    assert {item.verdict for item in table.torch} == {Verdict.UNTESTED}
    assert "works" not in to_markdown(table).partition("no loop was run.")[2]


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
    assert (works.verdict, works.python) == (Verdict.WORKS, "3.11.7")
    assert works.text == (
        "loop 100 of 100 fresh, 1000 of 1000 forked, NVIDIA libraries: stubs; Python 3.11.7"
    )
    assert (fails.verdict, fails.text) == (
        Verdict.FAILS, "loop 99 of 100 fresh, NVIDIA libraries: full; Python 3.11.7"
    )  # fmt: skip
    untested = entry(table, cell, "2.14.0")
    assert (untested.verdict, untested.text) == (Verdict.UNTESTED, "no wheel for this Python")
    refused = entry(table, "cu121-torch2.4", "2.13.0")
    assert (refused.verdict, refused.text) == (Verdict.REFUSED, "requires torch <2.5,>=2.4.1")


def test_a_loop_of_other_bytes_says_nothing_of_this_wheel(tmp_path: Path) -> None:
    wheel = build_cell(tmp_path, "cu121-torch2.4")
    record_loops(tmp_path, "cu121-torch2.4", wheel, {"2.4.1": {}})
    assert entry(
        tabulate(tmp_path, cells(["cu121-torch2.4"]), ()), "cu121-torch2.4", "2.4.1"
    ).verdict is Verdict.WORKS  # fmt: skip
    build_cell(tmp_path, "cu121-torch2.4", files={"freewheel/new.py": b""})
    again = tabulate(tmp_path, cells(["cu121-torch2.4"]), ())
    assert entry(again, "cu121-torch2.4", "2.4.1").verdict is Verdict.UNTESTED


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
    assert sorted(data) == ["absent", "facts_as_of", "gpus", "schema", "torch", "wheels"]
    assert data["schema"] == 1
    markdown = (tmp_path / "build" / "compat" / "compat.md").read_text()
    assert "not measured on a device" in markdown
    tables = [line for line in markdown.splitlines() if line.startswith("| cu121-torch2.4 ")]
    assert len(tables) == 3
    assert "cubin 8.9" in tables[2]
    show_table(table)
    shown = capsys.readouterr().out
    assert "cu118-torch2.10" in shown
    assert "computed, not measured" in shown
