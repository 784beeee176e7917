"""Who is blamed for a crash, and when two crashes are one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfab.crash.blame import guilty_of, own_frames, signature_of
from wheelfab.crash.record import Frame, Guilty, PythonFrame

C = "/usr/lib/x86_64-linux-gnu/libc.so.6"
LD = "/lib64/ld-linux-x86-64.so.2"
PYTHON = "/opt/python/bin/python3.11"
FFI = "/usr/lib/libffi.so.8.1.2"
WHEEL = "/env/lib/python3.11/site-packages/freewheel/_kernels.so"
DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.535.183.06"


def frame(function: str, library: str, offset: int | None = 0x1139) -> Frame:
    """A native frame."""
    return Frame(function=function, library=library, offset=offset)


ABORT = (frame("__pthread_kill_implementation", C), frame("raise", C), frame("abort", C))
LOADING = (frame("call_init", LD), frame("_dl_init", LD), frame("dlopen", C))
HANDLER = frame("<signal handler called>", "")
INTERPRETER = (frame("ffi_call", FFI), frame("_PyEval_EvalFrameDefault", PYTHON))


@pytest.mark.parametrize(
    ("frames", "guilty"),
    [
        ((frame("f", WHEEL), *INTERPRETER), Guilty(function="f", library="_kernels.so")),
        ((*ABORT, frame("f", WHEEL)), Guilty(function="f", library="_kernels.so")),
        (
            (frame("std::terminate()", "/lib/libstdc++.so.6.0.30"), frame("f", WHEEL)),
            Guilty(function="f", library="_kernels.so"),
        ),
        (  # a constructor, with and without its symbol
            (frame("start", WHEEL), *LOADING, *INTERPRETER),
            Guilty(function="start", library="_kernels.so"),
        ),
        (
            (frame("??", WHEEL), *LOADING, *INTERPRETER),
            Guilty(function="_kernels.so+0x1139", library="_kernels.so"),
        ),
        (  # the driver's entry point, and who called it
            (frame("??", DRIVER), frame("??", DRIVER), frame("cuInit", DRIVER), *INTERPRETER),
            Guilty(function="cuInit", library="libcuda.so.535.183.06"),
        ),
        (
            (frame("??", DRIVER), frame("cuInit", DRIVER), frame("start", WHEEL), *LOADING),
            Guilty(
                function="cuInit",
                library="libcuda.so.535.183.06",
                called_by="start in _kernels.so",
            ),
        ),
        (  # a handler that aborts: what it was called for counts
            (*ABORT, frame("report", "/x/libother.so"), HANDLER, frame("f", WHEEL)),
            Guilty(function="f", library="_kernels.so"),
        ),
        (  # a jump to nowhere
            (frame("??", "", None), frame("f", WHEEL)),
            Guilty(function="f", library="_kernels.so"),
        ),
        (  # Python's own
            (frame("__strlen_avx2", C), frame("string_at", PYTHON)),
            Guilty(function="string_at", library="python3.11"),
        ),
        ((frame("main", "/wheel/freewheel/_probe"),), Guilty(function="main", library="_probe")),
        ((frame("free", C),), None),
        ((), None),
    ],
)
def test_who_is_guilty(frames: tuple[Frame, ...], guilty: Guilty | None) -> None:
    assert guilty_of(frames) == guilty


def sign(frames: tuple[Frame, ...], stack: tuple[PythonFrame, ...] = (), **given_: str) -> str:
    """The signature of a null pointer at import, but for what is given."""
    words = {"signal": "SIGSEGV", "si_code": "SEGV_MAPERR", "stage": "import", **given_}
    return signature_of(
        signal=words["signal"],
        si_code=words["si_code"],
        stage=words["stage"],
        frames=frames,
        stack=stack,
    )


folders = st.text("abc/", min_size=1).map(lambda text: f"/{text}/")
offsets = st.integers(0, 1 << 40)
functions = st.sampled_from(["f", "??", "ns::g(int)", "cuInit"])
libraries = st.sampled_from(["_C.abi3.so", "libcuda.so.535.104", "libgomp-a34b3233.so.1", "x.so"])
stacks = st.lists(st.tuples(functions, libraries), min_size=1, max_size=6)


@given(stacks, st.data())
def test_addresses_folders_lines_and_pythons_change_no_signature(
    stack: list[tuple[str, str]], data: st.DataObject
) -> None:
    def somewhere() -> tuple[Frame, ...]:
        python = data.draw(st.sampled_from(["3.10", "3.11", "3.13"]))
        depth = data.draw(st.integers(1, 5))
        native = (
            Frame(
                function=function,
                library=data.draw(folders) + library,
                offset=data.draw(offsets),
                line=data.draw(st.integers(1, 900)) if function == "f" else None,
                file="f.cpp" if function == "f" else "",
            )
            for function, library in stack
        )
        below = (frame("_PyEval", f"/opt/python/bin/python{python}"),) * depth
        return (*native, *below, frame("main", C))

    python = (PythonFrame(file="/a/x.py", line=3, function="load"),)
    assert sign(somewhere(), python) == sign(somewhere())


def test_other_builds_of_a_library_are_the_same_library() -> None:
    names = ["_C.cpython-310-x86_64-linux-gnu.so", "_C.cpython-313-x86_64-linux-gnu.so"]
    assert len({sign((frame("f", f"/{name}"),)) for name in names}) == 1
    names = ["libgomp-a34b3233.so.1", "libgomp-98765432.so.1.0.0", "libgomp.so.1"]
    assert len({sign((frame("f", f"/{name}"),)) for name in names}) == 1
    assert sign((frame("f.cold", WHEEL),)) == sign((frame("f", WHEEL),))


def test_what_differs_has_another_signature() -> None:
    frames = (frame("cuInit", DRIVER), frame("start", WHEEL))
    others = [
        sign(frames),
        sign(frames, si_code="SI_KERNEL"),
        sign(frames, signal="SIGBUS"),
        sign(frames, stage="torch"),
        sign((frame("cuDeviceGet", DRIVER), frame("start", WHEEL))),
        sign((frame("cuInit", DRIVER), frame("other", WHEEL))),
        sign((frame("cuInit", DRIVER),)),
        sign((frame("cuInit", WHEEL),)),
    ]
    assert len(set(others)) == len(others)


def test_without_a_native_function_the_python_function_counts_and_then_the_error() -> None:
    stack = (PythonFrame(file="/a/x.py", line=3, function="load"),)
    moved = (replace(stack[0], file="/b/x.py", line=9),)
    inside = (frame("unicode_new", PYTHON),)
    assert sign((), stack) == sign(inside, moved)
    assert sign((), stack) != sign((), (replace(stack[0], function="other"),))
    assert sign((), stack).startswith("sigsegv-load-")

    def ended(*words: str) -> str:
        return signature_of(
            signal="exit 1", si_code="", stage="a", frames=(), stack=(), words=words
        )

    assert ended("KeyError: 'a'") == ended("KeyError: 'b'") != ended("OSError: a")


def test_own_frames_are_the_wheels() -> None:
    frames = (*ABORT, frame("f", WHEEL), *LOADING, *INTERPRETER)
    assert own_frames(frames) == (frame("f", WHEEL),)
