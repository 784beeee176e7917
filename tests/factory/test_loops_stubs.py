"""Which stand-in libraries torch needs, and the text of each."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from wheelfab.elf import Elf, Symbol
from wheelfab.errors import ToolchainError
from wheelfab.loops.stubs import Stub, source_of, stubs_for, version_script_of


def library(
    needed: tuple[str, ...], undefined: tuple[Symbol, ...] = (), defined: tuple[Symbol, ...] = ()
) -> Elf:
    """The facts of a library that only has these needs and symbols."""
    return Elf(
        machine=62,
        type=3,
        abi_version=0,
        flags=0,
        soname=None,
        needed=needed,
        rpath=None,
        runpath=None,
        executable_stack=False,
        sections=(),
        defined=defined,
        undefined=undefined,
        version_needs=MappingProxyType({}),
    )


def versioned(name: str, version: str, weak: bool = False) -> Symbol:
    """A symbol wanted from the library that its version is named after."""
    return Symbol(name=name, version=version, library=version, weak=weak)


TORCH = {
    "libtorch_python.so": library(("libtorch_cuda.so", "libc.so.6"), (Symbol(name="PyDict_New"),)),
    "libtorch_cuda.so": library(
        ("libcudart.so.13", "libnccl.so.2", "libtorch_cpu.so", "libstdc++.so.6"),
        (
            versioned("cudaFree", "libcudart.so.13"),
            versioned("cudaGetErrorString", "libcudart.so.13"),
            Symbol(name="ncclSend"),
            Symbol(name="from_cpu"),
            Symbol(name="_ZdlPvm"),
            Symbol(name="__gmon_start__", weak=True),
            Symbol(name="memcpy", version="GLIBC_2.14", library="libc.so.6"),
        ),
    ),
    "libtorch_cpu.so": library(("libc.so.6",), defined=(Symbol(name="from_cpu"),)),
    "libcaffe2_nvrtc.so": library(("libcuda.so.1", "libnvrtc.so.13")),
}


def test_only_what_an_import_loads_and_nobody_has_is_stood_in_for() -> None:
    assert stubs_for(TORCH) == (
        Stub(
            soname="libcudart.so.13",
            symbols={"": ("ncclSend",), "libcudart.so.13": ("cudaFree", "cudaGetErrorString")},
        ),
        Stub(soname="libnccl.so.2", symbols={}),
    )


def test_the_driver_is_never_replaced() -> None:
    needing = {"libtorch_python.so": library(("libcuda.so.1",), (Symbol(name="cuInit"),))}
    assert stubs_for(needing) == ()


def test_a_cpu_build_needs_none() -> None:
    assert stubs_for({"libtorch_python.so": library(("libc.so.6", "libstdc++.so.6"))}) == ()


def test_functions_answer_no_device_and_texts_are_texts() -> None:
    source = source_of(stubs_for(TORCH)[0])
    assert "return 100;" in source
    assert 'int cudaFree() __attribute__((alias("wheelfab_no_device")));' in source
    assert 'const char* cudaGetErrorString() __attribute__((alias("wheelfab_text")));' in source


def test_the_version_script_holds_what_has_a_version() -> None:
    script = version_script_of(stubs_for(TORCH)[0])
    assert script == "libcudart.so.13 { global: cudaFree; cudaGetErrorString; };\n"


def _text(stub: Stub) -> str:
    return source_of(stub) + version_script_of(stub)


@pytest.mark.parametrize(
    "stub",
    [
        Stub(soname="libx.so", symbols={"": ("a(); int b",)}),
        Stub(soname="libx.so", symbols={"V }; evil {": ("a",)}),
    ],
)
def test_names_that_would_change_the_source_are_refused(stub: Stub) -> None:
    with pytest.raises(ToolchainError):
        _text(stub)
