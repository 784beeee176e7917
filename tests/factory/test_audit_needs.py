"""What libraries need from outside: for each rule a wheel that breaks it and one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.factory.auditmaker import Case, audited, finds, keeps, library
from tests.factory.wheelmaker import build_record
from wheelfab.audit import Severity
from wheelfab.audit.manylinux import kept, level_of, levels
from wheelfab.audit.needs import cuda_library
from wheelfab.elf import parse_elf

OURS = "freewheel/_kernels.so"
NO_TORCH: dict[str, Any] = {"requires_dist": (), "version": "0.1.0"}
CPU_RECORD = build_record("cpu-torch2.4", "0.1.0")
CPU = {"version": "0.1.0+cpu.torch2.4"}
MUSL = "cp310-abi3-musllinux_1_2_x86_64"


def one(**switches: Any) -> dict[str, Any]:
    """Switches for one library."""
    return {"files": {OURS: library(**switches)}}


def needing(*names: str, **switches: Any) -> dict[str, Any]:
    """Switches for one library that needs these."""
    return one(needed=names) | switches


def versions(*found: str) -> dict[str, Any]:
    """Switches for one library that wants these versions of glibc or libstdc++."""
    library_of = {"GLIBC": "libc.so.6", "GLIBCXX": "libstdc++.so.6", "CXXABI": "libstdc++.so.6"}
    wanted: dict[str, list[str]] = {}
    for version in found:
        wanted.setdefault(library_of[version.partition("_")[0]], []).append(version)
    return one(needed=tuple(wanted), versions=wanted)


def beside(other: bytes) -> dict[str, Any]:
    """Switches for a library that wants ``ours`` in version V1 from another one of the wheel."""
    wants = library(needed=("b.so",), versioned={"ours": ("b.so", "V1")}, runpath="$ORIGIN")
    return {"files": {OURS: wants, "freewheel/b.so": other}}


CASES = [
    Case(
        rule="needs-driver",
        name="B05: libcuda",
        bad=needing("libc.so.6", "libcuda.so.1"),
        found="needs libcuda.so.1, for no symbol",
        subject=OURS,
        good=needing("libc.so.6", "libcudart.so.12"),
    ),
    Case(
        rule="needs-driver",
        name="B05: NVML",
        bad=one(needed=("libnvidia-ml.so.1",), undefined=("nvmlInit_v2",)),
        found="needs libnvidia-ml.so.1, for 1 symbols",
    ),
    Case(
        rule="needs-cpu",
        name="a CPU wheel with CUDA's torch",
        bad=needing("libc10_cuda.so", **CPU),
        found="needs libc10_cuda.so",
        good=needing("libc10.so", "libtorch_cpu.so", **CPU),
    ),
    Case(
        rule="needs-cpu",
        name="by the build record",
        bad=needing(
            "libcudart.so.12", build=build_record("cpu-torch2.4", "0.1.0"), version="0.1.0"
        ),
        found="needs libcudart.so.12",
    ),
    Case(
        rule="needs-cuda-release",
        name="two releases in one file",
        bad=needing("libcudart.so.12", "libcublas.so.11", version="0.1.0"),
        found="needs libcublas.so.11, libcudart.so.12",
        good=needing("libcudart.so.12", "libcufft.so.11", "libcusolver.so.11", version="0.1.0"),
    ),
    Case(
        rule="needs-cuda-release",
        name="another than the wheel's",
        bad=needing("libcudart.so.13", version="0.1.0+cu121.torch2.4"),
        found="needs libcudart.so.13, of CUDA 13",
        good=needing("libcudart.so.12", "libnccl.so.2", version="0.1.0+cu121.torch2.4"),
    ),
    Case(
        rule="needs-library",
        name="nothing explains it",
        bad=needing("libfoo.so.1"),
        found="needs libfoo.so.1",
        good=needing("libz.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2"),
    ),
    Case(
        rule="needs-library",
        name="torch is not required",
        bad=needing("libtorch_cpu.so", "libc10.so", **NO_TORCH),
        found="needs libtorch_cpu.so, libc10.so",
        good=needing("libtorch_cpu.so", "libc10.so"),
    ),
    Case(
        rule="needs-library",
        name="CUDA's wheel is not required",
        bad=needing("libcublas.so.12", **NO_TORCH),
        found="needs libcublas.so.12",
        good=needing(
            "libcublas.so.12", **(NO_TORCH | {"requires_dist": ("nvidia-cublas-cu12>=12",)})
        ),
    ),
    Case(
        rule="needs-library",
        name="the policy explains it",
        bad=needing("libbar.so.1"),
        found="needs libbar.so.1",
        good=needing("libfoo.so.1"),
        policy={"elf": {"needs": ["libfoo.so*"]}},
    ),
    *(
        Case(
            rule="needs-bundled",
            name=f"B40: {member}",
            bad={"files": {member: library()}},
            found=found,
            subject=member,
            good={"files": {"freewheel.libs/libgomp-a34b3233.so.1": library()}},
        )
        for member, found in (
            ("freewheel.libs/libcuda-984fdb42.so.570.86.15", "a copy of libcuda,"),
            ("freewheel.libs/libc10.so", "a copy of libc10,"),
            ("freewheel.libs/libtorch_cpu-1a2b3c4d.so", "a copy of libtorch_cpu,"),
            ("freewheel.libs/libcudart-c3a75b33.so.12.8.90", "a copy of libcudart,"),
            ("freewheel.libs/libnvidia-ml-98d2ff3d.so.1", "a copy of libnvidia-ml,"),
            ("freewheel.libs/libcublasLt.so.12", "a copy of libcublasLt,"),
        )
    ),
    Case(
        rule="needs-bundled",
        name="the policy allows one",
        bad={"files": {"a/libcudart.so.12": library()}},
        found="a copy of libcudart",
        good={"files": {"b/libcudart.so.12": library()}},
        policy={"elf": {"bundles": ["b/*"]}},
    ),
    Case(
        rule="needs-version",
        name="B40: another name in the version table",
        bad=one(needed=("libcudart-c3a75b33.so.12",), versions={"libcudart.so.12": ["V"]}),
        found="asks libcudart.so.12 for V, and does not need it",
        good=one(needed=("libcudart.so.12",), versions={"libcudart.so.12": ["V"]}),
    ),
    Case(
        rule="needs-symbols",
        name="nothing defines it",
        bad=one(undefined=("nosuch",)),
        found="nosuch: undefined, and nothing defines it",
        good=one(undefined=("PyList_New", "aoti_torch_empty_strided", "GOMP_parallel"))
        | {"requires_dist": ("torch>=2.4.1,<2.5",)},
    ),
    Case(
        rule="needs-symbols",
        name="B04: a function of CUDA's without its library",
        bad=one(undefined=("cudaMalloc",)),
        found="cudaMalloc: undefined",
        good=one(
            undefined=("cudaMalloc", "cublasCreate_v2"),
            needed=("libcudart.so.12", "libcublas.so.12"),
        ),
    ),
    Case(
        rule="needs-symbols",
        name="B04: no name of the CUDA library that is needed",
        bad=one(undefined=("cudaMalloc", "nosuch"), needed=("libcudart.so.12",)),
        found="nosuch: undefined, and nothing defines it",
        good=one(undefined=("cudaMalloc", "__cudaRegisterFatBinary"), needed=("libcudart.so.12",)),
    ),
    Case(
        rule="needs-symbols",
        name="the wheel's own library lacks a symbol that has a version",
        bad=beside(library(exports={"other": "V1"})),
        found="ours@V1: undefined, and nothing defines it",
        subject=OURS,
        good=beside(library(exports={"ours": "V1", "other": "V2"})),
    ),
    Case(
        rule="needs-symbols",
        name="the wheel's own library has it in another version",
        bad=beside(library(exports={"ours": "V2"})),
        found="ours@V1: undefined, and nothing defines it",
        good=beside(library(defined=("ours",))),
    ),
    Case(
        rule="needs-symbols",
        name="a weak one may be missing",
        bad=one(undefined=("other",), weak=("maybe",)),
        found="other: undefined",
        good=one(weak=("maybe",)),
    ),
    Case(
        rule="needs-symbols",
        name="a file of the wheel that is not needed",
        bad={
            "files": {
                OURS: library(undefined=("ours",)),
                "freewheel/b.so": library(defined=("ours",)),
            }
        },
        found="ours, which a file defines that it does not need",
        severity=Severity.WARNING,
        good={
            "files": {
                OURS: library(undefined=("ours",), needed=("a.so",), runpath="$ORIGIN"),
                "freewheel/a.so": library(needed=("b.so",), runpath="$ORIGIN"),
                "freewheel/b.so": library(defined=("ours",)),
            }
        },
    ),
    Case(
        rule="needs-platform",
        name="B17: glibc",
        bad=versions("GLIBC_2.32"),
        found="wants GLIBC_2.32 (GLIBC 2.32); manylinux_2_34_x86_64 holds",
        subject=OURS,
        good=versions("GLIBC_2.28"),
    ),
    Case(
        rule="needs-platform",
        name="B45: libstdc++",
        bad=versions("GLIBCXX_3.4.26"),
        found="wants GLIBCXX_3.4.26",
        good=versions("GLIBCXX_3.4.24", "CXXABI_1.3.11"),
    ),
    Case(
        rule="needs-platform",
        name="an alias",
        bad=versions("GLIBC_2.18") | {"tag": "cp310-abi3-manylinux2014_x86_64"},
        found="manylinux_2_24_x86_64 holds",
        good=versions("GLIBC_2.17") | {"tag": "cp310-abi3-manylinux2014_x86_64"},
    ),
    Case(
        rule="needs-platform",
        name="B17: no promise",
        bad=versions("GLIBC_2.17") | {"tag": "cp310-abi3-linux_x86_64"},
        found="linux_x86_64, where manylinux_2_17_x86_64 holds",
        severity=Severity.WARNING,
        good=versions("GLIBC_2.17"),
    ),
    Case(
        rule="needs-platform",
        name="B17: glibc where the tag says musl",
        bad=versions("GLIBC_2.17") | {"tag": MUSL},
        found="needs libc.so.6, which is glibc's",
        subject=OURS,
        good=versions("GLIBC_2.17"),
    ),
    Case(
        rule="needs-platform",
        name="B17: the level of the library's own machine",
        bad={
            "files": {
                OURS: library(machine=183),
                "freewheel/b.so": library(versions={"libc.so.6": ["GLIBC_2.32"]}),
            }
        },
        found="wants GLIBC_2.32 (GLIBC 2.32); manylinux_2_34_x86_64 holds",
        subject="freewheel/b.so",
        good=one(machine=183) | {"tag": "cp310-abi3-manylinux_2_28_aarch64"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_finds_what_it_is_for(case: Case, tmp_path: Path) -> None:
    finds(case, tmp_path)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_is_silent_about_a_wheel_that_keeps_it(case: Case, tmp_path: Path) -> None:
    keeps(case, tmp_path)


def test_what_a_library_outside_may_define_is_not_judged(tmp_path: Path) -> None:
    found = audited(tmp_path, **one(undefined=("foo_init",), needed=("libfoo.so.1",)))
    unchecked = [each.reason for each in found.unchecked if each.rule == "needs-symbols"]
    assert unchecked == ["foo_init may come from libfoo.so.1, not in the wheel"]


def test_what_musl_has_is_not_judged(tmp_path: Path) -> None:
    made = one(needed=("libc.musl-x86_64.so.1",), undefined=("printf",))
    found = audited(tmp_path, **made, tag=MUSL)
    assert not [each for each in found.findings if each.rule.startswith("needs-")]
    assert {each.rule: each.reason for each in found.unchecked} == {
        "needs-symbols": "printf may come from libc.musl-x86_64.so.1, not in the wheel",
        "needs-platform": "musl gives its symbols no versions:"
        " nothing tells if musllinux_1_2_x86_64 has them all",
    }


def test_an_unknown_policy_is_not_judged(tmp_path: Path) -> None:
    found = audited(
        tmp_path, **versions("GLIBC_2.17") | {"tag": "cp310-abi3-manylinux_2_99_x86_64"}
    )
    assert "needs-platform" in {each.rule for each in found.unchecked}


def test_levels_are_auditwheels() -> None:
    level = level_of("manylinux2014_x86_64")
    assert level is not None
    assert (level.name, level_of("manylinux_2_17_x86_64")) == ("manylinux_2_17_x86_64", level)
    assert "2.17" in level.versions["GLIBC"]
    assert "2.18" not in level.versions["GLIBC"]
    assert [one.name for one in levels("x86_64")][:2] == [
        "manylinux_2_5_x86_64",
        "manylinux_2_12_x86_64",
    ]
    assert level_of("linux_x86_64") is None


def test_no_policy_allows_a_private_version() -> None:
    private = parse_elf(library(versions={"libc.so.6": ["GLIBC_PRIVATE"]}), where="x")
    assert kept([private], "x86_64") is None


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("libcublasLt.so.12", "nvidia-cublas"),
        ("libcudart-c3a75b33.so.12.8.90", "nvidia-cuda-runtime"),
        ("libcudnn_ops_infer.so.8", "nvidia-cudnn"),
    ],
)
def test_a_library_of_cudas_is_known_by_any_name(name: str, distribution: str) -> None:
    found = cuda_library(name)
    assert found is not None
    assert found.distribution == distribution
    assert cuda_library("libcudgel.so.1") is None
