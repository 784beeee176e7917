"""Row 19: the debug twin of a cell is built, has symbols and assertions, passes the same tests."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from elftools.elf.elffile import ELFFile

from wheelfab.store import default_root
from wheelfab.wheel import verify_wheel

from .beside import install_beside, passed_beside, run_beside
from .conftest import ROOT, TINY, Wheelfab

CELL = "cu121-torch2.10"
LIBRARIES = ("_C.abi3.so", "_kernels.so", "_torch.so", "_probe")
RMS_NORM = "_Z15fw_cpu_rms_normPK6FwExecPK13FwRmsNormArgs"
# An operation of the table, past the checks of the binding, for a dtype that does not exist.
WRONG_DTYPE = """
from pathlib import Path
import freewheel
from tests.drivers.abi import Exec, Table
from tests.fibers.records import records
import ctypes
kernels = ctypes.CDLL(str(Path(freewheel.__file__).parent / "_kernels.so"))
kernels.freewheel_kernels.restype = ctypes.POINTER(Table)
x = (ctypes.c_float * 64)()
args = records()["FwSiluAndMulArgs"](
    out=ctypes.addressof(x), x=ctypes.addressof(x), tokens=1, size=8, dtype=7
)
table = kernels.freewheel_kernels().contents
print(table.silu_and_mul(ctypes.byref(Exec(device=-1)), ctypes.byref(args)))
"""


@dataclass(frozen=True)
class Built:
    """The twin as it was built: its result, and what the release's files were before and after."""

    release: Path
    result: dict[str, Any]
    before: dict[str, tuple[int, bytes]]
    after: dict[str, tuple[int, bytes]]

    @property
    def wheel(self) -> Path:
        """The twin's wheel."""
        return Path(self.result["wheel"])


def release_files(root: Path, wheel: str) -> dict[str, tuple[int, bytes]]:
    """When the release's wheel and record were written, and their bytes."""
    paths = (Path(wheel), root / "build" / CELL / "build.json")
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


@pytest.fixture(scope="module")
def built(wheelfab: Wheelfab) -> Built:
    """The twin of one cell, built beside its release in this repository's own store."""
    (release,) = wheelfab.json("build", CELL)
    before = release_files(wheelfab.root, release["wheel"])
    (result,) = wheelfab.json("build", CELL, "--debug")
    after = release_files(wheelfab.root, release["wheel"])
    wheel = Path(release["wheel"])
    return Built(release=wheel, result=result, before=before, after=after)


@pytest.fixture(scope="module")
def python(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the twin."""
    return install_beside(built.wheel, tmp_path_factory.mktemp("twin") / "env")


@pytest.fixture(scope="module")
def libraries(built: Built, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The twin's libraries and its program, unpacked."""
    folder = tmp_path_factory.mktemp("libraries")
    with ZipFile(built.wheel) as archive:
        return {name: Path(archive.extract(f"freewheel/{name}", folder)) for name in LIBRARIES}


def test_row_19_the_twin_is_a_wheel_of_its_own_and_the_release_stays(
    built: Built, wheelfab: Wheelfab
) -> None:
    assert built.after == built.before
    assert built.wheel.parent == wheelfab.root / "dist" / "debug"
    wheel = verify_wheel(built.wheel)
    assert str(wheel.version) == "0.1.0+cu121.torch2.10.debug"
    assert wheel.build is not None
    assert (wheel.build["cell"], wheel.build["profile"]) == (f"{CELL}-debug", "debug")
    assert {"-g", "-O1", "-fno-omit-frame-pointer"} <= set(wheel.build["flags"])
    assert not {"-O2", "-O3", "-DNDEBUG"} & set(wheel.build["flags"])
    assert (wheelfab.root / "build" / f"{CELL}-debug" / "build.json").is_file()
    kept = verify_wheel(built.release).build
    assert kept is not None
    assert (kept["cell"], kept["profile"], kept["archs"]) == (CELL, "release", wheel.build["archs"])
    assert "-DNDEBUG" in kept["flags"]


def test_a_second_build_of_both_compiles_nothing(built: Built, wheelfab: Wheelfab) -> None:
    (again,) = wheelfab.json("build", CELL, "--debug")
    assert again == {**built.result, "fresh": False}
    plan = wheelfab.json("plan", CELL, "--debug")
    assert [(cell["id"], cell["profile"]) for cell in plan["cells"]] == [(f"{CELL}-debug", "debug")]
    assert plan["cost"]["to_run"] == 0
    release = {action["id"]: action["key"] for action in wheelfab.json("plan", CELL)["actions"]}
    shared = [item["id"] for item in plan["actions"] if release.get(item["id"]) == item["key"]]
    assert shared
    assert all(name.startswith("device:") for name in shared)
    assert len(shared) == len([name for name in release if name.startswith("device:")])


def units(elf: ELFFile) -> Iterator[Any]:
    """The top entry of each compilation unit."""
    for unit in elf.get_dwarf_info().iter_CUs():
        yield unit.get_top_DIE()


@pytest.mark.parametrize("name", LIBRARIES)
def test_row_19_each_file_has_debug_information_with_frame_pointers(
    libraries: dict[str, Path], name: str
) -> None:
    with libraries[name].open("rb") as file:
        elf = ELFFile(file)
        assert elf.get_section_by_name(".symtab") is not None
        tops = [unit.attributes for unit in units(elf)]
        assert tops
        for top in tops:
            flags = top["DW_AT_producer"].value.decode().split()
            assert {"-g", "-O1", "-fno-omit-frame-pointer"} <= set(flags)
            assert top["DW_AT_comp_dir"].value == b"build"
        names = {top["DW_AT_name"].value.decode().partition("/")[0] for top in tops}
    assert names <= {"csrc", "build"}
    content = libraries[name].read_bytes()
    for folder in (ROOT, default_root(), Path(sys.prefix)):
        assert os.fsencode(folder) not in content, folder


def line_of(path: Path, symbol: str) -> tuple[str, int]:
    """The file and line that the first byte of a function comes from."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        table: Any = elf.get_section_by_name(".symtab")
        (found,) = table.get_symbol_by_name(symbol)
        address, dwarf = found["st_value"], elf.get_dwarf_info()
        for unit in dwarf.iter_CUs():
            program: Any = dwarf.line_program_for_CU(unit)
            for entry in program.get_entries():
                if entry.state is not None and entry.state.address == address:
                    where = program["file_entry"][entry.state.file]
                    folder = program["include_directory"][where.dir_index]
                    return f"{folder.decode()}/{where.name.decode()}", entry.state.line
    raise LookupError(symbol)


@pytest.mark.parametrize(
    ("library", "symbol", "file", "begins"),
    [
        ("_kernels.so", "freewheel_kernels", "csrc/table.cpp", "const FwKernels* freewheel_kernel"),
        ("_kernels.so", RMS_NORM, "csrc/kernels/cpu/cpu.cpp", "int32_t fw_cpu_rms_norm("),
        ("_torch.so", "freewheel_bind", "csrc/torch/bind.cpp", "const char* freewheel_bind("),
    ],
)
def test_row_18_a_function_is_found_by_file_and_line(
    libraries: dict[str, Path], library: str, symbol: str, file: str, begins: str
) -> None:
    found, line = line_of(libraries[library], symbol)
    assert found == file
    assert (ROOT / file).read_text().splitlines()[line - 1].startswith(begins)


def test_row_19_an_invariant_that_does_not_hold_is_named_by_the_twin_alone(
    built: Built, python: Path, tmp_path: Path
) -> None:
    done = run_beside(python, "-c", WRONG_DTYPE, check=False)
    assert done.returncode == -signal.SIGABRT
    assert "csrc/kernels/cpu/vec.h:" in done.stderr
    assert "Assertion `FW_FLOAT32 <= dtype" in done.stderr
    release = install_beside(built.release, tmp_path / "release")
    assert run_beside(release, "-c", WRONG_DTYPE).stdout == "0\n"


def test_row_19_libstdcxxs_assertions_are_on_and_need_no_newer_libstdcxx(
    libraries: dict[str, Path],
) -> None:
    with libraries["_kernels.so"].open("rb") as file:
        table: Any = ELFFile(file).get_section_by_name(".symtab")
        (found,) = table.get_symbol_by_name("_ZSt21__glibcxx_assert_failPKciS0_S0_")
    assert found["st_info"]["bind"] == "STB_LOCAL"
    assert found["st_shndx"] != "SHN_UNDEF"


def test_row_19_the_same_tests_pass(python: Path) -> None:
    assert run_beside(python, "-c", "import freewheel; print(freewheel.__version__)").stdout == (
        "0.1.0+cu121.torch2.10.debug\n"
    )
    assert passed_beside(python, "tests/installed") > 300


def test_the_loop_loads_the_twin_and_reports_it_apart(built: Built, wheelfab: Wheelfab) -> None:
    releases = wheelfab.root / "build" / "loops" / f"{CELL}.json"
    before = releases.read_bytes() if releases.exists() else None
    options = ("--count", "1", "--forked", "0", "--torch", "2.13.0")
    (report,) = wheelfab.json("loop", "--host", "here", "--debug", "--variant", CELL, *options)
    assert (report["cell"], report["wheel"]) == (f"{CELL}-debug", built.wheel.name)
    assert report["runs"][0]["fresh"]["passed"] == 1
    assert (wheelfab.root / "build" / "loops" / f"{CELL}-debug.json").is_file()
    assert (releases.read_bytes() if releases.exists() else None) == before


def test_anyones_twin_has_the_same_bytes_from_every_folder(tmp_path: Path) -> None:
    """The tiny extension maps no folder to a relative one: the plan does."""
    roots = [tmp_path / "first", tmp_path / "elsewhere" / "deep down"]
    wheels = []
    for root in roots:
        shutil.copytree(TINY, root)
        (result,) = Wheelfab(root).json("build", "cu121-torch2.10", "--debug")
        wheels.append(Path(result["wheel"]))
    assert wheels[0].name == "tiny-1.0+cu121.torch2.10.debug-cp310-abi3-manylinux_2_28_x86_64.whl"
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with ZipFile(wheels[0]) as archive:
        found = [archive.read(f"tiny/{name}.so") for name in ("_kernels", "_torch")]
    tops = [unit.attributes for data in found for unit in units(ELFFile(BytesIO(data)))]
    assert {top["DW_AT_name"].value for top in tops} == {b"csrc/base.c", b"csrc/binding.cpp"}
    assert {top["DW_AT_comp_dir"].value for top in tops} == {b"build"}
