"""The gate: a wheel that is what its cell says passes, and each rule refuses by its own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.drivers.cubin import ARCHS
from wheelfab.errors import WheelError
from wheelfab.gate import gate
from wheelfab.model import CudaApi, Debug, Project

from .cellmaker import cells
from .elfmaker import make_library
from .imagemaker import with_images
from .matrixmaker import MATRIX, load
from .wheelmaker import make_cell, make_wheel

NEEDED = ("libtorch_cpu.so", "libc10.so", "libstdc++.so.6", "libc.so.6", "ld-linux-x86-64.so.2")
DEBUG_SECTIONS = (".debug_info", ".symtab")
EXTRA = 500  # bytes that a twin may have more
KEEP = "where CMAKE_BUILD_TYPE is Debug, keep its flags and no -s"
EXPLAINED = (
    "aoti_torch_get_device_type",
    "GOMP_parallel",
    "PyModuleDef_Init",
    "_Py_Dealloc",
    "_ZN2at4_ops5empty4callEv",
    "_ZN3c105ErrorD1Ev",
    "__cxa_finalize",
)


@dataclass(frozen=True)
class Case:
    """A wheel to make: what its libraries hold, and what else is not as usual."""

    cell: str = "cu121-torch2.4"
    kernels: Mapping[str, Any] | None = None  # of make_library
    archs: tuple[str, ...] = ARCHS
    files: Mapping[str, bytes] | None = None
    wheel: Mapping[str, Any] | None = None

    def make(self, folder: Path) -> Path:
        """Write the wheel."""
        library = make_library(**{"needed": NEEDED, "undefined": EXPLAINED, **(self.kernels or {})})
        kernels = with_images(library, self.archs) if self.archs else library
        files = {"freewheel/_kernels.so": kernels, "freewheel/py.typed": b"", **(self.files or {})}
        return make_cell(folder, self.cell, files=files, **(self.wheel or {}))


@lru_cache
def project() -> Project:
    """The project of the small matrix."""
    with TemporaryDirectory() as folder:
        return load(Path(folder), MATRIX).project


def passed(path: Path, name: str, **changes: Any) -> Any:
    """What the gate says of the wheel in ``path`` as one of the cell ``name``."""
    (cell,) = cells([name])
    cell = replace(cell, variant=replace(cell.variant, **changes)) if changes else cell
    twins = Debug(flags=("-g",), extra_size=EXTRA)
    return gate(path, cell, replace(project(), debug=twins), version=f"0.1.0+{cell.local_version}")


def refusal(folder: Path, case: Case, **changes: Any) -> list[str]:
    """The lines with which the gate refuses ``case``, without the wheel's name before each."""
    path = case.make(folder)
    with pytest.raises(WheelError) as caught:
        passed(path, case.cell, **changes)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path.name}: ") for line in lines)
    return [line.removeprefix(f"{path.name}: ") for line in lines]


@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(cell="cu121-torch2.10"),
        Case(cell="cpu-torch2.4", archs=()),
        Case(kernels={"needed": ("libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libtorch.so")}),
        Case(files={"freewheel/_C.pyi": b"", "freewheel/deep/er.py": b""}),
        Case(kernels={"sections": (".symtab",)}),
        Case(cell="cu121-torch2.4-debug", kernels={"sections": DEBUG_SECTIONS}),
    ],
)
def test_what_is_as_its_cell_says_passes(tmp_path: Path, case: Case) -> None:
    path = case.make(tmp_path)
    assert passed(path, case.cell).path == path


@pytest.mark.parametrize(
    ("cell", "archs", "says"),
    [
        (
            "cu121-torch2.4",
            ("80", "86", "90", "90+PTX"),
            "device code for 8.0 8.6 9.0 9.0+PTX, not 8.0 8.6 8.9 9.0 9.0+PTX",
        ),
        (
            "cu121-torch2.4",
            ("80", "86", "89", "90"),
            "device code for 8.0 8.6 8.9 9.0, not 8.0 8.6 8.9 9.0 9.0+PTX",
        ),
        (
            "cu121-torch2.4",
            ("80", "86", "89", "90", "90a", "90+PTX"),
            "device code for 8.0 8.6 8.9 9.0 9.0+PTX 9.0a, not 8.0 8.6 8.9 9.0 9.0+PTX",
        ),
        (  # B22: a suffix lost is another arch
            "cu121-torch2.4",
            ("80", "86", "89", "90a", "90+PTX"),
            "device code for 8.0 8.6 8.9 9.0+PTX 9.0a, not 8.0 8.6 8.9 9.0 9.0+PTX",
        ),
        (  # B20: a CUDA wheel without device code
            "cu121-torch2.4",
            (),
            "device code for nothing, not 8.0 8.6 8.9 9.0 9.0+PTX",
        ),
        ("cpu-torch2.4", ("80",), "device code for 8.0, not nothing"),
    ],
)
def test_the_device_code_is_what_the_row_asks_for(
    tmp_path: Path, cell: str, archs: tuple[str, ...], says: str
) -> None:
    assert refusal(tmp_path, Case(cell=cell, archs=archs)) == [f"{says}; see the device logs"]


@pytest.mark.parametrize(
    "name",
    [
        "libcuda.so.1",
        "libcudart.so.12",
        "libc10_cuda.so",
        "libtorch_cuda.so",
        "libnvrtc.so.12",
        "libtorch_python.so",
        "libpython3.12.so.1.0",
        "libgomp.so.1",
        "libgomp-24e2ab19.so.1.0.0",
    ],
)
def test_a_library_that_is_not_there_at_load_is_no_need(tmp_path: Path, name: str) -> None:
    case = Case(kernels={"needed": (*NEEDED, name)})
    assert refusal(tmp_path, case) == [
        f"freewheel/_kernels.so: needs {name}; open it at run time by name instead"
    ]


RUNTIME = {
    "needed": (*NEEDED, "libcudart.so.12", "libtorch_cuda.so", "libc10_cuda.so"),
    "undefined": (
        *EXPLAINED,
        "__cudaRegisterFatBinary",
        "_ZN2at4cuda20getCurrentCUDAStreamEv",
        "_ZN3c104cuda9SetDeviceEi",
    ),
    "versioned": {"cudaGetDeviceCount": ("libcudart.so.12", "libcudart.so.12")},
}


def test_a_row_that_links_the_runtime_may_need_it_and_torchs_libraries_for_cuda(
    tmp_path: Path,
) -> None:
    case = Case(kernels=RUNTIME)
    path = case.make(tmp_path)
    assert passed(path, case.cell, cuda_api=CudaApi.RUNTIME).path == path
    name = "freewheel/_kernels.so"
    needs = "libcudart.so.12, libtorch_cuda.so, libc10_cuda.so"
    symbols = "_ZN2at4cuda20getCurrentCUDAStreamEv, _ZN3c104cuda9SetDeviceEi"
    symbols = f"{symbols}, __cudaRegisterFatBinary, cudaGetDeviceCount"
    assert refusal(tmp_path, case) == [
        f"{name}: needs {needs}; open it at run time by name instead",
        f"{name}: 4 undefined symbols that nothing explains: {symbols}",
    ]
    cpu = Case(cell="cpu-torch2.4", kernels=RUNTIME, archs=())
    assert refusal(tmp_path, cpu, cuda_api=CudaApi.RUNTIME) == refusal(tmp_path, cpu)


@pytest.mark.parametrize(
    ("kernels", "says"),
    [
        ({"needed": ("libcuda.so.1",)}, "needs libcuda.so.1; open it at run time by name instead"),
        (
            {"needed": ("libcudart.so.11.0",)},
            "needs libcudart.so.11.0; open it at run time by name instead",
        ),
        (
            {"needed": ("libcublas.so.12",)},
            "needs libcublas.so.12; open it at run time by name instead",
        ),
        ({"undefined": ("cuInit",)}, "1 undefined symbols that nothing explains: cuInit"),
        (
            {"undefined": ("nvrtcCompileProgram",)},
            "1 undefined symbols that nothing explains: nvrtcCompileProgram",
        ),
        (
            {"undefined": ("_ZN5other4cuda3getEv",)},
            "1 undefined symbols that nothing explains: _ZN5other4cuda3getEv",
        ),
        (
            {"versioned": {"cudaMalloc": ("libcudart.so.11.0", "libcudart.so.11.0")}},
            "1 undefined symbols that nothing explains: cudaMalloc",
        ),
    ],
)
def test_a_row_that_links_the_runtime_needs_that_one_and_neither_driver_nor_others(
    tmp_path: Path, kernels: dict[str, Any], says: str
) -> None:
    case = Case(kernels=kernels)
    assert refusal(tmp_path, case, cuda_api=CudaApi.RUNTIME) == [f"freewheel/_kernels.so: {says}"]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"runpath": "$ORIGIN/../torch/lib"}, "a run path: $ORIGIN/../torch/lib; "),
        ({"rpath": "/usr/local/cuda/lib64/stubs"}, "a run path: /usr/local/cuda/lib64/stubs; "),
        ({"runpath": ""}, "a run path: ; "),
    ],
)
def test_no_run_path(tmp_path: Path, how: dict[str, str], says: str) -> None:
    lines = refusal(tmp_path, Case(kernels=how))
    assert [line.replace("None", "") for line in lines] == [
        f"freewheel/_kernels.so: {says}set SKIP_BUILD_RPATH"
    ]


@pytest.mark.parametrize("stack", [7, None])
def test_no_executable_stack(tmp_path: Path, stack: int | None) -> None:
    assert refusal(tmp_path, Case(kernels={"stack": stack})) == [
        "freewheel/_kernels.so: an executable stack; add .note.GNU-stack to the assembler files"
    ]


@pytest.mark.parametrize(
    "name",
    [
        "cuInit",
        "cuTensorMapEncodeTiled",
        "cudaMalloc",
        "nvrtcCompileProgram",
        "__cudaRegisterFatBinary",
        "_ZN2at4cuda20getCurrentCUDAStreamEv",
        "_ZN3c104cuda9SetDeviceEi",
        "nosuch",
        "_Z6nosuchv",
    ],
)
@pytest.mark.parametrize("kind", ["undefined", "weak"])
def test_an_undefined_symbol_is_explained_or_refused(tmp_path: Path, name: str, kind: str) -> None:
    case = Case(kernels={"undefined": EXPLAINED, kind: (*EXPLAINED, name)})
    assert refusal(tmp_path, case) == [
        f"freewheel/_kernels.so: 1 undefined symbols that nothing explains: {name}"
    ]


def test_of_many_unexplained_symbols_five_are_named(tmp_path: Path) -> None:
    case = Case(kernels={"undefined": tuple(f"lost_{i}" for i in range(9, 0, -1))})
    text = "9 undefined symbols that nothing explains: lost_1, lost_2, lost_3, lost_4, lost_5"
    assert refusal(tmp_path, case) == [f"freewheel/_kernels.so: {text}"]


@pytest.mark.parametrize(
    "name",
    [
        "freewheel/csrc/table.cpp",
        "freewheel.libs/libcudart-984fdb42.so.12",
        "freewheel/__pycache__/ops.cpython-311.pyc",
        "freewheel/attention.cu",
        "freewheel/build.log",
    ],
)
def test_no_file_that_no_rule_explains(tmp_path: Path, name: str) -> None:
    case = Case(files={name: b"x"})
    assert refusal(tmp_path, case) == [f"files that no rule explains: {name}; mend project.sources"]


def test_a_program_is_held_to_the_rules_for_libraries(tmp_path: Path) -> None:
    name = "freewheel/_probe"
    files = {name: make_library(needed=("libdl.so.2",))}
    programs = {"programs": (name,)}
    assert passed(Case(files=files, wheel=programs).make(tmp_path), Case().cell)
    assert refusal(tmp_path, Case(files=files)) == [
        f"{name}: a program without its exec bit; install it with install(TARGETS)"
    ]
    files = {name: make_library(needed=("libcuda.so.1",))}
    assert refusal(tmp_path, Case(files=files, wheel=programs)) == [
        f"{name}: needs libcuda.so.1; open it at run time by name instead"
    ]
    assert refusal(tmp_path, Case(files={name: b"#!/bin/sh"})) == [
        f"files that no rule explains: {name}; mend project.sources"
    ]


def test_no_more_bytes_than_the_budget(tmp_path: Path) -> None:
    size = Case().make(tmp_path).stat().st_size
    assert passed(tmp_path / Case().make(tmp_path).name, Case().cell, size_budget=size)
    assert refusal(tmp_path, Case(), size_budget=size - 1) == [
        f"{size:,} bytes, over the budget of {size - 1:,}; raise size-budget or ship fewer archs"
    ]


@pytest.mark.parametrize(
    ("cell", "sections", "says"),
    [
        (
            "cu121-torch2.4",
            DEBUG_SECTIONS,
            "debug information, of no use to users; leave -g to the twin: wheelfab build --debug",
        ),
        ("cu121-torch2.4-debug", (".debug_info",), f"is stripped; {KEEP}"),
        ("cu121-torch2.4-debug", (".symtab",), f"no debug information; {KEEP}"),
        ("cu121-torch2.4-debug", (), f"no debug information; {KEEP}"),
    ],
)
def test_row_19_a_release_has_no_debug_information_and_its_twin_all(
    tmp_path: Path, cell: str, sections: tuple[str, ...], says: str
) -> None:
    case = Case(cell=cell, kernels={"sections": sections})
    assert refusal(tmp_path, case) == [f"freewheel/_kernels.so: {says}"]


def test_row_19_a_twin_may_weigh_more_and_is_excused_from_nothing_else(tmp_path: Path) -> None:
    name = "cu121-torch2.4-debug"
    case = Case(cell=name, kernels={"sections": DEBUG_SECTIONS})
    path = case.make(tmp_path)
    size = path.stat().st_size
    assert passed(path, name, size_budget=size - EXTRA).path == path
    assert refusal(tmp_path, case, size_budget=size - EXTRA - 1) == [
        f"{size:,} bytes, over the budget of {size - 1:,}; raise extra-size or ship fewer archs"
    ]
    bad = {"needed": ("libcuda.so.1",), "undefined": ("cuInit",), "stack": 7, "runpath": "/x"}
    case = replace(case, kernels={**bad, "sections": DEBUG_SECTIONS}, archs=("80",))
    lines = refusal(tmp_path, case)
    assert [line.partition(";")[0].removeprefix("freewheel/_kernels.so: ") for line in lines] == [
        "device code for 8.0, not 8.0 8.6 8.9 9.0 9.0+PTX",
        "needs libcuda.so.1",
        "a run path: /x",
        "an executable stack",
        "1 undefined symbols that nothing explains: cuInit",
    ]


def test_the_version_is_the_one_set_before_the_build(tmp_path: Path) -> None:
    assert refusal(tmp_path, Case(wheel={"public": "0.2.0"})) == [
        "version 0.2.0+cu121.torch2.4, not 0.1.0+cu121.torch2.4; set it before the build"
    ]


@pytest.mark.parametrize(
    "tag",
    [
        "cp310-abi3-linux_x86_64",
        "cp310-abi3-manylinux_2_31_x86_64",
        "cp311-abi3-manylinux_2_28_x86_64",
        "cp310-cp310-manylinux_2_28_x86_64",
    ],
)
def test_the_tag_is_the_rows(tmp_path: Path, tag: str) -> None:
    assert refusal(tmp_path, Case(wheel={"tag": tag})) == [
        f"tag {tag}, not cp310-abi3-manylinux_2_28_x86_64; see wheel.py-api and the glibc floor"
    ]


@pytest.mark.parametrize(
    ("requires", "found"),
    [
        ((), "None"),
        (("torch",), "torch"),
        (("torch>=2.4.1",), "torch>=2.4.1"),
        (("torch==2.4.1",), "torch==2.4.1"),
        (("torch>=2.4.1,<2.5; sys_platform == 'linux'",), "None"),
    ],
)
def test_the_torch_requirement_is_the_pins(
    tmp_path: Path, requires: tuple[str, ...], found: str
) -> None:
    (line,) = refusal(tmp_path, Case(wheel={"requires_dist": requires}))
    assert line in (
        f"METADATA: Requires-Dist {found}, not torch{bounds}"
        for bounds in ("<2.5,>=2.4.1", ">=2.4.1,<2.5")
    )


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    case = Case(
        cell="cpu-torch2.4",
        kernels={"needed": ("libcuda.so.1",), "undefined": ("cuInit",), "stack": 7},
        files={"freewheel/notes.txt": b"x"},
        wheel={"public": "3"},
    )
    lines = refusal(tmp_path, case)
    assert [line.partition(";")[0] for line in lines] == [
        "version 3+cpu.torch2.4, not 0.1.0+cpu.torch2.4",
        "files that no rule explains: freewheel/notes.txt",
        "device code for 8.0 8.6 8.9 9.0 9.0+PTX, not nothing",
        "freewheel/_kernels.so: needs libcuda.so.1",
        "freewheel/_kernels.so: an executable stack",
        "freewheel/_kernels.so: 1 undefined symbols that nothing explains: cuInit",
    ]


def test_a_broken_wheel_is_refused_before_anything_else(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, omit=("RECORD",))
    with pytest.raises(WheelError, match="RECORD: is missing"):
        passed(path, "cu121-torch2.4")
