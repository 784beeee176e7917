"""The CPU kernels' objects share no function: the linker could keep its AVX-512 copy for all."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"
FLAGS = {
    "v2": ["-march=x86-64-v2"],
    "avx2": ["-march=x86-64-v2", "-mavx2", "-mfma", "-mf16c"],
    "avx512": [
        *("-march=x86-64-v2", "-mavx2", "-mfma", "-mf16c"),
        *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"),
    ],
}


@pytest.mark.parametrize("isa", FLAGS)
def test_internal_linkage(isa: str, tmp_path: Path) -> None:
    """Unoptimised, so that nothing is inlined away, the only global symbol is the table.

    What is undefined comes from the C library.
    """
    compiler, nm = shutil.which("g++"), shutil.which("nm")
    assert compiler
    assert nm
    target = tmp_path / "kernels.o"
    defines = ['-DFW_ISA_NAME="x"', f"-DFW_ISA_TABLE=fw_cpu_kernels_{isa}"]
    command = [
        compiler,
        "-std=c++17",
        "-O0",
        "-fno-math-errno",
        f"-I{CSRC}",
        *FLAGS[isa],
        *defines,
        "-c",
    ]
    subprocess.run(
        [*command, str(CSRC / "kernels/cpu/kernels.cpp"), "-o", str(target)],
        check=True,
        timeout=120,
    )
    listing = subprocess.run([nm, str(target)], check=True, capture_output=True, text=True).stdout
    symbols = re.findall(r"^[0-9a-f ]{16} (\w) (\S+)$", listing, re.MULTILINE)
    assert {name for kind, name in symbols if kind.isupper() and kind != "U"} == {
        f"fw_cpu_kernels_{isa}"
    }
    undefined = {name for kind, name in symbols if kind == "U"}
    library = {"memcpy", "memset", "__assert_fail", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"}
    assert undefined <= library


def test_flags_are_those_of_the_build() -> None:
    """The flags above are the ones in cmake/cpu.cmake."""
    text = (CSRC / "cmake/cpu.cmake").read_text(encoding="utf-8")
    for isa, flags in FLAGS.items():
        call = re.search(rf"freewheel_isa\({isa} .*?\)", text, re.DOTALL)
        assert call
        assert [flag for flag in call[0].rstrip(")").split() if flag.startswith("-m")] == flags
