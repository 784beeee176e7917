"""Which device code of a wheel runs on a device, and what a build record says of drivers."""

from __future__ import annotations

import pytest

from freewheel.device.wheel import Wheel, choose_image, wheel_of

SHIPPED = ("8.0", "8.6", "8.9", "9.0", "9.0+PTX")


@pytest.mark.parametrize(
    ("archs", "capability", "image"),
    [
        (SHIPPED, (8, 0), "8.0"),
        (SHIPPED, (8, 6), "8.6"),
        (SHIPPED, (8, 7), "8.6"),
        (SHIPPED, (9, 0), "9.0"),
        (SHIPPED, (10, 0), "9.0+PTX"),
        (SHIPPED, (12, 0), "9.0+PTX"),
        (SHIPPED, (7, 5), None),
        (SHIPPED[:-1], (10, 0), None),
        (("9.0a",), (9, 0), "9.0a"),
        (("9.0", "9.0a"), (9, 0), "9.0a"),
        (("9.0a+PTX",), (10, 0), None),
        (("10.0f",), (10, 3), "10.0f"),
        (("10.0f",), (12, 0), None),
        (("10.0+PTX", "8.0+PTX"), (9, 0), "8.0+PTX"),
        (("nonsense", ""), (8, 0), None),
        ((), (8, 0), None),
    ],
)
def test_the_image_for_a_device(
    archs: tuple[str, ...], capability: tuple[int, int], image: str | None
) -> None:
    assert choose_image(archs, capability) == image


def test_a_build_record() -> None:
    driver = {
        "cubin": 12000,
        "ptx": 12010,
        "cubin_release": "525.60.13",
        "ptx_release": "530.30.02",
    }
    record = {"cuda": "12.1", "archs": list(SHIPPED), "driver": driver}
    assert wheel_of(record) == Wheel(
        cuda="12.1",
        archs=SHIPPED,
        cubin_floor=12000,
        ptx_floor=12010,
        cubin_release="525.60.13",
        ptx_release="530.30.02",
    )


def test_records_without_device_code_or_floors() -> None:
    assert wheel_of({"cuda": None, "archs": [], "driver": None}) == Wheel()
    assert wheel_of({"cuda": "12.1", "archs": ["8.0"]}) == Wheel(cuda="12.1", archs=("8.0",))
    assert not wheel_of(None).built
