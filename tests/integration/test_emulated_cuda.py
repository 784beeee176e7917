"""The installed CUDA wheel under a fake driver: its real images, its binding, its launches.

Each kernel that is launched is looked up in the image that the loader picked, checked against what
that image says of it, and computed by the same source compiled for fibers. Nothing here says how
the machine code behaves on a device.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.drivers import build as drivers
from tests.fibers import build as fibers
from wheelfab.drivers import DriverKind, make_driver

from .conftest import ROOT
from .sources import repository_with

OPERATIONS = "tests/installed/test_operations.py"
CLASSIC = """
[torch."2.13"]
run-on = ["2.13.0"]

[variants.cu121c]
cuda = "12.1"
torch = ["2.13"]
"""


@dataclass(frozen=True)
class Emulated:
    """An environment in which the installed freewheel finds a CUDA device."""

    driver: Path
    kernels: Path
    backend: Path
    log: Path
    site: Path | None = None  # a folder that holds another freewheel than the installed one

    def environment(self, devices: str, version: str = "12010") -> dict[str, str]:
        """The variables for ``devices`` (capabilities) under a driver of CUDA ``version``."""
        return {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(self.driver),
            "FREEWHEEL_TEST_CUDA": str(self.backend),
            "FAKECUDA_KERNELS": str(self.kernels),
            "FAKECUDA_DEVICES": devices,
            "FAKECUDA_VERSION": version,
            "FAKECUDA_LOG": str(self.log),
            "PYTHONPATH": os.pathsep.join(map(str, filter(None, (self.site, ROOT)))),
        }

    def test(self, *arguments: str, devices: str, version: str = "12010") -> int:
        """Run the operations' tests there; the number that passed, all of those that ran."""
        command = (sys.executable, "-m", "pytest", "-q", "-o", "pythonpath=.", OPERATIONS)
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", *arguments],
            cwd=ROOT,
            env=self.environment(devices, version),
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        found = re.search(r"(\d+) passed", done.stdout)
        assert found is not None
        return int(found[1])

    def run(self, code: str, *, devices: str, version: str = "12010") -> dict[str, str]:
        """Run ``code`` there; it fills ``result``."""
        backend = str(self.backend)
        start = (
            "import json\nfrom tests.drivers.host_cuda import HostCuda\n"
            f"host = HostCuda({backend!r})\n"
            "import torch, freewheel\nfrom freewheel import ops\nresult = {}\n"
        )
        command = [sys.executable, "-c", f"{start}{code}\nprint('RESULT', json.dumps(result))"]
        done = subprocess.run(
            command,
            env=self.environment(devices, version),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        answer: dict[str, str] = json.loads(done.stdout.rpartition("RESULT ")[2])
        return answer


@pytest.fixture
def emulated(tmp_path: Path, pytestconfig: pytest.Config) -> Emulated:
    """The libraries of the emulation, compiled once and kept in pytest's cache."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    cache = getattr(pytestconfig, "cache", None)
    folder = Path(cache.mkdir("drivers")) if cache else tmp_path
    return Emulated(
        driver=make_driver(DriverKind.FAKE, folder),
        kernels=fibers.build(folder / "fibers"),
        backend=drivers.build_host_cuda(folder, Path(spec.origin).parent),
        log=tmp_path / "fakecuda.log",
    )


def launched(log: Path) -> set[str]:
    """The kernels that the fake driver was asked to launch."""
    return set(re.findall(r"launched (fw_\w+) on", log.read_text()))


def test_every_operation_is_right_on_the_device(emulated: Emulated) -> None:
    assert emulated.test(devices="8.0") > 200
    names = launched(emulated.log)
    operations = {re.sub(r"_(?:\d+_)?(?:f32|f16|bf16)$", "", name) for name in names}
    assert operations == {
        "fw_rms_norm",
        "fw_fused_add_rms_norm",
        "fw_silu_and_mul",
        "fw_rotary_embedding",
        "fw_reshape_and_cache",
        "fw_paged_attention",
        "fw_paged_attention_reduce",
    }


def test_the_classic_binding_is_as_right(emulated: Emulated, tmp_path: Path) -> None:
    repository = repository_with(tmp_path / "repository", CLASSIC)
    (result,) = repository.json("build", "cu121c")
    with ZipFile(result["wheel"]) as archive:
        archive.extractall(tmp_path / "site")
    classic = replace(emulated, site=tmp_path / "site")
    code = "result['abi'] = freewheel.build()['torch']['abi']"
    assert classic.run(code, devices="8.0") == {"abi": "classic"}
    assert classic.test(devices="8.0") > 200
    assert "fw_paged_attention_reduce_bf16" in launched(emulated.log)


@pytest.mark.parametrize(
    ("devices", "version"),
    [("8.6", "12010"), ("8.9", "12010"), ("9.0", "12010"), ("12.0", "12080")],
    ids=["cubin-8.6", "cubin-8.9", "cubin-9.0", "ptx-12.0"],
)
def test_each_image_takes_the_same_launches(emulated: Emulated, devices: str, version: str) -> None:
    chosen = "test_rms_norm or test_silu_and_mul or test_reshape_and_cache or of_groups"
    assert emulated.test("-k", chosen, devices=devices, version=version) > 60


def test_a_device_that_no_image_fits_is_told_what_to_install(emulated: Emulated) -> None:
    code = """
x = torch.ones(2, 4).to("cuda")
try:
    ops.rms_norm(x, torch.ones(4).to("cuda"))
except RuntimeError as error:
    result["error"] = str(error)
"""
    error = emulated.run(code, devices="7.5")["error"]
    assert "7.5" in error
    assert "8.0 8.6 8.9 9.0 9.0+PTX" in error
    assert "install" in error


def test_numbers_out_of_range_raise_nothing_and_are_seen_in_the_result(emulated: Emulated) -> None:
    """As the docstrings of ``freewheel.ops`` say; on the CPU each is an error."""
    code = """
def there(*values, dtype=None):
    return torch.tensor(values, dtype=dtype).to("cuda")
heads = torch.ones(2, 4, 64)
keys, values = torch.zeros(2, 2, 16, 4, 64).to("cuda").unbind()
rows = heads.to("cuda")
ops.reshape_and_cache(rows, rows.clone(), keys, values, there(3, 32))
result["written"] = int(keys.cpu().count_nonzero())
table = there([0], [2], dtype=torch.int32)
lengths, starts = there(1, 1, dtype=torch.int32), there(0, 1, 2, dtype=torch.int32)
out = ops.paged_attention(rows, keys, values, table, lengths, starts, 0.125, longest=1)
result["attended"] = out.cpu().isnan().float().mean((1, 2)).tolist()
query, key = heads.to("cuda"), heads.to("cuda")
ops.rotary_embedding(there(0, 10), query, key, torch.ones(10, 32).to("cuda"))
result["rotated"] = query.cpu().isnan().float().mean((1, 2)).tolist()
"""
    answer: dict[str, object] = {**emulated.run(code, devices="8.0")}
    assert answer == {"written": 4 * 64, "attended": [0.0, 1.0], "rotated": [0.0, 0.5]}


def test_a_launch_is_on_torchs_current_stream_and_device(emulated: Emulated) -> None:
    code = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
x = torch.ones(2, 4).to("cuda:1")
ops.rms_norm(x, torch.ones(4).to("cuda:1"))
context, stream = ctypes.c_void_p(), ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1) == 0
assert driver.cuCtxPushCurrent_v2(context) == 0
assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
assert driver.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
host.set_stream(stream.value, device=1)
ops.rms_norm(x, torch.ones(4).to("cuda:1"))
result["stream"] = hex(stream.value)
result["asked"] = str(host.stream_requests())
"""
    answer = emulated.run(code, devices="8.0,9.0")
    assert int(answer["asked"]) >= 2
    launches = re.findall(r"launched \S+ on (device \d+, stream \S+)", emulated.log.read_text())
    assert launches == ["device 1, stream 0", f"device 1, stream {answer['stream']}"]


def test_warm_up_loads_all_that_a_later_launch_needs(emulated: Emulated) -> None:
    code = """
freewheel.warm_up(0)
x = torch.ones(2, 4).to("cuda")
ops.rms_norm(x, torch.ones(4).to("cuda"))
"""
    emulated.run(code, devices="8.0")
    calls = [line.split()[-1] for line in emulated.log.read_text().splitlines()]
    launch = calls.index("cuLaunchKernel")
    loading = {"cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleGetFunction"}
    assert loading & set(calls[:launch])
    assert not loading & set(calls[launch:])
