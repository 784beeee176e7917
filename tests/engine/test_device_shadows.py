"""What LD_LIBRARY_PATH puts in front of torch's libraries, over folders that stand for machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from freewheel.device.shadows import Shadow, shadows


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def test_b15_each_folder_is_named_with_what_it_brings(tmp_path: Path) -> None:
    put(
        tmp_path,
        "opt/old/libnvJitLink.so.12",
        "opt/old/libcudart.so.12",
        "opt/old/libother.so.1",
        "conda/lib/libstdc++.so.6",
        "conda/lib/libcudart.so.12",
    )
    found = shadows(
        {"LD_LIBRARY_PATH": "/opt/old:/opt/none:/conda/lib:/conda/lib/libstdc++.so.6"},
        root=str(tmp_path),
    )
    assert found == (
        Shadow("/opt/old", ("libcudart.so.12", "libnvJitLink.so.12")),
        Shadow("/conda/lib", ("libstdc++.so.6",)),  # its libcudart comes too late
    )
    assert str(found[1]) == "LD_LIBRARY_PATH puts /conda/lib first for libstdc++.so.6"


def test_b45_the_systems_own_libstdcxx_is_no_news(tmp_path: Path) -> None:
    put(
        tmp_path,
        "usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "usr/lib/x86_64-linux-gnu/libcudnn.so.9",
    )
    found = shadows({"LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu"}, root=str(tmp_path))
    assert [shadow.names for shadow in found] == [("libcudnn.so.9",)]


@pytest.mark.parametrize("environment", [{}, {"LD_LIBRARY_PATH": ""}])
def test_nothing_is_looked_at_without_the_variable(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(path: str) -> bool:
        raise AssertionError(path)

    monkeypatch.setattr(os.path, "isdir", never)
    monkeypatch.setattr(os.path, "isfile", never)
    assert shadows(environment) == ()
