"""Hosts for tests: a bare machine, changed by keywords."""

from __future__ import annotations

from typing import Any

from wheelfab.host import (
    DEFAULT_BASE,
    DriverPlace,
    Expectation,
    Host,
    HostDriver,
    HostImage,
    TorchChoice,
    Way,
)

_EXPECTED = (
    *("status", "without_code", "without_ptx", "forked", "says", "images", "error", "error_for"),
)


def host(name: str = "bare", **values: Any) -> Host:
    """A host; what it is expected to answer is given beside what it is made of."""
    said = {key: values.pop(key) for key in _EXPECTED if key in values}
    status = said.get("status", "cuda_unavailable")
    answer: dict[str, Any] = {
        "status": status,
        "without_code": status,
        "without_ptx": status,
        "forked": "",
        "says": (),
        "images": None,
        "error": (),
        "error_for": None,
    }
    made: dict[str, Any] = {
        "name": name,
        "group": name,
        "help": "no driver",
        "base": DEFAULT_BASE,
        "image": HostImage.CPU,
        "driver": HostDriver.NONE,
        "driver_place": DriverPlace.PATH,
        "driver_release": None,
        "nvml": False,
        "pollution": (),
        "environment": {},
        "environment_after": (),
        "files": {},
        "programs": {},
        "options": (),
        "python": (),
        "way": Way.PLAIN,
        "torch": TorchChoice.OWN,
        "cpu": None,
        "emulated": False,
        "variants": (),
        "count": None,
        "at_once": 1,
        "state_limit": 30.0,
    }
    return Host(**{**made, **values}, expect=Expectation(**{**answer, **said}))
