"""Cells: expansion, identifiers, versions, and their selection by name."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.factory.matrixmaker import MATRIX, changed, load
from wheelfab.errors import UsageError
from wheelfab.matrix import make_matrix
from wheelfab.model import Profile
from wheelfab.variant import Expansion, expand, select, size_budget
from wheelfab.versions import ranged

EXCLUDE = (
    '[[exclude]]\nvariant = "cu118"\ntorch = "2.4"\nreason = "no such GPU left"\n\n[variants.cpu]'
)


@pytest.fixture
def expansion(tmp_path: Path) -> Expansion:
    return expand(load(tmp_path, changed(("[variants.cpu]", EXCLUDE))))


def test_cells_come_in_the_order_of_the_rows(expansion: Expansion) -> None:
    assert [cell.id for cell in expansion.cells] == [
        "cpu-torch2.4",
        "cpu-torch2.10",
        "cu118-torch2.10",
        "cu121-torch2.4",
        "cu121-torch2.10",
    ]
    assert [(entry.id, entry.reason) for entry in expansion.excluded] == [
        ("cu118-torch2.4", "no such GPU left")
    ]


def test_row_19_every_cell_has_a_debug_twin_that_is_called_so(tmp_path: Path) -> None:
    matrix = load(tmp_path, changed(("[variants.cpu]", EXCLUDE)))
    releases, twins = expand(matrix), expand(matrix, Profile.DEBUG)
    assert [cell.id for cell in twins.cells] == [f"{cell.id}-debug" for cell in releases.cells]
    assert [replace(cell, id=cell.name, profile=Profile.RELEASE) for cell in twins.cells] == [
        *releases.cells
    ]
    assert [(entry.id, entry.reason) for entry in twins.excluded] == [
        ("cu118-torch2.4-debug", "no such GPU left")
    ]


@pytest.mark.parametrize("name", ["cu121-torch2.4", "cu121-torch2.4-debug"])
def test_a_twin_is_asked_for_by_its_cells_name_or_its_own(tmp_path: Path, name: str) -> None:
    twins = expand(load(tmp_path, changed(("[variants.cpu]", EXCLUDE))), Profile.DEBUG)
    (cell,) = select(twins, [name])
    assert (cell.id, cell.local_version) == ("cu121-torch2.4-debug", "cu121.torch2.4.debug")
    with pytest.raises(UsageError, match=r"cu118-torch2\.4\S* is excluded: no such GPU left"):
        select(twins, [name.replace("cu121", "cu118")])
    with pytest.raises(UsageError, match=r"did you mean 'cu121-torch2\.4'"):
        select(twins, ["cu121-torch2.5"])


def test_without_debug_there_are_no_twins(expansion: Expansion) -> None:
    with pytest.raises(UsageError, match=r"unknown variant or cell 'cu121-torch2\.4-debug'"):
        select(expansion, ["cu121-torch2.4-debug"])


def test_a_twin_sorts_between_its_release_and_the_next_pin(tmp_path: Path) -> None:
    """An installer takes the highest: no index may hold a release and its twin."""
    matrix = load(tmp_path, MATRIX)
    pairs = zip(expand(matrix).cells, expand(matrix, Profile.DEBUG).cells, strict=True)
    made = [cell for pair in pairs for cell in pair if cell.variant.cuda is not None]
    versions = [Version(f"0.1.0+{cell.local_version}") for cell in made]
    assert all(older < newer for older, newer in pairwise(versions))
    assert Version("0.1.0+cu121.torch2.4.debug") not in SpecifierSet("==0.1.0+cu121.torch2.4")


def test_a_twin_may_weigh_more(tmp_path: Path) -> None:
    matrix = load(tmp_path, MATRIX)
    (cell, *_), (twin, *_) = expand(matrix).cells, expand(matrix, Profile.DEBUG).cells
    assert size_budget(cell, matrix.project) == 40_000_000
    assert size_budget(twin, matrix.project) == 140_000_000


def test_local_versions_sort_as_cuda_and_torch_do(tmp_path: Path) -> None:
    cells = expand(load(tmp_path, MATRIX)).cells
    versions = [
        Version(f"0.1.0+{cell.local_version}") for cell in cells if cell.variant.cuda is not None
    ]
    assert [str(version.local) for version in versions] == [
        "cu118.torch2.4",
        "cu118.torch2.10",
        "cu121.torch2.4",
        "cu121.torch2.10",
    ]
    assert all(older < newer for older, newer in pairwise(versions))


@pytest.mark.parametrize(
    ("python", "classic", "stable"),
    [
        (">=3.10", ">=3.10,<3.13", ">=3.10"),
        (">=3.11,<3.13", ">=3.11,<3.13", ">=3.11,<3.13"),
        (">=3.10,<3.14", ">=3.10,<3.13", ">=3.10,<3.14"),
        ("==3.12.*", "==3.12.*", "==3.12.*"),
    ],
)
def test_the_pythons_of_a_cell(tmp_path: Path, python: str, classic: str, stable: str) -> None:
    matrix = load(tmp_path, changed(('python = ">=3.10"', f'python = "{python}"')))
    cells = {cell.id: cell for cell in expand(matrix).cells}
    assert ranged(cells["cpu-torch2.4"].requires_python) == classic
    assert ranged(cells["cpu-torch2.10"].requires_python) == stable


def test_a_torch_with_newer_pythons_raises_the_lowest(tmp_path: Path) -> None:
    text = changed(
        (
            '[torch."2.4"]\nlowest = "2.4.1"\nrun-on = ["2.4.1"]',
            '[torch."2.15"]\nrun-on = ["2.15.0"]',
        ),
        ('torch = ["2.4", "stable >= 2.10"]', 'torch = ["2.15"]'),
    )
    cell = expand(load(tmp_path, text)).cells[0]
    assert ranged(cell.requires_python) == ">=3.11,<3.16"
    assert "3.10.9" not in cell.requires_python
    assert "3.15.0" in cell.requires_python


def test_selection_by_variant_and_by_cell_keeps_the_order(expansion: Expansion) -> None:
    chosen = select(expansion, ["cu121", "cpu-torch2.10"])
    assert [cell.id for cell in chosen] == ["cpu-torch2.10", "cu121-torch2.4", "cu121-torch2.10"]


@given(st.lists(st.sampled_from(["cpu", "cu118", "cu121", "cu121-torch2.4"]), max_size=6))
def test_names_may_overlap_and_repeat(names: list[str]) -> None:
    expansion = expand(make_matrix(tomllib.loads(MATRIX), name="matrix.toml", root=Path()))
    chosen = select(expansion, names)
    assert set(chosen) <= set(expansion.cells)
    assert len(chosen) == len({cell.id for cell in chosen})
    assert (chosen == expansion.cells) if not names else chosen


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cu12", "unknown variant or cell 'cu12'; did you mean 'cu121'?"),
        ("cu121-torch2.5", "unknown variant or cell 'cu121-torch2.5'; did you mean "),
        (
            "everything",
            (
                "unknown variant or cell 'everything'; variants: cpu, cu118, cu121; or a cell such "
                "as cpu-torch2.4"
            ),
        ),
        ("cu118-torch2.4", "matrix.toml: exclude: cu118-torch2.4 is excluded: no such GPU left"),
    ],
)
def test_names_that_stand_for_nothing(expansion: Expansion, name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        select(expansion, [name])
    assert str(caught.value).startswith(message)


def test_a_variant_of_which_every_cell_is_excluded(tmp_path: Path) -> None:
    both = EXCLUDE.replace(
        "[variants.cpu]",
        '[[exclude]]\nvariant = "cu118"\ntorch = "stable >= 2.10"\nreason = "none"\n\n'
        "[variants.cpu]",
    )
    expansion = expand(load(tmp_path, changed(("[variants.cpu]", both))))
    with pytest.raises(
        UsageError, match=r"^matrix\.toml: exclude: every cell of cu118 is excluded"
    ):
        select(expansion, ["cu118"])
