"""Fatbins: archs with suffix, kernels, every compression; broken ones are refused."""

from __future__ import annotations

import dataclasses
import struct
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.drivers.cubin import Entry as Made
from tests.drivers.cubin import Kernel, container, cubin, images, packed, ptx
from wheelfab.errors import FormatError
from wheelfab.fatbin import (
    Compression,
    Entry,
    ImageKind,
    archs_of,
    entries_of,
    expand,
    kernels,
    parse_entries,
    read_image,
)

# Of CUDA 12.1's NVRTC, packed by nvFatbin 12.9 with its default compression; see data/README.md.
REAL = Path(__file__).parent / "data" / "scale.fatbin"
KERNELS = {"fw_a": Kernel(params=(8, 8)), "fw_b": Kernel(params=(16,))}
ZSTD = 0x8000


def library(sections: dict[str, bytes]) -> bytes:
    """An ELF file with those sections, and no others but their names."""
    names, body, table = b"\0", b"", struct.pack("<IIQQQQIIQQ", *(0,) * 10)
    for name, data in (*sections.items(), (".shstrtab", None)):
        at = len(names)
        names += name.encode() + b"\0"
        content = names if data is None else data
        kind = 3 if data is None else 1
        table += struct.pack(
            "<IIQQQQIIQQ", at, kind, 2, 0, 64 + len(body), len(content), 0, 0, 8, 0
        )
        body += content + b"\0" * (-len(content) % 8)
    count = len(sections) + 2
    fields = (3, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, count, count - 1)
    ident = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    return ident + struct.pack("<HHIQQQIHHHHHH", *fields) + body + table


def test_a_real_fatbin_is_read_as_cuobjdump_reads_it() -> None:
    entries = entries_of(REAL)
    assert archs_of(REAL) == ("8.0", "9.0a", "9.0a+PTX")
    assert [entry.kind for entry in entries] == [ImageKind.CUBIN, ImageKind.CUBIN, ImageKind.PTX]
    assert [entry.compression for entry in entries] == [
        Compression.NONE,
        Compression.NONE,
        Compression.LZ4,
    ]
    assert entries[2].isa == (8, 1)
    assert {entry.name for entry in entries} == {"scale.cu"}
    for entry in entries:
        image = read_image(REAL, entry)
        assert kernels(image, entry, where="x") == ("scale",)
    assert b".target sm_90a" in read_image(REAL, entries[2])


def test_every_container_of_both_sections_is_read_but_only_one_is_loadable(tmp_path: Path) -> None:
    first, second = images(KERNELS, ["80", "90a"]), images(KERNELS, ["80", "90+PTX"])
    path = tmp_path / "library.so"
    loaded = first + b"\0" * 24 + second + b"\0" * 8
    path.write_bytes(
        library(
            {".text": b"code", ".nv_fatbin": loaded, "__nv_relfatbin": images(KERNELS, ["120"])}
        )
    )
    found = [(entry.section, entry.container, entry.target) for entry in entries_of(path)]
    assert found == [
        (".nv_fatbin", 0, "8.0"),
        (".nv_fatbin", 0, "9.0a"),
        (".nv_fatbin", 1, "8.0"),
        (".nv_fatbin", 1, "9.0+PTX"),
        ("__nv_relfatbin", 0, "12.0"),
    ]
    assert archs_of(path) == ("8.0", "9.0+PTX", "9.0a")


def test_a_library_without_device_code_has_no_archs(tmp_path: Path) -> None:
    path = tmp_path / "plain.so"
    path.write_bytes(library({".text": b"code"}))
    assert archs_of(path) == ()
    (tmp_path / "empty").touch()
    assert archs_of(tmp_path / "empty") == ()


@pytest.mark.parametrize(
    ("arch", "suffix", "target"),
    [(80, "", "8.0"), (89, "", "8.9"), (90, "a", "9.0a"), (100, "f", "10.0f"), (121, "a", "12.1a")],
)
def test_the_suffix_is_a_flag_and_is_not_lost(arch: int, suffix: str, target: str) -> None:
    data = container([Made(arch=arch, suffix=suffix, payload=cubin(arch, KERNELS, suffix=suffix))])
    (entry,) = parse_entries(data, where="x")
    assert entry.target == target


@pytest.mark.parametrize("abi", [7, 8])
@pytest.mark.parametrize("header", [64, 72, 88, 112])
def test_kernels_are_named_whatever_the_headers_size_and_the_abi(abi: int, header: int) -> None:
    payload = cubin(120, KERNELS, abi=abi)
    data = container([Made(arch=120, payload=payload, header=header)])
    (entry,) = parse_entries(data, where="x")
    image = expand(data, entry, where="x")
    assert image[: len(payload)] == payload
    assert kernels(image, entry, where="x") == ("fw_a", "fw_b")


def test_compressed_and_plain_images_expand_alike() -> None:
    text = ptx(90, KERNELS, isa=(8, 1)) + b"\0"
    plain = Made(arch=90, ptx=True, payload=text)
    data = container([plain, packed(plain)])
    entries = parse_entries(data, where="x")
    assert [entry.compression for entry in entries] == [Compression.NONE, Compression.LZ4]
    assert {expand(data, entry, where="x") for entry in entries} == {text[:-1]}
    assert kernels(text, entries[0], where="x") == ("fw_a", "fw_b")


def zstd_entry(stored: bytes, unpacked: int) -> tuple[bytes, Entry]:
    data = container([Made(arch=90, payload=stored, flags=ZSTD, unpacked=unpacked)])
    (entry,) = parse_entries(data, where="x")
    assert entry.compression is Compression.ZSTD
    return data, entry


def test_zstd_is_expanded() -> None:
    payload = cubin(90, KERNELS)
    data, entry = zstd_entry(zstandard.ZstdCompressor().compress(payload), len(payload))
    image = expand(data, entry, where="x")
    assert image == payload
    assert kernels(image, entry, where="x") == ("fw_a", "fw_b")


@pytest.mark.parametrize(
    ("stored", "unpacked", "says"),
    [
        (b"\x28\xb5\x2f\xfd" + b"x" * 60, 99, "zstd image"),
        (zstandard.ZstdCompressor().compress(bytes(1 << 20)), 1 << 10, "of over 1024 bytes"),
        (zstandard.ZstdCompressor().compress(bytes(100)), 200, "100 bytes where 200 were due"),
    ],
)
def test_a_broken_or_oversized_zstd_image_is_refused(
    stored: bytes, unpacked: int, says: str
) -> None:
    data, entry = zstd_entry(stored, unpacked)
    with pytest.raises(FormatError, match=says):
        expand(data, entry, where="x")


def test_lto_and_unknown_kinds_are_listed_but_not_loadable() -> None:
    made = [Made(arch=80, kind=8, payload=b"12345678"), Made(arch=80, kind=64, payload=b"12345678")]
    entries = parse_entries(container(made), where="x")
    assert [(entry.kind, entry.loadable) for entry in entries] == [
        (ImageKind.LTO, False),
        (ImageKind.OTHER, False),
    ]
    assert kernels(b"", entries[0], where="x") == ()


def test_a_cubin_for_another_arch_than_its_entry_says_is_refused() -> None:
    data = container([Made(arch=90, payload=cubin(80, KERNELS))])
    (entry,) = parse_entries(data, where="x")
    with pytest.raises(FormatError, match=r"a cubin for 9\.0, the image is for 8\.0"):
        kernels(expand(data, entry, where="x"), entry, where="x")


GOOD = images(KERNELS, ["80", "90a", "90+PTX"])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (GOOD[:-8], "a container at 0x0 that ends"),
        (GOOD + b"junk", "bytes outside any container"),
        (b"junk" + GOOD, "bytes outside any container"),
        (GOOD[:4], "cut short"),
        (GOOD[:16] + b"\0" * (len(GOOD) - 16), "an entry header of 0 bytes"),
        (GOOD[:20] + struct.pack("<I", 5000) + GOOD[24:], "an entry header of 5000 bytes"),
        (GOOD[:24] + struct.pack("<Q", 1 << 40) + GOOD[32:], "leaves its container"),
        (GOOD[:32] + struct.pack("<I", 1 << 30) + GOOD[36:], "leaves its container"),
    ],
)
def test_what_is_broken_is_named(data: bytes, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        parse_entries(data, where="x")


def test_an_image_over_its_bound_is_not_expanded() -> None:
    (entry,) = parse_entries(container([Made(arch=80, payload=b"12345678")]), where="x")
    with pytest.raises(FormatError, match="an image of"):
        expand(b"", dataclasses.replace(entry, size=1 << 40), where="x")


@settings(max_examples=300, deadline=2000)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 14000), st.binary(min_size=1, max_size=8)), max_size=6
    ),
    length=st.integers(0, 20000),
    real=st.booleans(),
)
def test_no_mutation_gives_another_error(
    changes: list[tuple[int, bytes]], length: int, real: bool
) -> None:
    data = bytearray(REAL.read_bytes() if real else library({".nv_fatbin": GOOD}))
    for at, piece in changes:
        place = at % len(data)
        data[place : place + len(piece)] = piece
    broken = bytes(data[: length or None])
    with suppress(FormatError):
        for entry in parse_entries(broken, where="x"):
            kernels(expand(broken, entry, where="x"), entry, where="x")
