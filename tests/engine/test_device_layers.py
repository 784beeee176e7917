"""Row 5: files, dlopen, cuInit, count: how far the asking came, with code, name and reason."""

from __future__ import annotations

from typing import Any

import pytest

from freewheel.device.answer import Answer
from freewheel.device.files import Files, Library
from freewheel.device.layers import layers_of
from freewheel.device.record import Asked

LIBRARY = Library(path="/usr/lib/libcuda.so.1", release="535.1", by="loader cache")
NOTHING = Files(module_version=None, nodes=(), dxg=False, libraries=())
DRIVER = Files(module_version="535.1", nodes=("nvidia0",), dxg=False, libraries=(LIBRARY,))
OK = {"code": 0, "name": None, "text": None}
NO_DEVICE = {"code": 100, "name": "CUDA_ERROR_NO_DEVICE", "text": "no device is detected"}


def answered(**data: Any) -> Answer:
    return Answer(how=Asked.PROGRAM, data={"library": "/usr/lib/libcuda.so.1", **data})


@pytest.mark.parametrize(
    ("answer", "passed"),
    [
        (None, (None, None, None, None)),
        (answered(not_loaded="invalid ELF header"), (False, None, None, None)),
        (answered(missing="cuInit"), (False, None, None, None)),
        (answered(initialised=NO_DEVICE), (True, False, None, None)),
        (answered(initialised=OK, counted=NO_DEVICE), (True, True, False, None)),
        (answered(initialised=OK, counted=OK, count=0, devices=[]), (True, True, True, False)),
        (answered(initialised=OK, counted=OK, count=1, devices=[{}]), (True, True, True, True)),
        (answered(), (True, False, None, None)),
        (Answer(how=Asked.PROGRAM, step="dlopen", signal=11), (False, None, None, None)),
        (Answer(how=Asked.PROGRAM, step="cuDriverGetVersion"), (True, False, None, None)),
        (Answer(how=Asked.PROGRAM, step="cuInit", hung=True), (True, False, None, None)),
        (Answer(how=Asked.PROGRAM, step="cuDeviceGetCount"), (True, True, False, None)),
        (Answer(how=Asked.PROGRAM, step="nvmlInit", signal=11), (True, True, True, False)),
        (Answer(how=Asked.PROGRAM, step="start"), (None, None, None, None)),
        (Answer(how=Asked.FAILED, problems=("no exec bit",)), (None, None, None, None)),
    ],
)
@pytest.mark.parametrize("files", [NOTHING, DRIVER])
def test_row_5_layers(files: Files, answer: Answer | None, passed: tuple[bool | None, ...]) -> None:
    """The layer of files has no say in those behind it."""
    layers = layers_of(files, answer)
    assert [layer.layer for layer in layers] == ["files", "dlopen", "cuInit", "count", "devices"]
    assert tuple(layer.passed for layer in layers[1:]) == passed
    assert layers[0].passed == bool(files.libraries)
    assert all(layer.reason for layer in layers)


def test_a_layer_has_code_name_and_reason() -> None:
    files, dlopen, init, count, _ = layers_of(DRIVER, answered(initialised=NO_DEVICE))
    assert "/usr/lib/libcuda.so.1 (535.1, loader cache); /dev/nvidia0" in files.reason
    assert dlopen.reason == "/usr/lib/libcuda.so.1"
    assert (init.code, init.name) == (100, "CUDA_ERROR_NO_DEVICE")
    assert init.reason == "no device is detected"
    assert count.reason == "cuInit failed"
