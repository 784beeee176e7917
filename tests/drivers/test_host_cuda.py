"""The host-CUDA backend: a CPU build of torch with a CUDA device, for the bindings' CUDA branch."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.drivers import build
from tests.drivers.child import ROOT


def cpu_torch() -> Path | None:
    """The folder of a CPU build of torch in this environment, found without importing it."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent
    return None if (folder / "lib" / "libtorch_cuda.so").exists() else folder


pytestmark = pytest.mark.skipif(
    cpu_torch() is None, reason="needs a CPU build of torch in the tests' own environment"
)


TENSORS = """
x = torch.randn(4, 6)
y = x.to("cuda")
views = [y.t(), y[1:3, ::2], y.view(6, 4), y.reshape(2, 12), y.flatten()]
same = [x.t(), x[1:3, ::2], x.view(6, 4), x.reshape(2, 12), x.flatten()]
y[0].fill_(3)
x[0].fill_(3)
result = {
    "device": str(y.device),
    "views": all(torch.equal(a.cpu(), b) for a, b in zip(views, same)),
    "on": all(view.device == y.device for view in views),
    "sum": torch.equal((y + 1).cpu(), x + 1) and (y * 2).is_cuda,
    "item": abs(y.sum().item() - x.sum().item()) < 1e-4,
    "fresh": bool(torch.empty(5, device="cuda", dtype=torch.bfloat16).cpu().isnan().all()),
    "second": str(torch.zeros(2, device="cuda:1").device),
}
"""

OPERATIONS = """
library = torch.library.Library("hosted", "DEF")
library.define("where(Tensor x) -> Tensor")
library.define("nowhere(Tensor x) -> Tensor")
library.impl("where", lambda x: x + 1, "CPU")
library.impl("where", lambda x: x + 2, "CUDA")
library.impl("nowhere", lambda x: x, "CPU")
x = torch.zeros(2)
try:
    torch.ops.hosted.nowhere(x.to("cuda"))
    missing = ""
except NotImplementedError as error:
    missing = str(error)
where = [torch.ops.hosted.where(t).cpu().tolist() for t in (x, x.to("cuda"))]
result = [where, missing.splitlines()[0]]
"""

STREAM = """
library = ctypes.CDLL("libtorch_cuda.so", mode=os.RTLD_LAZY | os.RTLD_NOLOAD)
def ask(device):
    stream = ctypes.c_void_p(1)
    return [library.aoti_torch_get_current_cuda_stream(device, ctypes.byref(stream)), stream.value]
first = ask(0)
host.set_stream(0x1234)
result = [first, ask(0), ask(1), ask(2)[0], host.stream_requests()]
"""

GUARD = """
core = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
guard = ctypes.c_void_p()
made = core.aoti_torch_create_device_guard(1, ctypes.byref(guard))
index = ctypes.c_int32(-1)
core.aoti_torch_get_current_device_index(ctypes.byref(index))
inside = index.value
core.aoti_torch_delete_device_guard(guard)
core.aoti_torch_get_current_device_index(ctypes.byref(index))
result = [str(torch.accelerator.current_accelerator()), made, inside, index.value]
"""


@pytest.fixture(scope="module")
def answers(build_folder: Path) -> dict[str, Any]:
    """What each piece above leaves in ``result``: torch is imported once for all of them."""
    torch = cpu_torch()
    assert torch is not None
    backend = build.build_host_cuda(build_folder, torch)
    start = (
        "import json, os, ctypes\nfrom tests.drivers.host_cuda import HostCuda\n"
        f"host, answers = HostCuda({str(backend)!r}), {{}}\nimport torch\n"
    )
    pieces = {"tensors": TENSORS, "operations": OPERATIONS, "stream": STREAM, "guard": GUARD}
    code = "".join(f"{text}answers[{name!r}] = result\n" for name, text in pieces.items())
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": str(ROOT),
        "FAKECUDA_DEVICES": "8.0,9.0",
    }
    command = [sys.executable, "-c", f"{start}{code}\nprint('RESULT', json.dumps(answers))"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.rpartition("RESULT ")[2])
    return found


def test_tensors_live_on_the_device_and_come_back(answers: dict[str, Any]) -> None:
    assert answers["tensors"] == {
        "device": "cuda:0", "views": True, "on": True, "sum": True, "item": True, "fresh": True,
        "second": "cuda:1",
    }  # fmt: skip


def test_operations_go_to_their_cuda_implementation(answers: dict[str, Any]) -> None:
    values, missing = answers["operations"]
    assert values == [[1, 1], [2, 2]]
    assert missing == "hosted::nowhere has no implementation for device cuda"


def test_the_stream_is_found_where_a_binding_looks_for_it(answers: dict[str, Any]) -> None:
    assert answers["stream"] == [[0, None], [0, 0x1234], [0, None], 1, 4]


def test_the_stable_abi_finds_a_device_to_guard(answers: dict[str, Any]) -> None:
    assert answers["guard"] == ["cuda", 0, 1, 0]
