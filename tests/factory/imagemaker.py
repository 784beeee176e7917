"""Adds device images to the handmade libraries of elfmaker."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tests.drivers.cubin import Kernel, images

KERNELS = {"fw_a": Kernel(params=(8,))}


def with_images(elf: bytes, archs: Sequence[str]) -> bytes:
    """``elf`` with a section ``.nv_fatbin`` more, and its table of sections anew at the end."""
    fatbin, name = images(KERNELS, archs), b".nv_fatbin\0"
    (at,), (count,) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<H", elf, 60)
    rows = [bytearray(elf[at + 64 * i : at + 64 * (i + 1)]) for i in range(count)]
    start, size = struct.unpack_from("<QQ", rows[count - 1], 24)
    names = elf[start : start + size] + name
    body = bytearray(elf + fatbin + names)
    struct.pack_into("<QQ", rows[count - 1], 24, len(elf) + len(fatbin), len(names))
    place = (len(elf), len(fatbin), 0, 0, 8, 0)
    rows.insert(count - 1, bytearray(struct.pack("<IIQQQQIIQQ", size, 1, 2, 0, *place)))
    body += b"\0" * (-len(body) % 8)
    struct.pack_into("<Q", body, 40, len(body))
    struct.pack_into("<HH", body, 60, count + 1, count)
    return bytes(body + b"".join(rows))
