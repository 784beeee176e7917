"""Rules and facts: each rule has an evaluator, compilers and drivers are judged by the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from tests.factory.matrixmaker import MATRIX, changed, load, refusal
from wheelfab import facts, legality
from wheelfab.errors import ToolchainError
from wheelfab.legality import check_host_compiler, driver_floors, notes

CU121 = '[variants.cu121]\ncuda = "12.1"\n'


def evaluated() -> set[str]:
    """The identifiers of the rules that something evaluates."""
    lists = (legality.PIN_RULES, legality.ROW_RULES, legality.CELL_RULES, legality.MATRIX_RULES)
    return {name for rules in lists for name, _ in rules}


def test_every_rule_is_evaluated_and_every_evaluator_has_its_rule() -> None:
    assert evaluated() == set(facts.rules())


@pytest.mark.parametrize(("cuda", "low", "high"), [("13.0", 6, 15), ("12.1", 6, 12)])
def test_the_host_compiler_of_nvcc(cuda: str, low: int, high: int) -> None:
    for gcc in (f"{low}.1.0", f"{high}.4.0"):
        check_host_compiler(Version(gcc), cuda=Version(cuda))
    for gcc in (f"{low - 1}.5.0", f"{high + 1}.1.0"):
        with pytest.raises(ToolchainError, match=f"takes gcc {low} to {high}"):
            check_host_compiler(Version(gcc), cuda=Version(cuda))


def test_the_message_about_a_host_compiler() -> None:
    with pytest.raises(ToolchainError) as caught:
        check_host_compiler(Version("16.1.0"), cuda=Version("13.0"))
    assert str(caught.value) == (
        "host compiler: g++ is 16.1.0, and nvcc of CUDA 13.0 takes gcc 6 to 15; install g++-15; "
        "never -allow-unsupported-compiler [measured 2026-11: crt/host_config.h of CUDA 13.0]"
    )


def test_the_host_compiler_of_torch() -> None:
    check_host_compiler(Version("9.4.0"), torch=Version("2.4.1"))
    check_host_compiler(Version("11.3.0"), torch=Version("2.13.0+cpu"))
    with pytest.raises(ToolchainError, match=r"the headers of torch 2\.13\.0 want gcc 11\.3"):
        check_host_compiler(Version("11.2.0"), torch=Version("2.13.0+cpu"))


def test_what_is_not_known_of_a_compiler_is_not_checked() -> None:
    check_host_compiler(Version("99.0"), cuda=Version("99.9"), torch=Version("99.9.9"))


def test_ptx_needs_a_newer_driver_than_cubins(tmp_path: Path) -> None:
    cpu, cu118, cu121 = load(tmp_path, MATRIX).variants
    assert (driver_floors(cpu).cubin, driver_floors(cpu).ptx) == (None, None)
    assert str(driver_floors(cu118).cubin) == "450.80.02"
    assert str(driver_floors(cu118).ptx) == "520.61.05"
    assert str(driver_floors(cu121).cubin) == "525.60.13"
    assert str(driver_floors(cu121).ptx) == "530.30.02"


def test_notes(tmp_path: Path) -> None:
    row = '[variants.cu134]\ncuda = "13.4"\ntoolchain = "pypi-nvcc"\n'
    plain = '[variants.cu12]\ncuda = "12.4"\narch = ["9.0"]\n'
    matrix = load(tmp_path, changed((CU121, plain + row)))
    assert notes(matrix) == (
        "cu118: its PTX (9.0) needs driver 520.61.05, its cubins 450.80.02",
        "cu134: its PTX (9.0) needs a driver that is not known here, its cubins 580.65.06",
    )
    assert driver_floors(matrix.variants[2]).ptx is None


def test_rows_are_compared_by_cuda_and_not_by_their_order(tmp_path: Path) -> None:
    row = '[variants.cu13]\ncuda = "13.0"\ntoolchain = "pypi-nvcc"\n'
    load(tmp_path, changed(("[variants.cpu]\n", row + "\n[variants.cpu]\n")))
    older = '[variants.cu2]\ncuda = "12.0"\n'
    lines = refusal(tmp_path, changed(("[variants.cpu]\n", older + "\n[variants.cpu]\n")))
    assert lines == [
        (
            "matrix.toml: variants.cu2: its wheels (CUDA 12.0) would outrank those of cu121 (CUDA "
            "12.1), since +cu2 sorts after +cu121; name the rows so that they sort as their CUDA "
            "releases do [PEP 440, local version identifiers]"
        )
    ]


def test_a_build_that_is_not_known_is_not_promised(tmp_path: Path) -> None:
    row = (
        '[variants.cu130]\ncuda = "13.0"\ntoolchain = "pypi-nvcc"\ncuda-api = "runtime"\n'
        'torch = ["stable >= 2.10"]\ntorch-index = "https://example.org/simple"\n'
    )
    text = changed((CU121, row), ('"2.13.0"]', '"2.15.0"]'))
    assert refusal(tmp_path, text) == [
        (
            "matrix.toml: variants.cu130.torch[0]: torch 2.15.0 was not built for CUDA 13.0 (its "
            'builds: 13.2 known); use cuda-api = "driver", or exclude the cell [the wheel on PyPI, '
            "2026-11; its other CUDA builds are not known here]"
        )
    ]
