"""The image reader: which image a device and a driver get, and what a damaged container gives."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.drivers import build, cubin
from tests.drivers.abi import Harness
from tests.drivers.cubin import Entry, Kernel

KERNELS = {"fw_rms_norm_f32": Kernel(params=[64])}
FREEWHEEL = ("80", "86", "89", "90", "90+PTX")


@pytest.fixture(scope="module")
def reader(build_folder: Path) -> Harness:
    """The image reader, in this process: it asks no driver."""
    return Harness(build.build_kernels(build_folder, build.Images(containers={})))


@pytest.mark.parametrize(
    ("archs", "capability", "chosen"),
    [
        # a cubin of the same major, the highest not above the device
        (FREEWHEEL, (8, 0), "8.0"),
        (FREEWHEEL, (8, 6), "8.6"),
        (FREEWHEEL, (8, 7), "8.6"),
        (FREEWHEEL, (8, 9), "8.9"),
        (FREEWHEEL, (9, 0), "9.0"),
        (("86", "80"), (8, 9), "8.6"),
        # never a cubin of another major, in either direction
        (FREEWHEEL, (7, 5), ""),
        (("80", "86"), (9, 0), ""),
        (("90",), (10, 0), ""),
        (("90",), (8, 9), ""),
        (("86",), (8, 0), ""),
        # PTX where no cubin fits, from below only
        (FREEWHEEL, (10, 0), "9.0+PTX"),
        (FREEWHEEL, (12, 0), "9.0+PTX"),
        (("80+PTX", "90+PTX"), (12, 0), "9.0+PTX"),
        (("80+PTX", "90+PTX"), (8, 6), "8.0+PTX"),
        (("90+PTX",), (8, 9), ""),
        # a cubin before a newer PTX
        (("80", "86+PTX"), (8, 6), "8.0"),
        # suffix a: its capability and nothing else, before the plain one there
        (("90a",), (9, 0), "9.0a"),
        (("90", "90a"), (9, 0), "9.0a"),
        (("90a", "90"), (9, 0), "9.0a"),
        (("100a",), (10, 3), ""),
        (("80", "90a+PTX"), (10, 0), ""),
        (("80+PTX", "90a+PTX"), (9, 0), "9.0a+PTX"),
        (("80+PTX", "90a+PTX"), (10, 0), "8.0+PTX"),
        # suffix f: its major, from its minor on
        (("100f",), (10, 0), "10.0f"),
        (("100f",), (10, 3), "10.0f"),
        (("103f",), (10, 0), ""),
        (("100f",), (12, 0), ""),
        (("100f", "103a"), (10, 3), "10.3a"),
        (("100f", "103"), (10, 3), "10.3"),
        (("100f+PTX",), (10, 3), "10.0f+PTX"),
        (("100f+PTX",), (12, 0), ""),
        # numbers of three digits are not cut
        (("120",), (12, 1), "12.0"),
        (("121",), (12, 0), ""),
        ((), (9, 0), ""),
    ],
)
def test_choice(
    reader: Harness, archs: tuple[str, ...], capability: tuple[int, int], chosen: str
) -> None:
    container = cubin.images(KERNELS, archs)
    assert reader.choose(container, capability, 13000).name == chosen


@pytest.mark.parametrize(
    ("isa", "release"),
    [
        ((7, 0), 11000), ((7, 8), 11080), ((8, 0), 12000), ((8, 1), 12010), ((8, 2), 12020),
        ((8, 3), 12030), ((8, 4), 12040), ((8, 5), 12050), ((8, 6), 12070), ((8, 7), 12080),
        ((8, 8), 12090), ((9, 0), 13000), ((9, 1), 13010), ((9, 2), 13020), ((9, 3), 13030),
        ((9, 4), 13040),
    ],
)  # fmt: skip
def test_ptx_needs_the_driver_of_its_release(
    reader: Harness, isa: tuple[int, int], release: int
) -> None:
    container = cubin.images(KERNELS, ["80+PTX"], isa=isa)
    assert reader.choose(container, (9, 0), release).name == "8.0+PTX"
    older = reader.choose(container, (9, 0), release - 10)
    assert older.name == ""
    assert f"need {release // 1000}.{release % 1000 // 10} or newer" in older.error


def test_ptx_of_an_unknown_isa_is_left_to_a_driver_newer_than_all_known(reader: Harness) -> None:
    container = cubin.images(KERNELS, ["80+PTX"], isa=(9, 9))
    assert reader.choose(container, (9, 0), 13040).name == ""
    assert reader.choose(container, (9, 0), 13050).name == "8.0+PTX"


def test_minor_version_compatibility_reaches_cubins_but_not_ptx(reader: Harness) -> None:
    container = cubin.images(KERNELS, FREEWHEEL)  # by 12.1
    assert reader.choose(container, (9, 0), 12000).name == "9.0"
    assert reader.choose(container, (10, 0), 12000).name == ""
    assert reader.choose(container, (9, 0), 11080).name == ""  # below the family's floor


def test_a_cubin_of_cuda_13_needs_a_driver_of_13(reader: Harness) -> None:
    payload = cubin.cubin(90, KERNELS, abi=8, toolkit=1)
    container = cubin.container([Entry(arch=90, payload=payload)])
    assert reader.choose(container, (9, 0), 13000).name == "9.0"
    older = reader.choose(container, (9, 0), 12090)
    assert "the driver implements CUDA 12.9 and those that fit need 13.0 or newer" in older.error


def test_the_newest_usable_ptx_of_an_arch_is_taken(reader: Harness) -> None:
    entries = [
        Entry(arch=80, ptx=True, isa=isa, payload=cubin.ptx(80, KERNELS, isa=isa))
        for isa in ((8, 0), (8, 4), (8, 8))
    ]
    image = reader.choose(cubin.container(entries), (9, 0), 12050).image
    assert b".version 8.4" in image


def test_lto_and_unknown_kinds_are_left_out(reader: Harness) -> None:
    payload = cubin.cubin(80, KERNELS)
    entries = [Entry(arch=80, kind=kind, payload=payload) for kind in (4, 8, 16, 64)]
    chosen = reader.choose(cubin.container(entries), (8, 0), 12010)
    assert (chosen.name, chosen.archs, chosen.error.count("archs inside: none")) == ("", "", 1)


@pytest.mark.parametrize("header", [64, 72, 80, 88, 112])
def test_headers_of_every_size(reader: Harness, header: int) -> None:
    payload = cubin.cubin(80, KERNELS)
    container = cubin.container([Entry(arch=80, payload=payload, header=header)])
    assert reader.choose(container, (8, 0), 12010).image == payload + b"\0"


def test_only_the_chosen_cubin_is_handed_over(reader: Harness) -> None:
    container = cubin.images(KERNELS, FREEWHEEL)
    image = reader.choose(container, (8, 9), 12010).image
    assert image == cubin.cubin(89, KERNELS) + b"\0"


def test_ptx_text_ends_with_a_zero(reader: Harness) -> None:
    text = cubin.ptx(90, KERNELS, isa=(8, 1))
    text += b"\n" * (-len(text) % 8)  # no padding in the container whose zero could be meant
    container = cubin.container([Entry(arch=90, ptx=True, payload=text)])
    assert reader.choose(container, (10, 0), 12010).image == text + b"\0"


def test_a_compressed_entry_becomes_a_container_of_one(reader: Harness) -> None:
    entries = [
        Entry(arch=arch, ptx=True, payload=cubin.ptx(arch, KERNELS, isa=(8, 1)))
        for arch in (80, 90)
    ]
    packed = [cubin.packed(entry) for entry in entries]
    image = reader.choose(cubin.container(packed), (10, 0), 12010).image
    assert image == cubin.container([packed[1]])


@pytest.mark.parametrize(
    ("archs", "text"),
    [
        (FREEWHEEL, "8.0 8.6 8.9 9.0 9.0+PTX"),
        (("90+PTX", "120", "90a", "90", "100f", "80"), "8.0 9.0 9.0+PTX 9.0a 10.0f 12.0"),
        (("80", "80"), "8.0"),
        ((), ""),
    ],
)
def test_arch_list(reader: Harness, archs: tuple[str, ...], text: str) -> None:
    assert reader.choose(cubin.images(KERNELS, archs), (8, 0), 12010).archs == text


def test_no_image_fits_says_what_to_install(reader: Harness) -> None:
    none = reader.choose(cubin.images(KERNELS, ("80", "90a")), (12, 0), 13000)
    assert none.error == (
        "CUDA device 0 (Fake GPU, capability 12.0) can run no image of attention; archs inside: "
        "8.0 9.0a; install a freewheel variant whose archs include 12.0 or that carries PTX"
    )
    driver = reader.choose(cubin.images(KERNELS, FREEWHEEL), (12, 0), 12000)
    assert driver.error == (
        "CUDA device 0 (Fake GPU, capability 12.0) can run no image of attention; archs inside: "
        "8.0 8.6 8.9 9.0 9.0+PTX; the driver implements CUDA 12.0 and those that fit need 12.1 or "
        "newer: update the NVIDIA driver, or install a freewheel variant of CUDA 12.0 or older "
        "whose archs include 12.0 or that carries PTX"
    )


GOOD = cubin.images(KERNELS, ("80", "90+PTX"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:8], "shorter than its header"),
        (lambda _: b"\0" * 16, "wrong magic number"),
        (lambda data: data[:100], "the container runs past its end"),
        (lambda data: data[:8] + struct.pack("<Q", 2**64 - 8) + data[16:], "runs past its end"),
        (lambda data: data[:6] + b"\xff\xff" + data[8:], "runs past its end"),
        (lambda data: data[:20] + struct.pack("<I", 8) + data[24:], "header has 8 bytes"),
        (lambda data: data[:20] + struct.pack("<I", 2**31) + data[24:], "header has"),
        (lambda data: data[:24] + struct.pack("<Q", 2**64 - 64) + data[32:], "an entry runs past"),
        (lambda data: data[:8] + struct.pack("<Q", 24) + data[16:40], "header runs past"),
        (lambda data: data[:44] + struct.pack("<I", 2**31) + data[48:], "impossible arch"),
        (lambda data: data + b"\0" * 8 + b"x", "something follows"),
        (lambda _: cubin.container([Entry(arch=80)] * 257), "more than 256 entries"),
    ],
)
def test_malformed(reader: Harness, damage: object, reason: str) -> None:
    chosen = reader.choose(damage(GOOD), (8, 0), 12010)  # type: ignore[operator]
    assert chosen.error.startswith("malformed fatbin: ")
    assert reason in chosen.error
    assert chosen.image == b""


def test_zero_padding_may_follow(reader: Harness) -> None:
    assert reader.choose(GOOD + b"\0" * 24, (8, 0), 12010).name == "8.0"


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_damage_is_noticed_or_harmless(reader: Harness, data: st.DataObject) -> None:
    """Whatever the bytes: an answer, and an image that lies within them."""
    damaged = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    size = data.draw(st.integers(0, len(damaged)))
    chosen = reader.choose(bytes(damaged[:size]), (9, 0), 13000)
    assert bool(chosen.error) != bool(chosen.image)
    assert len(chosen.image) <= size + 1
