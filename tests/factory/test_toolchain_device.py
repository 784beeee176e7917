"""The device compile: archs from one variable only, and the result measured, never declared."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from tests.drivers.cubin import Kernel, images
from wheelfab.arch import parse_arch_list
from wheelfab.errors import BuildError, ToolchainError, UsageError
from wheelfab.toolchain.compiler import Unit
from wheelfab.toolchain.device import (
    Request,
    check_compiler,
    check_fatbin,
    main,
    read_request,
    wanted,
)

KERNELS = {"fw_a": Kernel(params=(8,)), "fw_b": Kernel(params=(8,))}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file to compile."""
    path = tmp_path / "x.cu"
    path.write_text('extern "C" __global__ void fw_a() {}\n')
    return path


def arguments(source: Path, **changes: str) -> list[str]:
    """A command line for ``source``."""
    options = {
        "toolchain": "pypi-nvrtc",
        "cuda": "12.1",
        "include": "inc",
        "std": "c++17",
    } | changes
    named = [item for name, value in options.items() for item in (f"--{name}", value)]
    return [*named, "--out", str(source.with_suffix(".fatbin")), str(source)]


def request_for(source: Path, archs: str) -> Request:
    """What ``read_request`` makes of that arch list."""
    return read_request(arguments(source), {"TORCH_CUDA_ARCH_LIST": archs})


def test_the_archs_come_from_the_environment(source: Path) -> None:
    request = request_for(source, "8.0 9.0+PTX")
    assert [str(arch) for arch in request.archs] == ["8.0", "9.0+PTX"]
    assert request.cuda == Version("12.1")
    assert request.include == (Path.cwd() / "inc",)
    assert request.jobs == 1


@pytest.mark.parametrize("environment", [{}, {"TORCH_CUDA_ARCH_LIST": " "}, {"CUDAARCHS": "80"}])
def test_without_the_variable_nothing_is_compiled(
    source: Path, environment: dict[str, str]
) -> None:
    with pytest.raises(
        UsageError, match="TORCH_CUDA_ARCH_LIST is not set; set it as the plan does"
    ):
        read_request(arguments(source), environment)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"cuda": "twelve"}, "not a CUDA release: 'twelve'"),
        ({"std": "c++17 -O0"}, "not a C\\+\\+ standard"),
    ],
)
def test_a_wrong_option_is_named(source: Path, changes: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_request(arguments(source, **changes), {"TORCH_CUDA_ARCH_LIST": "8.0"})


def test_errors_are_text_and_an_exit_code(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    source.unlink()
    assert main(arguments(source)) == UsageError.exit_code
    assert capsys.readouterr().err == f"error: {source}: no such file\n"


def test_cubins_come_before_ptx_in_the_order_of_the_archs() -> None:
    made = wanted(parse_arch_list("8.0+PTX;9.0a+PTX"))
    assert [image.target for image in made] == ["sm_80", "sm_90a", "compute_80", "compute_90a"]


class FakeCompiler:
    """A compiler that says what it was told to say."""

    name = "nvrtc"

    def __init__(self, version: str, archs: str) -> None:
        self.said, self.known = Version(version), frozenset(archs.split())

    def version(self) -> Version:
        """As told."""
        return self.said

    def archs(self) -> frozenset[str]:
        """As told."""
        return self.known

    def compile(self, unit: Unit, target: str) -> tuple[bytes, str]:
        """Never asked."""
        raise AssertionError((unit, target))


def test_a_tool_of_another_release_is_refused(source: Path) -> None:
    tool = FakeCompiler("12.2", "80 90")
    with pytest.raises(ToolchainError, match=r"says it is of CUDA 12\.2, not 12\.1"):
        check_compiler(tool, request_for(source, "8.0"))


@pytest.mark.parametrize(("archs", "unknown"), [("10.0", "sm_100"), ("8.0;9.0a", "sm_90a")])
def test_an_arch_that_the_tool_does_not_know_is_refused(
    source: Path, archs: str, unknown: str
) -> None:
    request = read_request(arguments(source, cuda="11.8"), {"TORCH_CUDA_ARCH_LIST": archs})
    tool = FakeCompiler("11.8", "35 70 80 86 90")
    with pytest.raises(ToolchainError, match=rf"does not know {unknown}; it knows 3\.5 .* 9\.0$"):
        check_compiler(tool, request)


def test_a_suffix_is_accepted_where_the_release_has_it(source: Path) -> None:
    check_compiler(FakeCompiler("12.1", "80 90"), request_for(source, "8.0;9.0a+PTX"))


def test_a_fatbin_with_just_what_was_asked_passes() -> None:
    packed = images(KERNELS, ["80", "90a", "90a+PTX"])
    check_fatbin(packed, parse_arch_list("8.0;9.0a+PTX"), where="x.cu")


@pytest.mark.parametrize(
    ("found", "asked", "says"),
    [
        (["80", "90"], "8.0;9.0a", r"asked for 8\.0 9\.0a, the fatbin has 8\.0 9\.0$"),
        (["80", "90"], "8.0;9.0+PTX", r"asked for 8\.0 9\.0 9\.0\+PTX, the fatbin has 8\.0 9\.0$"),
        (["80", "86"], "8.0", r"the fatbin has 8\.0 8\.6"),
        ([], "8.0", "the fatbin has $"),
    ],
)
def test_a_fatbin_with_other_archs_fails(found: list[str], asked: str, says: str) -> None:
    with pytest.raises(BuildError, match=says):
        check_fatbin(images(KERNELS, found), parse_arch_list(asked), where="x.cu")


def test_a_fatbin_without_kernels_or_with_different_ones_fails() -> None:
    with pytest.raises(BuildError, match="has no kernel; declare each kernel"):
        check_fatbin(images({}, ["80"]), parse_arch_list("8.0"), where="x.cu")
    fewer = images({"fw_a": KERNELS["fw_a"]}, ["90"])
    both = images(KERNELS, ["80"])
    joined = both + fewer
    with pytest.raises(BuildError, match=r"has other kernels for 9\.0"):
        check_fatbin(joined, parse_arch_list("8.0;9.0"), where="x.cu")
