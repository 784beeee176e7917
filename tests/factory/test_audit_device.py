"""Device code: for each rule a wheel that breaks it and one that does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.drivers.cubin import ZSTD, Entry, Kernel, container, cubin, images, packed, ptx
from tests.factory.auditmaker import Case, audited, finds, keeps, library
from tests.factory.wheelmaker import build_record
from wheelfab.audit import Severity

OURS = "freewheel/_kernels.so"
KERNELS = {"fw_a": Kernel(params=(8, 8), registers=40), "fw_b": Kernel(params=(16,))}
A = KERNELS["fw_a"]
PLAIN: dict[str, Any] = {"version": "0.1.0", "requires_dist": ()}
REAL = Path(__file__).parent / "data" / "scale.fatbin"  # see data/README.md
ARCHS = ("80", "86", "89", "90", "90+PTX")
RECORD = build_record("cu121-torch2.4", "0.1.0+cu121.torch2.4")
BOUND = {"device": {"archs": "8.0;9.0a"}}


def with_code(*containers: bytes, section: str = ".nv_fatbin", **switches: Any) -> dict[str, Any]:
    """Switches for one library with these containers."""
    data = b"".join(one + b"\0" * (-len(one) % 8) for one in containers)
    files = {OURS: library(sections={section: data})}
    return {"files": files, **PLAIN, **switches}


def code(archs: Sequence[str], **switches: Any) -> dict[str, Any]:
    """Switches for one library with the two kernels for ``archs``."""
    return with_code(images(KERNELS, archs), **switches)


def entry(arch: int, names: Iterable[str]) -> Entry:
    """A cubin with some of the kernels."""
    return Entry(arch=arch, payload=cubin(arch, {name: KERNELS[name] for name in names}))


UNEVEN = container([entry(80, ["fw_a", "fw_b"]), entry(90, ["fw_a"])])
LTO = Entry(arch=80, kind=8, payload=b"12345678")
CUDA: dict[str, Any] = {
    "version": "0.1.0+cu121.torch2.4",
    "requires_dist": ("torch>=2.4.1,<2.5",),
}

CASES = [
    Case(
        rule="device-readable",
        name="cut off",
        bad=with_code(images(KERNELS, ["80"])[:-8]),
        found="a container at",
        subject=OURS,
        good=code(["80"]),
    ),
    Case(
        rule="device-readable",
        name="a cubin for another arch than its entry says",
        bad=with_code(container([Entry(arch=90, payload=cubin(80, KERNELS))])),
        found="9.0: the entry says a cubin for 9.0, the image is for 8.0",
        good=with_code(REAL.read_bytes()),
    ),
    Case(
        rule="device-absent",
        name="B20: a CUDA wheel without device code",
        bad={"files": {OURS: library()}} | CUDA,
        found="a wheel for CUDA 12.1 without device code",
        good=code(["80"], **CUDA),
    ),
    Case(
        rule="device-absent",
        name="B20: by the policy",
        bad={"files": {OURS: library()}} | PLAIN,
        found="a wheel for CUDA without device code",
        good=code(["80"]),
        policy={"kind": "cuda-driver"},
    ),
    Case(
        rule="device-absent",
        name="B20: no library at all",
        bad=dict(CUDA),
        found="a wheel for CUDA 12.1 without device code",
        good={"version": "0.1.0", "requires_dist": ()},
    ),
    Case(
        rule="device-archs",
        name="B22: the suffix is lost",
        bad=code(["80", "90"]),
        found="none for 9.0a; code for 9.0, not asked for",
        subject=OURS,
        good=code(["80", "90a"]),
        policy=BOUND,
    ),
    Case(
        rule="device-archs",
        name="B02: less than the build record says",
        bad=code(ARCHS[:3], build=RECORD, **CUDA),
        found="none for 9.0, 9.0+PTX",
        good=code(ARCHS, build=RECORD, **CUDA),
    ),
    Case(
        rule="device-archs",
        name="B62: code of another cell",
        bad=code([*ARCHS, "100"], build=RECORD, **CUDA),
        found="code for 10.0, not asked for",
        good=code(ARCHS, build=RECORD, **CUDA),
    ),
    Case(
        rule="device-kernels",
        name="B23: a kernel for one arch alone",
        bad=with_code(UNEVEN),
        found="fw_b is not there for 9.0",
        severity=Severity.WARNING,
        good=code(["80", "90", "90+PTX"]),
    ),
    Case(
        rule="device-kernels",
        name="B23: a group of kernels that the record's archs lack",
        bad=with_code(images(KERNELS, ["80", "90a"]), images({"fw_c": KERNELS["fw_a"]}, ["80"])),
        found="fw_c is not there for 9.0a",
        good=with_code(images(KERNELS, ["80", "90a"]), images(KERNELS, ["80", "90a"])),
        policy=BOUND,
    ),
    Case(
        rule="device-kernels",
        name="B23: a source file that was compiled for fewer archs than another",
        bad=with_code(images(KERNELS, ["80", "90a"]), images({"fw_c": KERNELS["fw_a"]}, ["80"])),
        found="1 of 2 containers have nothing for a GPU that another is for: fw_c is there for none"
        " of 9.0",
        subject=OURS,
        severity=Severity.NOTE,
        good=with_code(
            images(KERNELS, ["80", "90a"]),
            images({"fw_c": KERNELS["fw_a"]}, ["80", "90"]),
            images({"fw_d": KERNELS["fw_a"]}, ["80+PTX"]),
            images({}, ["80"]),
        ),
    ),
    Case(
        rule="device-kernels-named",
        name="B20: not there",
        bad=code(["80", "90"]),
        found="no kernel other",
        good=with_code(images(KERNELS, ["80"]), images({"other": KERNELS["fw_a"]}, ["80"])),
        policy={"device": {"kernels": ["fw_*", "other"]}},
    ),
    Case(
        rule="device-kernels-named",
        name="B23: not there for an arch of another file",
        bad={
            "files": {
                OURS: library(sections={".nv_fatbin": images(KERNELS, ["80", "90a"])}),
                "freewheel/b.so": library(
                    sections={".nv_fatbin": images({"other": KERNELS["fw_a"]}, ["80"])}
                ),
            },
            **PLAIN,
        },
        found="other is not there for 9.0a",
        good=with_code(images(KERNELS, ["80", "90a"]), images({"other": A}, ["80", "90a"])),
        policy={"device": {"kernels": ["other"]}},
    ),
    Case(
        rule="device-kernels-named",
        name="B23: not there for an arch that the policy names",
        bad=code(["80"]),
        found="fw_a is not there for 9.0a",
        good=code(["80", "90a"]),
        policy={"device": {"archs": "8.0;9.0a", "kernels": ["fw_?"]}},
    ),
    Case(
        rule="device-empty",
        name="one container",
        bad=with_code(images(KERNELS, ["80"]), images({}, ["80"])),
        found="1 of 2 containers without a kernel, for 8.0",
        severity=Severity.NOTE,
        good=code(["80"]),
    ),
    Case(
        rule="device-empty",
        name="all of a file",
        bad=with_code(images({}, ["80", "90"])),
        found="1 of 1 containers without a kernel, for 8.0, 9.0",
        severity=Severity.WARNING,
        good=code(["80"]),
    ),
    Case(
        rule="device-empty",
        name="all of a file with declared archs",
        bad=with_code(images({}, ["80", "90a"])),
        found="1 of 1 containers",
        good=code(["80", "90a"]),
        policy=BOUND,
    ),
    Case(
        rule="device-linkable",
        name="relocatable code alone",
        bad=with_code(images(KERNELS, ["80"]), section="__nv_relfatbin"),
        found="of relocatable code that no driver loads, and nothing else",
        good=code(["80"]),
    ),
    Case(
        rule="device-linkable",
        name="LTO IR beside a cubin",
        bad=with_code(
            container([entry(80, ["fw_a"]), Entry(arch=80, kind=8, payload=b"12345678")])
        ),
        found="8 bytes of LTO IR that no driver loads",
        severity=Severity.WARNING,
        good=code(["80"]),
    ),
    Case(
        rule="device-ptx",
        name="PTX of a newer CUDA",
        bad=with_code(images(KERNELS, ["80", "80+PTX"], isa=(8, 5)), **CUDA),
        found="PTX 8.5, of CUDA 12.5",
        good=with_code(images(KERNELS, ["80", "80+PTX"], isa=(8, 1)), **CUDA),
    ),
    Case(
        rule="device-ptx",
        name="by the policy",
        bad=with_code(images(KERNELS, ["80", "80+PTX"], isa=(8, 1))),
        found="PTX 8.1, of CUDA 12.1",
        good=with_code(images(KERNELS, ["80", "80+PTX"], isa=(7, 8))),
        policy={"device": {"cuda": "11.8"}},
    ),
    Case(
        rule="device-arch-known",
        name="B67: renamed",
        bad=code(["101"]),
        found="10.1, which CUDA 13 and later call 11.0",
        severity=Severity.WARNING,
        good=code(["110"]),
    ),
    Case(
        rule="device-arch-known",
        name="B67: unknown",
        bad=code(["85"]),
        found="8.5, which no CUDA release known here compiles for",
        severity=Severity.WARNING,
        good=code(["86"]),
    ),
    Case(
        rule="device-gpus",
        name="B02: a new card",
        bad=code(["80", "90"]),
        found="nothing that runs on 12.0 (RTX PRO 6000, GeForce RTX 5090)",
        good=code(["80", "90+PTX"]),
        policy={"device": {"gpus": ["8.9", "12.0"]}},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_finds_what_it_is_for(case: Case, tmp_path: Path) -> None:
    finds(case, tmp_path)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_is_silent_about_a_wheel_that_keeps_it(case: Case, tmp_path: Path) -> None:
    keeps(case, tmp_path)


def test_an_image_too_large_to_expand_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wheelfab.audit.device._LARGEST", 64)
    found = audited(tmp_path, **code(["80"]))
    reasons = {each.reason for each in found.unchecked if each.rule == "device-readable"}
    assert all(reason.startswith("8.0: not expanded: ") for reason in reasons)
    assert reasons


def test_an_image_that_would_expand_too_far_is_not_expanded(tmp_path: Path) -> None:
    zeros = zstandard.ZstdCompressor().compress(bytes(32 << 20))
    made = Entry(arch=80, payload=zeros, flags=ZSTD, unpacked=32 << 20)
    found = audited(tmp_path, **with_code(container([made])))
    reasons = [each.reason for each in found.unchecked if each.rule == "device-readable"]
    assert reasons == [f"8.0: not expanded: {32 << 20} bytes"]


def test_the_json_has_each_kernels_resources_and_the_gpus(tmp_path: Path) -> None:
    text = Entry(arch=90, ptx=True, payload=ptx(90, KERNELS, isa=(8, 1)))
    made = with_code(container([entry(80, KERNELS), packed(text)]))
    facts = audited(tmp_path, **made).facts
    assert facts is not None
    device = facts.libraries[0].device
    assert device is not None
    assert device.targets == ("8.0", "9.0+PTX")
    assert (device.compression, device.ptx) == (("lz4", "none"), {"8.1": "12.1"})
    rows = [(one.name, one.container, one.loadable, one.targets) for one in device.kernels]
    assert rows == [(name, 0, True, ("8.0", "9.0+PTX")) for name in ("fw_a", "fw_b")]
    assert device.kernels[0].registers == (40, None)  # PTX takes nothing yet
    assert [one.stack for one in device.kernels] == [(0, None)] * 2
    assert [one.shared for one in device.kernels] == [(0, None)] * 2
    assert [one.local for one in device.kernels] == [(0, None)] * 2
    assert device.gpus["8.9"] == "cubin"
    assert device.gpus["12.0"] == "ptx"
    assert "7.5" not in device.gpus
    assert facts.gpus["9.0"] == "Hopper: H100, H200, GH200"


def test_the_json_has_the_kernels_of_relocatable_images_too(tmp_path: Path) -> None:
    made = container([entry(80, KERNELS)])
    sections = {".nv_fatbin": made, "__nv_relfatbin": made}
    facts = audited(tmp_path, files={OURS: library(sections=sections)}, **PLAIN).facts
    assert facts is not None
    device = facts.libraries[0].device
    assert device is not None
    kernels = [(one.name, one.container, one.loadable, one.targets) for one in device.kernels]
    loaded = [(name, 0, True, ("8.0",)) for name in ("fw_a", "fw_b")]
    assert kernels == [*loaded, *((name, 1, False, archs) for name, _, _, archs in loaded)]


def test_a_cubin_of_its_own_is_device_code_and_no_library_of_the_host(tmp_path: Path) -> None:
    files = {"freewheel/k.cubin": cubin(90, KERNELS, suffix="a")}
    found = audited(tmp_path, files=files, **PLAIN)
    assert found.facts is not None
    (library_,) = found.facts.libraries
    assert library_.link is None
    assert library_.device is not None
    assert library_.device.targets == ("9.0a",)
    assert not [each for each in found.findings if each.rule.startswith(("elf", "needs"))]


def test_a_broken_cubin_is_said_to_be_so(tmp_path: Path) -> None:
    broken = cubin(90, KERNELS)[:-64]
    found = audited(tmp_path, files={"freewheel/k.cubin": broken}, **PLAIN)
    assert "device-readable" in {each.rule for each in found.findings}
