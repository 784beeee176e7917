"""How far the asking came, layer by layer: a pure function over the files and the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from freewheel.device.answer import Answer, code_of, ending, number, text
from freewheel.device.files import Files
from freewheel.device.record import Asked, Layer

# The child's steps that belong to each layer, in its order.
_STEPS = {
    "dlopen": ("dlopen",),
    "cuInit": ("cuDriverGetVersion", "cuInit"),
    "count": ("cuDeviceGetCount",),
    "devices": ("nvmlInit", "devices", "contexts"),
}


def layers_of(files: Files, answer: Answer | None) -> tuple[Layer, ...]:
    """One layer after the other; those behind the first that failed were not reached."""
    if answer is None:
        asked = _unreached("there is no driver library to ask", list(_STEPS))
    elif answer.data is None:
        asked = _unfinished(answer)
    else:
        asked = _finished(answer.data)
    return (_files(files), *asked)


def _files(files: Files) -> Layer:
    found = [str(library) for library in files.libraries] or ["no libcuda.so.1"]
    found += [f"/dev/{node}" for node in files.nodes]
    found += ["/dev/dxg"] if files.dxg else []
    module = f"kernel module {files.module_version}" if files.module_version else "no kernel module"
    return Layer("files", passed=bool(files.libraries), reason="; ".join([*found, module]))


def _unreached(reason: str, names: list[str]) -> list[Layer]:
    return [Layer(name, None, reason) for name in names]


def _unfinished(answer: Answer) -> list[Layer]:
    """The layers of a child that died, hung or was never started."""
    names = list(_STEPS)
    at = next((name for name, steps in _STEPS.items() if answer.step in steps), None)
    if at is None:
        why = "; ".join(answer.problems) if answer.how is Asked.FAILED else ending(answer)
        return _unreached(f"it was not asked: {why}", names)
    how = f"no answer within {answer.seconds:.1f} s" if answer.hung else ending(answer)
    behind = names.index(at)
    passed = [Layer(name, passed=True, reason="passed") for name in names[:behind]]
    return [
        *passed,
        Layer(at, passed=False, reason=f"{how} in {answer.step}"),
        *_unreached(f"{at} failed", names[behind + 1 :]),
    ]


def _finished(data: Mapping[str, Any]) -> list[Layer]:
    opened = text(data.get("not_loaded"))
    if opened is None and "missing" in data:
        opened = f"no function {data['missing']}"
    dlopen = Layer(
        "dlopen", passed=opened is None, reason=opened or text(data.get("library")) or "loaded"
    )
    entries = data.get("devices")
    devices = len(entries) if isinstance(entries, list) else 0
    count = number(data.get("count"))
    rest = (
        _result("cuInit", data.get("initialised"), "initialised"),
        _result("count", data.get("counted"), f"{count} device{'' if count == 1 else 's'}"),
        Layer(
            "devices",
            passed=devices > 0,
            reason=f"{devices} described" if devices else "none to describe",
        ),
    )
    layers: list[Layer] = []
    failed = ""
    for layer in (dlopen, *rest):
        layers.append(Layer(layer.layer, None, f"{failed} failed") if failed else layer)
        failed = failed or ("" if layer.passed else layer.layer)
    return layers


def _result(layer: str, result: object, success: str) -> Layer:
    code = code_of(result)
    if code is None or not isinstance(result, dict):
        return Layer(layer, passed=False, reason="no result")
    name = text(result.get("name"))
    reason = success if code == 0 else text(result.get("text")) or f"returned {code}"
    return Layer(layer, passed=code == 0, reason=reason, code=code, name=name)
