"""Loading a matrix: the legal ones whole, and each bad one with its exact message."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from tests.factory.matrixmaker import MATRIX, changed, load, refusal
from wheelfab.arch import format_arch_list
from wheelfab.errors import MatrixError
from wheelfab.matrix import AbiKind, CudaApi, RowKind, Toolchain, load_matrix, make_matrix
from wheelfab.model import Debug
from wheelfab.variant import expand
from wheelfab.versions import ranged

ROOT = Path(__file__).parents[2]

ARCHS = 'arch = ["8.0", "8.6", "8.9", "9.0+PTX"]'
PINS = 'torch = ["2.4", "stable >= 2.10"]'
CU118 = '[variants.cu118]\ncuda = "11.8"\n'
CU121 = '[variants.cu121]\ncuda = "12.1"\n'
CU130 = '[variants.cu130]\ncuda = "13.0"\ntoolchain = "pypi-nvcc"\n'
RUNTIME = '[variants.cu124]\ncuda = "12.4"\ncuda-api = "runtime"\n'
PIN24 = '[torch."2.4"]\nlowest = "2.4.1"\nrun-on = ["2.4.1"]\n'
STABLE = '[torch."stable >= 2.10"]\nheaders = "2.13.0"\nrun-on = ["2.10.0", "2.13.0"]\n'
GPU_SOURCE = "[wheelfab: the GPUs of a build machine never decide what is built]"
PART_SOURCE = "[wheelfab: a part is compiled once for all that share it]"
PEP440 = "[PEP 440, local version identifiers]"
FORM = "write each arch as 8.0, 9.0a or 9.0+PTX, with ; between them"

BAD: dict[str, tuple[list[tuple[str, str]], list[str]]] = {
    "an arch that this CUDA does not know": (
        [(CU118, CU118 + 'arch = ["8.0", "8.6", "8.9", "9.0a"]\n')],
        [
            (
                "variants.cu118.arch[3]: CUDA 11.8 does not know 9.0a (first in 12.0); use 9.0 "
                "[CUDA 11.8 release notes]"
            )
        ],
    ),
    "the same from the defaults": (
        [(ARCHS, 'arch = ["8.0", "9.0a+PTX"]')],
        [
            (
                "variants.cu118.arch[1] (from defaults): CUDA 11.8 does not know 9.0a (first in "
                "12.0); use 9.0+PTX [CUDA 11.8 release notes]"
            )
        ],
    ),
    "the same in a list written as one string": (
        [(CU118, CU118 + 'arch = "8.0 12.0"\n')],
        [
            (
                "variants.cu118.arch: CUDA 11.8 does not know 12.0 (first in 12.8); use 9.0+PTX "
                "[CUDA 11.8 release notes]"
            )
        ],
    ),
    "an arch that was dropped, one that was renamed": (
        [(CU121, CU130 + 'arch = ["7.0", "9.0", "10.1a"]\n')],
        [
            (
                "variants.cu130.arch[0]: CUDA 13.0 does not know 7.0 (last in 12.9); take it out, "
                "or use CUDA 12.9 [CUDA 13.0 release notes]"
            ),
            (
                "variants.cu130.arch[2]: CUDA 13.0 does not know 10.1a (last in 12.9); use 11.0a, "
                "its name since then [CUDA 13.0 release notes]"
            ),
        ],
    ),
    "an arch that is no arch": (
        [(ARCHS, 'arch = ["8.0", "sm_90"]')],
        ["defaults.arch[1]: unknown arch 'sm_90'; write 9.0"],
    ),
    "the GPUs of the build machine": (
        [(CU121, CU121 + 'arch = "native"\n')],
        [
            (
                "variants.cu121.arch: 'native' would ask the GPUs of the build machine, which "
                f"never decide what is built; {FORM}"
            )
        ],
    ),
    "an empty arch list": (
        [(CU121, CU121 + "arch = []\n")],
        [
            (
                "variants.cu121.arch: is empty; list the archs to compile for, such as "
                f'["8.0", "9.0+PTX"] {GPU_SOURCE}'
            )
        ],
    ),
    "a blank arch entry": (
        [(CU121, CU121 + 'arch = [" "]\n')],
        [f"variants.cu121.arch[0]: is empty; {FORM}"],
    ),
    "no arch list": (
        [(ARCHS, ""), (CU118, "")],
        [
            (
                "variants.cu121.arch: is missing; list the archs to compile for, such as "
                f'["8.0", "9.0+PTX"] {GPU_SOURCE}'
            )
        ],
    ),
    "archs without CUDA": (
        [("[variants.cpu]\n", '[variants.cpu]\narch = ["8.0"]\n')],
        [
            (
                "variants.cpu.arch: a row without cuda has no arch; take it out, or add cuda "
                "[wheelfab: only a CUDA release compiles device code]"
            )
        ],
    ),
    "a CUDA release that does not exist": (
        [('cuda = "12.1"', 'cuda = "12.10"')],
        [
            (
                "variants.cu121.cuda: unknown toolkit '12.10'; did you mean '12.1'? "
                "[CUDA releases known in 2026-11]"
            )
        ],
    ),
    "a CUDA release as a number": (
        [('cuda = "12.1"', "cuda = 12.10")],
        [
            (
                "variants.cu121.cuda: expected a string, found 12.1; put the number in quotes, so "
                "that 12.10 stays 12.10"
            )
        ],
    ),
    "a CUDA release with a patch level": (
        [('cuda = "12.1"', 'cuda = "12.1.105"')],
        ["variants.cu121.cuda: '12.1.105' is not a version; write it as 12.1"],
    ),
    "a toolchain that does not give this CUDA": (
        [(CU121, '[variants.cu130]\ncuda = "13.0"\n')],
        [
            (
                "variants.cu130.toolchain (from defaults): pypi-nvrtc does not give CUDA 13.0; use "
                "pypi-nvcc [measured 2026-11: NVRTC and runtime headers on PyPI]"
            )
        ],
    ),
    "a torch without a build for the CUDA that is linked": (
        [(CU121, RUNTIME + 'torch-index = "https://download.pytorch.org/whl/cu124"\n')],
        [
            (
                "variants.cu124.torch[1] (from defaults): torch 2.10.0 was not built for CUDA 12.4 "
                '(its builds: 12.6, 12.8 and 13.0); use cuda = "12.6" or cuda-api = "driver", or '
                "exclude the cell [PyTorch 2.10 release notes]"
            )
        ],
    ),
    "an index with another CUDA than the one that is linked": (
        [(CU121, RUNTIME + 'torch = ["2.4"]\n')],
        [
            (
                "variants.cu124.torch-index: that index serves torch for the CPU, and the row "
                "links CUDA 12.4; use https://download.pytorch.org/whl/cu124 "
                "[PyTorch, previous versions]"
            )
        ],
    ),
    "no Python in common with torch": (
        [('python = ">=3.10"', 'python = ">=3.13"')],
        [
            (
                "project.python: >=3.13 has none of the Pythons of torch 2.4.1 (3.8 to 3.12); use "
                "a range that has 3.12, or exclude the cell [torch 2.4.1, wheels on PyPI, 2026-11]"
            )
        ],
    ),
    "a Python older than the wheel's tag": (
        [('python = ">=3.10"', 'python = ">=3.9"')],
        [
            (
                "project.python: >=3.9 allows Python 3.9, and wheels tagged cp310-abi3 begin with "
                "3.10; use >=3.10 [PEP 425, compatibility tags]"
            )
        ],
    ),
    "a Python range that is none": (
        [('python = ">=3.10"', 'python = "3.10+"')],
        ["project.python: '3.10+' is not a range of Pythons; write it as >=3.10 or >=3.10,<3.14"],
    ),
    "a series with a release of another": (
        [('lowest = "2.4.1"', 'lowest = "2.5.0"')],
        [
            (
                'torch."2.4".lowest: 2.5.0 is not of the series 2.4; use 2.4.1 [measured 2026-11: '
                "a classic extension loads from the release it was built on]"
            )
        ],
    ),
    "a torch release that does not exist": (
        [('lowest = "2.4.1"', 'lowest = "2.4.2"')],
        [
            (
                'torch."2.4".lowest: no torch 2.4.2 is known; use 2.4.0 or 2.4.1 '
                "[torch releases known in 2026-11]"
            )
        ],
    ),
    "headers for a series": (
        [('lowest = "2.4.1"', 'lowest = "2.4.1"\nheaders = "2.4.1"')],
        [
            (
                'torch."2.4".headers: a series is built against its lowest release, here 2.4.1; '
                "take it out, or change lowest [measured 2026-11: a classic extension loads from "
                "the release it was built on]"
            )
        ],
    ),
    "a stable ABI before there was one": (
        [(STABLE, STABLE.replace("2.10", "2.8", 1)), (PINS, 'torch = ["2.4", "stable >= 2.8"]')],
        [
            (
                'torch."stable >= 2.8": torch 2.8 has no stable ABI; use "stable >= 2.9" '
                "[measured 2026-11: the stable ABI of torch begins with 2.9]"
            )
        ],
    ),
    "headers older than the target": (
        [('headers = "2.13.0"', 'headers = "2.9.1"')],
        [
            (
                'torch."stable >= 2.10".headers: 2.9.1 is older than the target 2.10; use 2.10.0 '
                "[measured 2026-11: the stable ABI of torch begins with 2.9]"
            )
        ],
    ),
    "a stable pin without headers": (
        [('headers = "2.13.0"\n', "")],
        [
            (
                'torch."stable >= 2.10".headers: is missing; name the release whose headers it is '
                'built with, such as "2.10.0"'
            )
        ],
    ),
    "a lowest release for a stable pin": (
        [('headers = "2.13.0"', 'headers = "2.13.0"\nlowest = "2.10.0"')],
        [
            (
                'torch."stable >= 2.10".lowest: a stable pin allows 2.10 and all later releases; '
                "take it out [measured 2026-11: the stable ABI of torch begins with 2.9]"
            )
        ],
    ),
    "a pin that is neither": (
        [('[torch."stable >= 2.10"]', '[torch."stable>=2.10"]')],
        [
            'torch."stable>=2.10": is neither a series nor a stable pin; write "stable >= 2.10"',
        ],
    ),
    "a release to run on that the pin does not allow": (
        [('run-on = ["2.4.1"]', 'run-on = ["2.4.1", "2.5.1"]')],
        [
            (
                'torch."2.4".run-on[1]: 2.5.1 does not satisfy >=2.4.1,<2.5; use 2.4.1 '
                "[the pin's own requirement]"
            )
        ],
    ),
    "a pin that is not there": (
        [(PINS, 'torch = ["2.5", "stable >= 2.10"]')],
        ["defaults.torch[0]: unknown pin '2.5'; did you mean '2.4'?"],
    ),
    "a pin that is there twice": (
        [(PINS, 'torch = ["2.4", "2.4"]')],
        [
            (
                "defaults.torch[1]: '2.4' is there twice; take one of them out [wheelfab: the "
                "local version names the cell]"
            )
        ],
    ),
    "two pins that make the same cell": (
        [(PIN24, '[torch."2.10"]\nrun-on = ["2.10.0"]\n'), (PINS, 'torch = ["2.10"]')],
        [
            (
                'torch."stable >= 2.10": is called torch2.10 in cells and versions, and so is '
                "'2.10'; take one of them out [wheelfab: the local version names the cell]"
            )
        ],
    ),
    "no pins": (
        [(PINS, ""), (CU118, ""), (CU121, "")],
        [
            (
                'variants.cpu.torch: is missing; name the torch pins of the row, such as ["2.4"] '
                "[wheelfab: every wheel is built for a torch]"
            )
        ],
    ),
    "glibc below torch's": (
        [('glibc = "2.28"', 'glibc = "2.17"')],
        [
            (
                "project.glibc: 2.17 is below 2.28, which the wheels of torch 2.10.0 ask for "
                "(manylinux_2_28); use 2.28 [wheel tag on PyPI: manylinux_2_28]"
            )
        ],
    ),
    "glibc without a manylinux level": (
        [('glibc = "2.28"', 'glibc = "2.29"')],
        [
            (
                "project.glibc: 2.29 is no manylinux level; use 2.31 "
                "[auditwheel 6.8, manylinux policies]"
            )
        ],
    ),
    "another platform": (
        [(CU121, CU121 + 'platform = "linux-aarch64"\n')],
        [
            (
                "variants.cu121.platform: wheels for linux-aarch64 are not built here; use "
                "linux-x86_64 [wheelfab: toolchains and import loops exist for Linux x86_64]"
            )
        ],
    ),
    "an unknown platform": (
        [('"linux-x86_64"', '"linux-x86-64"')],
        [
            (
                "project.platform: unknown platform 'linux-x86-64'; did you mean 'linux-x86_64'? "
                "[wheelfab: toolchains and import loops exist for Linux x86_64]"
            )
        ],
    ),
    "names that sort wrongly": (
        [("[variants.cu118]", "[variants.cu92]")],
        [
            "variants.cu92: its wheels (CUDA 11.8) would outrank those of cu121 (CUDA 12.1), since "
            "+cu92 sorts after +cu121; name the rows so that they sort as their CUDA releases do "
            + PEP440
        ],
    ),
    "a name that a version cannot have": (
        [("[variants.cu118]", "[variants.cu11_8]")],
        [
            (
                "variants.cu11_8: the name 'cu11_8' is not a letter and then letters or digits, in "
                f"lower case; use cu118 {PEP440}"
            )
        ],
    ),
    "an unknown key": (
        [(CU121, CU121 + 'archs = ["8.0"]\n')],
        ["variants.cu121.archs: unknown key; did you mean 'arch'?"],
    ),
    "an unknown section": (
        [("[defaults]", "[default]")],
        ["default: unknown key; did you mean 'defaults'?"],
    ),
    "an unknown value": (
        [('cuda-api = "driver"', 'cuda-api = "drivr"')],
        ["defaults.cuda-api: unknown value 'drivr'; did you mean 'driver'?"],
    ),
    "an exclusion of what is not there": (
        [
            (
                "[variants.cpu]",
                (
                    '[[exclude]]\nvariant = "cu11"\ntorch = "2.4"\nreason = "no"\n\n'
                    '[[exclude]]\nvariant = "cpu"\ntorch = "2.5"\nreason = "no"\n\n[variants.cpu]'
                ),
            )
        ],
        [
            (
                "exclude[0].variant: unknown variant 'cu11'; did you mean 'cu118'? "
                "[wheelfab: every no has a reason]"
            ),
            (
                "exclude[1].torch: cpu has no pin '2.5'; did you mean '2.4'? "
                "[wheelfab: every no has a reason]"
            ),
        ],
    ),
    "an exclusion without a reason, one that is there twice": (
        [
            (
                "[variants.cpu]",
                (
                    '[[exclude]]\nvariant = "cu118"\ntorch = "2.4"\nreason = " "\n\n'
                    '[[exclude]]\nvariant = "cpu"\ntorch = "2.4"\nreason = "no"\n\n'
                    '[[exclude]]\nvariant = "cpu"\ntorch = "2.4"\nreason = "no"\n\n[variants.cpu]'
                ),
            )
        ],
        [
            "exclude[0].reason: is blank; write a sentence",
            (
                "exclude[2]: excludes the same cell as exclude[1]; take one of them out "
                "[wheelfab: every no has a reason]"
            ),
        ],
    ),
    "nothing left to build": (
        [
            (PINS, 'torch = ["2.4"]'),
            (CU118, ""),
            (CU121, '\n[[exclude]]\nvariant = "cpu"\ntorch = "2.4"\nreason = "no"\n'),
        ],
        [
            (
                "exclude: no cell is left to build; keep one, such as cpu-torch2.4 "
                "[wheelfab: every no has a reason]"
            )
        ],
    ),
    "a part that is not there": (
        [('uses = ["cpu", "device"]', 'uses = ["cpus", "device"]')],
        ["project.parts.kernels.uses[0]: unknown part 'cpus'; did you mean 'cpu'? " + PART_SOURCE],
    ),
    "a part that needs one compiled more often": (
        [('per = "project"', 'per = "project"\nuses = ["kernels"]')],
        [
            (
                "project.parts.cpu.uses[0]: kernels is compiled once a variant, and cpu once for "
                f'the project; set per = "variant" for cpu, or take it out {PART_SOURCE}'
            )
        ],
    ),
    "parts that need each other": (
        [
            ('[project.parts.cpu]\nper = "project"', '[project.parts.cpu]\nper = "variant"'),
            ('inputs = ["csrc/cpu/*"]', 'inputs = ["csrc/cpu/*"]\nuses = ["kernels"]'),
        ],
        [
            (
                "project.parts.cpu.uses: goes in a circle: cpu -> kernels -> cpu; let one of them "
                f"stand alone {PART_SOURCE}"
            )
        ],
    ),
    "device images for all variants at once": (
        [('per = "torch"', 'per = "torch"\nuses = ["device"]')],
        [
            (
                "project.parts.torch.uses[0]: device images belong to a variant, and torch is "
                f'compiled once a torch pin; set per = "variant" {PART_SOURCE}'
            )
        ],
    ),
    "device images without device code": (
        [('[project.device]\nsources = ["csrc/*.cu"]\n', "")],
        [
            (
                "project.parts.kernels.uses[1]: there is no device code; add [project.device], or "
                f"take it out {PART_SOURCE}"
            )
        ],
    ),
    "a path that leaves the project": (
        [('"csrc/*.cu"', '"../other/*.cu"')],
        [
            (
                "project.device.sources[0]: '../other/*.cu' does not stay inside the project; "
                "write a path relative to matrix.toml, with / and without .."
            )
        ],
    ),
    "a size that is none": (
        [('size-budget = "40 MB"', 'size-budget = "40"')],
        ["project.size-budget: '40' is not a size; write it as 40 MB or 64 MiB"],
    ),
    "flags that a shell would read": (
        [("[project.parts.cpu]", '[project.debug]\nflags = ["-g -O1"]\n\n[project.parts.cpu]')],
        ["project.debug.flags[0]: '-g -O1' is not a compiler's flag; write it as -g"],
    ),
    "stages of one name": (
        [
            (
                '[torch."2.4"]',
                '[[project.load]]\nstage = "package"\nrun = "import sys"\n\n[torch."2.4"]',
            )
        ],
        [
            (
                "project.load[1].stage: 'package' is there twice; give it another name "
                "[wheelfab: reports name the stage that failed]"
            )
        ],
    ),
    "a string for an array, a string for a truth": (
        [
            (PINS, 'torch = "2.4"'),
            ('run = "import demo"', 'run = "import demo"\nneeds-torch = "no"'),
        ],
        [
            (
                'project.load[0].needs-torch: expected true or false, found "no"; whether it is '
                "left out where torch is not installed"
            ),
            'defaults.torch: expected an array, found "2.4"; write ["2.4"]',
        ],
    ),
    "a missing key": (
        [('name = "demo"\n', "")],
        ["project.name: is missing; add it: the distribution's name"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_matrices(tmp_path: Path, case: str) -> None:
    changes, expected = BAD[case]
    assert refusal(tmp_path, changed(*changes)) == [f"matrix.toml: {line}" for line in expected]


def test_errors_of_every_kind_come_at_once(tmp_path: Path) -> None:
    text = changed(
        ('name = "demo"\n', ""),
        ('glibc = "2.28"', 'glibc = "2.28"\nglib = "2.28"'),
        ('run-on = ["2.4.1"]', 'run-on = ["2.4.1", "2.4.9"]'),
        ('headers = "2.13.0"', "headers = 2.13"),
        (CU118, CU118 + 'arch = ["8.0", "9.0a"]\n'),
        ('cuda = "12.1"', 'cuda = "12.10"'),
        ("[variants.cpu]\n", '[variants.cpu]\nplatfrom = "linux-x86_64"\n'),
    )
    assert refusal(tmp_path, text) == [
        "matrix.toml: project.name: is missing; add it: the distribution's name",
        "matrix.toml: project.glib: unknown key; did you mean 'glibc'?",
        (
            'matrix.toml: torch."stable >= 2.10".headers: expected a string, found 2.13; put the '
            "number in quotes, so that 12.10 stays 12.10"
        ),
        "matrix.toml: variants.cpu.platfrom: unknown key; did you mean 'platform'?",
        (
            'matrix.toml: torch."2.4".run-on[1]: no torch 2.4.9 is known; use 2.4.0 or 2.4.1 '
            "[torch releases known in 2026-11]"
        ),
        (
            "matrix.toml: variants.cu118.arch[1]: CUDA 11.8 does not know 9.0a (first in 12.0); "
            "use 9.0 [CUDA 11.8 release notes]"
        ),
        (
            "matrix.toml: variants.cu121.cuda: unknown toolkit '12.10'; did you mean '12.1'? "
            "[CUDA releases known in 2026-11]"
        ),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x",
            "matrix.toml: end of document: not TOML: Expected '=' after a key in a key/value pair",
        ),
        ("[project]\nname = \n", "matrix.toml: line 2, column 8: not TOML: Invalid value"),
        (
            "[variants.cu121]\n[variants.cu121]\n",
            "matrix.toml: line 2, column 16: not TOML: Cannot declare ('variants', 'cu121') twice",
        ),
        ("#" + "x" * 300_000, "matrix.toml: is longer than 256 KiB"),
        ("project = 3", "matrix.toml: project: expected a table, found 3; what is built, whatever"),
        ("", "matrix.toml: project: is missing; add it: what is built, whatever the variant"),
    ],
)
def test_files_that_are_no_matrix(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text)[0].startswith(message)


def test_a_file_that_is_not_utf8_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "matrix.toml"
    with pytest.raises(MatrixError, match="cannot be read: No such file or directory; run in the"):
        load_matrix(path)
    path.write_bytes(b"[project]\nname = '\xff'\n")
    with pytest.raises(MatrixError, match=r"^matrix\.toml: line 2: is not UTF-8$"):
        load_matrix(path)


def test_a_deeply_nested_file(tmp_path: Path) -> None:
    text = "a = " + "[" * 50_000
    assert refusal(tmp_path, text) == ["matrix.toml: is nested too deeply"]


def test_the_small_matrix(tmp_path: Path) -> None:
    matrix = load(tmp_path, MATRIX)
    assert matrix.root == tmp_path.resolve()
    assert [variant.name for variant in matrix.variants] == ["cpu", "cu118", "cu121"]
    cpu, cu118, _ = matrix.variants
    assert (cpu.cuda, cpu.arch, cpu.kind) == (None, (), RowKind.CPU)
    assert (cu118.cuda, cu118.kind) == (Version("11.8"), RowKind.DRIVER)
    assert format_arch_list(cu118.arch) == "8.0;8.6;8.9;9.0+PTX"
    assert (cu118.cuda_api, cu118.toolchain) == (CudaApi.DRIVER, Toolchain.PYPI_NVRTC)
    assert cu118.torch_index == "https://download.pytorch.org/whl/cpu"
    assert (cu118.torch_fallback, cu118.size_budget) == (None, 40_000_000)
    assert matrix.project.device is not None
    assert matrix.project.device.sources == ("csrc/*.cu",)
    assert [part.uses for part in matrix.project.parts] == [(), ("cpu", "device"), ()]


def test_pins(tmp_path: Path) -> None:
    pins = load(tmp_path, MATRIX).pins
    classic, stable = pins["2.4"], pins["stable >= 2.10"]
    assert (classic.kind, classic.name) == (AbiKind.CLASSIC, "torch2.4")
    assert (str(classic.lowest), str(classic.headers)) == ("2.4.1", "2.4.1")
    assert ranged(classic.requirement) == ">=2.4.1,<2.5"
    assert (stable.kind, stable.name) == (AbiKind.STABLE, "torch2.10")
    assert (str(stable.series), str(stable.lowest)) == ("2.10", "2.10.0")
    assert (str(stable.headers), str(stable.requirement)) == ("2.13.0", ">=2.10")
    assert [str(version) for version in stable.run_on] == ["2.10.0", "2.13.0"]


def test_a_row_overrides_defaults_and_project(tmp_path: Path) -> None:
    row = (
        CU130.replace('"pypi-nvcc"', '"pypi-nvcc"\narch = "Hopper 10.0f"\ncuda-api = "runtime"')
        + 'torch = ["stable >= 2.10"]\ntorch-index = "https://download.pytorch.org/whl/cu130"\n'
        + 'torch-fallback = "none"\npython = ">=3.11"\nglibc = "2.34"\nsize-budget = "64 MiB"\n'
    )
    text = changed((CU121, row), ("[defaults]\n", '[defaults]\ntorch-fallback = "pypi"\n'))
    matrix = load(tmp_path, text)
    cu118, cu130 = matrix.variants[1:]
    assert cu118.torch_fallback == "pypi"
    assert format_arch_list(cu130.arch) == "9.0+PTX;10.0f"
    assert (cu130.toolchain, cu130.kind) == (Toolchain.PYPI_NVCC, RowKind.RUNTIME)
    assert (cu130.torch, cu130.torch_fallback) == (("stable >= 2.10",), None)
    assert (str(cu130.python), cu130.glibc) == (">=3.11", Version("2.34"))
    assert cu130.size_budget == 64 * 2**20


def test_row_19_the_debug_twins_have_flags_and_room_of_their_own(tmp_path: Path) -> None:
    usual = load(tmp_path, MATRIX).project.debug
    assert usual.flags == ("-g", "-O1", "-fno-omit-frame-pointer")
    assert usual.extra_size == 100_000_000
    table = '[project.debug]\nflags = ["-ggdb", "-DX=1"]\nextra-size = "5 MB"\n\n'
    own = load(tmp_path, changed(("[project.parts.cpu]", table + "[project.parts.cpu]")))
    assert own.project.debug == Debug(flags=("-ggdb", "-DX=1"), extra_size=5_000_000)


def test_a_driver_row_is_free_of_the_cuda_of_torch(tmp_path: Path) -> None:
    text = changed((PINS, 'torch = ["stable >= 2.10"]'), ('"2.13.0"]', '"2.14.1"]'))
    assert [cell.id for cell in expand(load(tmp_path, text)).cells] == [
        "cpu-torch2.10",
        "cu118-torch2.10",
        "cu121-torch2.10",
    ]


def test_the_matrix_of_this_repository() -> None:
    expansion = expand(load_matrix(ROOT / "matrix.toml"))
    assert expansion.excluded == ()
    assert [(cell.id, cell.local_version) for cell in expansion.cells] == [
        ("cpu-torch2.4", "cpu.torch2.4"),
        ("cpu-torch2.10", "cpu.torch2.10"),
        ("cu118-torch2.4", "cu118.torch2.4"),
        ("cu118-torch2.10", "cu118.torch2.10"),
        ("cu121-torch2.4", "cu121.torch2.4"),
        ("cu121-torch2.10", "cu121.torch2.10"),
    ]
    for cell in expansion.cells[2:]:
        assert format_arch_list(cell.variant.arch) == "8.0;8.6;8.9;9.0+PTX"


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["12.1", "2.4.1", "stable >= 2.10", "9.0a", "pypi-nvcc", "runtime", "cpu"]),
    st.lists(st.text(max_size=6) | st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=2),
)


def tables(value: object) -> list[dict[str, Any]]:
    """Every table in a TOML document, the document itself included."""
    found = [value] if isinstance(value, dict) else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        found += tables(item)
    return found


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_matrix_with_any_values_loads_or_is_refused_in_lines(data: st.DataObject) -> None:
    raw = copy.deepcopy(tomllib.loads(MATRIX))
    for _ in range(data.draw(st.integers(1, 4))):
        table = data.draw(st.sampled_from(tables(raw)))
        key = data.draw(st.sampled_from([*table, "extra"]))
        if data.draw(st.booleans()):
            table[key] = data.draw(VALUES)
        else:
            table.pop(key, None)
    try:
        make_matrix(raw, name="matrix.toml", root=Path())
    except MatrixError as error:
        lines = str(error).split("\n")
        assert all(line.startswith("matrix.toml: ") for line in lines)
