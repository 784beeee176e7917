"""The bill of materials: valid by CycloneDX's own schema, complete, and equal for equal records."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cyclonedx.validation.json import JsonStrictValidator

from wheelfab.sbom import SCHEMA, make_sbom

RECORD: dict[str, Any] = {
    "project": "demo",
    "version": "0.1.0+cu121.torch2.10",
    "plan": "f" * 64,
    "epoch": 1_700_000_000,
    "cell": "cu121-torch2.10",
    "profile": "release",
    "commit": "c" * 40,
    "libraries": {"_kernels.so": "a" * 64, "_torch.so": "b" * 64},
    "torch": {"headers": "2.13.0+cpu", "sha256": "c" * 64},
    "compilers": {
        "host": {"version": "12.2.0", "cc1plus_sha256": "1" * 64},
        "device": {"wheels": {"nvidia-cuda-nvrtc-cu12 12.1.105": "d" * 64}},
    },
    "tools": {"cmake": f"4.4.5 {'e' * 64}", "ninja": "1.13.2"},
}


def told(record: dict[str, Any]) -> dict[str, Any]:
    """The bill of ``record``, read."""
    bill: dict[str, Any] = json.loads(make_sbom(record))
    return bill


@pytest.mark.parametrize(
    "changes",
    [{}, {"commit": None, "libraries": {}}, {"compilers": {**RECORD["compilers"], "device": None}}],
)
def test_it_is_valid_by_the_schema(changes: dict[str, Any]) -> None:
    text = make_sbom({**RECORD, **changes}).decode()
    assert JsonStrictValidator(SCHEMA).validate_str(text) is None


def test_the_validator_would_find_a_fault() -> None:
    broken = {**told(RECORD), "components": [{"type": "nothing"}]}
    assert JsonStrictValidator(SCHEMA).validate_str(json.dumps(broken)) is not None


def test_equal_records_give_equal_bytes_without_a_clock_or_chance() -> None:
    assert make_sbom(RECORD) == make_sbom(RECORD)
    bill = told(RECORD)
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"  # the commit's
    assert bill["serialNumber"] != told({**RECORD, "plan": "0" * 64})["serialNumber"]


def test_all_parts_are_in_it_with_their_digests() -> None:
    bill = told(RECORD)
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/demo@0.1.0%2Bcu121.torch2.10"
    parts = {
        part["bom-ref"]: [item["content"] for item in part.get("hashes", [])]
        for part in bill["components"]
    }
    assert parts == {
        "build-tool:cmake@4.4.5": ["e" * 64],
        "build-tool:ninja@1.13.2": [],
        "bundled:_kernels.so": ["a" * 64],
        "bundled:_torch.so": ["b" * 64],
        "compiled-against:torch@2.13.0+cpu": ["c" * 64],
        "device-toolchain:nvidia-cuda-nvrtc-cu12@12.1.105": ["d" * 64],
        "host-compiler:g++@12.2.0": ["1" * 64],
    }
    (own,) = [need for need in bill["dependencies"] if need["ref"] == "demo@0.1.0+cu121.torch2.10"]
    assert sorted(own["dependsOn"]) == sorted(parts)
