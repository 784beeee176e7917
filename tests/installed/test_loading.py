"""What loading does to a process: what it imports, maps, starts, and says when it cannot."""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import freewheel

PACKAGE = Path(freewheel.__file__).parent
LEVELS = ("x86-64-v2", "avx2", "avx512")


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter with this environment."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


def output(code: str, **environment: str) -> Any:
    """The JSON value that ``code`` prints."""
    done = python(code, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def best_isa() -> int:
    """The place in LEVELS of the best instruction set here."""
    return LEVELS.index(freewheel.ops.cpu_isa())


def test_import_is_light() -> None:
    """Neither torch nor a native library comes with the package or with ``_C``."""
    loaded = output(
        "import sys, json, freewheel, freewheel._C; freewheel.build()\n"
        "maps = open('/proc/self/maps').read()\n"
        "print(json.dumps(['torch' in sys.modules, '_kernels.so' in maps, 'libcuda' in maps]))"
    )
    assert loaded == [False, False, False]


def test_one_openmp_and_no_driver() -> None:
    """After an operation on all threads exactly one libgomp is mapped, and no CUDA library."""
    mapped = output(
        "import json, torch, freewheel\n"
        "freewheel.ops.rms_norm(torch.ones(4096, 4096), torch.ones(4096))\n"
        "maps = {line.split()[-1] for line in open('/proc/self/maps') if '.so' in line}\n"
        "print(json.dumps(sorted(m.rsplit('/', 1)[-1] for m in maps)))"
    )
    assert len([name for name in mapped if name.startswith(("libgomp", "libomp", "libiomp"))]) == 1
    assert [name for name in mapped if name.startswith("libcuda.")] == []


THREADS = """
import ctypes, json, threading, time
import torch, freewheel
from pathlib import Path
freewheel.load()
folder = Path(freewheel.__file__).parent
Body = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
For = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, Body, ctypes.c_void_p)
class Exec(ctypes.Structure):
    _fields_ = [("device", ctypes.c_int32), ("reserved", ctypes.c_int32),
                ("stream", ctypes.c_void_p), ("parallel_for", For)]
Norm = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(Exec), ctypes.c_void_p)
seen = []
@Body
def body(begin, end, context):
    seen.append((threading.get_native_id(), begin, end))
    time.sleep(0.05)
@Norm
def norm(exec, args):
    exec.contents.parallel_for(0, 1000, 1, body, None)
    return 0
kernels = ctypes.CDLL(str(folder / "_kernels.so")).freewheel_kernels
kernels.restype = ctypes.POINTER(ctypes.c_int64 * 14)
table = (ctypes.c_int64 * 14)(*kernels().contents)
table[2] = ctypes.cast(norm, ctypes.c_void_p).value
bind = ctypes.CDLL(str(folder / "_torch.so")).freewheel_bind
bind.restype = ctypes.c_char_p
assert bind(table) is None
torch.set_num_threads(2)
x = torch.ones(2, 2)
torch.ops.freewheel.rms_norm(x, x, torch.ones(2), 0.0)
print(json.dumps(seen))
"""


def test_parallel_for_uses_more_than_one_thread() -> None:
    """The binding's loop runs its pieces on torch's pool; the pieces cover the range once.

    ``at::parallel_for`` compiled without OpenMP is silently sequential.
    """
    pieces = output(THREADS)
    assert len({thread for thread, _, _ in pieces}) == 2
    spans = sorted((begin, end) for _, begin, end in pieces)
    assert spans[0][0] == 0
    assert spans[-1][1] == 1000
    assert all(left[1] == right[0] for left, right in pairwise(spans))


def test_bind_refuses_another_table() -> None:
    """Another interface version or size is refused with a sentence, and changes nothing."""
    freewheel.load()
    bind = ctypes.CDLL(str(PACKAGE / "_torch.so")).freewheel_bind
    bind.restype = ctypes.c_char_p
    size = 8 * 14
    for table, offered in (
        ((size, 99), f"version 99 ({size} bytes)"),
        ((8, 2), "version 2 (8 bytes)"),
    ):
        assert bind((ctypes.c_int64 * 14)(*table)).decode() == (
            f"_kernels offers interface {offered}, but _torch was built for version 2 "
            f"({size} bytes): the two come from different builds"
        )
    assert bind(None) == b"_kernels gave no table"
    assert freewheel.ops.rms_norm(torch.ones(1, 2), torch.ones(2)).shape == (1, 2)


@pytest.mark.parametrize("level", LEVELS)
def test_forced_isa(level: str) -> None:
    """Each instruction set passes the same tests; one that is missing is an error that says so."""
    code = "import json, freewheel; print(json.dumps(freewheel.ops.cpu_isa()))"
    if LEVELS.index(level) > best_isa():
        done = python(code, FREEWHEEL_ISA=level)
        assert done.returncode == 1
        best = freewheel.ops.cpu_isa()
        assert (
            f"FREEWHEEL_ISA={level}: this machine lacks it; the best here is {best}" in done.stderr
        )
        return
    assert output(code, FREEWHEEL_ISA=level) == level
    assert (
        output(
            "import json, freewheel._C as c; print(json.dumps(c.kernels()))", FREEWHEEL_ISA=level
        )["cpu_isa"]
        == level
    )
    if level == freewheel.ops.cpu_isa():
        return  # what this session tests anyway
    tests = Path(__file__).with_name("test_operations.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(tests)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "FREEWHEEL_ISA": level, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stdout[-2000:]


def test_unknown_isa() -> None:
    """A name that does not exist is refused with those that do."""
    done = python("import freewheel; freewheel.ops.cpu_isa()", FREEWHEEL_ISA="neon")
    assert done.returncode == 1
    assert (
        "FREEWHEEL_ISA=neon: no such instruction set in this library; "
        "it has x86-64-v2, avx2, avx512" in done.stderr
    )


def test_cuda_without_a_driver() -> None:
    """``warm_up`` of a CUDA device that cannot be used says why; the CPU goes on."""
    with pytest.raises(RuntimeError) as raised:
        freewheel.warm_up("cuda:0")
    assert len(str(raised.value)) > 20
    freewheel.warm_up("cpu")
    with pytest.raises(RuntimeError, match="device must be a CUDA device's number"):
        freewheel.warm_up(-5)
    with pytest.raises(RuntimeError, match="device must be cpu or cuda, not meta"):
        freewheel.warm_up("meta")


def test_record_and_versions() -> None:
    """Package, record, extension and table agree."""
    from freewheel import _C

    record = json.loads(_C.build_record())
    assert record == freewheel.build()
    assert freewheel.__version__ == record["version"]
    kernels = _C.kernels()
    assert kernels["interface_version"] == _C.version()["interface_version"]
    assert kernels["archs"].split() == record["archs"]
    assert (record["variant"] == "cpu") == (kernels["archs"] == "")


def test_stub_matches_the_extension() -> None:
    """``_C.pyi`` names exactly what ``_C`` has, with the same parameters and result keys."""
    from freewheel import _C

    tree = ast.parse((PACKAGE / "_C.pyi").read_text(encoding="utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    public = {name for name in dir(_C) if not name.startswith("__")}
    assert public == set(functions)
    for name, node in functions.items():
        assert node.args.args == []
        assert getattr(_C, name).__text_signature__ == "($module, /)"
    keys = {
        node.name: {
            ast.unparse(item.target) for item in node.body if isinstance(item, ast.AnnAssign)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    assert set(_C.version()) == keys["_Version"]
    assert set(_C.kernels()) == keys["_Kernels"]
    assert set(_C.instruction_sets()) == keys["_InstructionSets"]
    assert set(_C.limits()) == keys["_Limits"]


def test_extension_in_a_second_interpreter() -> None:
    """``_C`` loads in a sub-interpreter, with a GIL of its own where Python has that."""
    code = f"import sys; sys.path[:] = {sys.path!r}; import freewheel._C as c; c.build_record()"
    if importlib.util.find_spec("_interpreters") is not None:
        program = (
            f"import _interpreters as i; r = i.run_string(i.create(), {code!r}); assert not r, r"
        )
    else:
        program = f"import _xxsubinterpreters as i; i.run_string(i.create(), {code!r})"
    done = python(program)
    assert done.returncode == 0, done.stderr
