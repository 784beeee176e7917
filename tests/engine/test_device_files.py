"""What files say of the driver, over folders that stand for machines."""

from __future__ import annotations

import os
import struct
import timeit
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

from freewheel.device.files import Files, cached_paths, read_files

PROC = """\
NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01  Fri Sep 12 00:00:00 UTC 2025
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"


def put(root: Path, files: dict[str, str | bytes]) -> str:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(root)


def cache(entries: dict[str, list[str]], *, before: bytes = b"") -> bytes:
    """A loader's cache as glibc's ldconfig writes it (elf/cache.c)."""
    rows = [(name, path) for name, paths in entries.items() for path in paths]
    strings = b""
    table = b""
    base = 48 + 24 * len(rows)
    for name, path in rows:
        name_at = base + len(strings)
        strings += name.encode() + b"\0"
        path_at = base + len(strings)
        strings += path.encode() + b"\0"
        table += struct.pack("<iIIIQ", 0x0303, name_at, path_at, 0, 0)
    header = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(rows), len(strings)) + bytes(20)
    return before + header + table + strings


def test_a_bare_machine(tmp_path: Path) -> None:
    found = read_files({}, root=str(tmp_path))
    assert found == Files(module_version=None, nodes=(), dxg=False, libraries=())
    assert not found.any_sign


@pytest.mark.parametrize(
    ("files", "release"),
    [
        ({"proc/driver/nvidia/version": PROC}, "535.309.01"),
        ({"proc/driver/nvidia/version": OPEN}, "580.65.06"),
        ({"sys/module/nvidia/version": "470.256.02\n"}, "470.256.02"),
        ({"proc/driver/nvidia/version": "", "sys/module/nvidia/version": "550.1\n"}, "550.1"),
        ({"proc/driver/nvidia/version": b"\xff\xfe"}, None),
    ],
)
def test_the_module_version(
    tmp_path: Path, files: dict[str, str | bytes], release: str | None
) -> None:
    assert read_files({}, root=put(tmp_path, files)).module_version == release


def test_device_nodes_are_listed_not_opened(tmp_path: Path) -> None:
    root = put(tmp_path, {"dev/nvidiactl": "", "dev/nvidia0": "", "dev/null": "", "dev/dxg": ""})
    for node in (tmp_path / "dev").iterdir():
        node.chmod(0)
    found = read_files({}, root=root)
    assert found.nodes == ("nvidia0", "nvidiactl")
    assert found.dxg
    assert found.any_sign


def test_libraries_come_in_the_order_of_the_loader_and_once(tmp_path: Path) -> None:
    root = put(
        tmp_path,
        {
            "opt/compat/libcuda.so.550.1.2": b"",
            "usr/lib/x86_64-linux-gnu/libcuda.so.535.309.01": b"",
            "usr/lib/wsl/lib/libcuda.so.1": b"",
            "dev/dxg": b"",
            "etc/ld.so.cache": cache(
                {"libc.so.6": ["/lib/libc.so.6"], "libcuda.so.1": ["/opt/compat/libcuda.so.1"]}
            ),
        },
    )
    (tmp_path / "opt/compat/libcuda.so.1").symlink_to("libcuda.so.550.1.2")
    (tmp_path / "usr/lib/x86_64-linux-gnu/libcuda.so.1").symlink_to("libcuda.so.535.309.01")
    (tmp_path / "lib").symlink_to("usr/lib")  # as on every merged system
    found = read_files({}, root=root).libraries
    assert [(item.by, item.release) for item in found] == [
        ("loader cache", "550.1.2"),
        ("default folder", "535.309.01"),
        ("WSL", None),
    ]


def test_the_search_path_goes_first(tmp_path: Path) -> None:
    put(tmp_path, {"a/libcuda.so": b"", "b/libcuda.so.1": b"", "usr/lib/libcuda.so.1": b""})
    search = {"LD_LIBRARY_PATH": f":/a:{'/b'};/c"}
    found = read_files(search, root=str(tmp_path)).libraries
    assert [item.by for item in found] == ["LD_LIBRARY_PATH", "default folder"]
    assert found[0].path == str(tmp_path / "b/libcuda.so.1")


def test_b32_wsl_is_known_by_its_kernel_and_its_device(tmp_path: Path) -> None:
    """Both files of its folder are separate ones there, and the cache need not know it."""
    text = "Linux version 5.15.167.4-microsoft-standard-WSL2 (root@f9c826d3017f) (gcc 11.2.0)\n"
    put(
        tmp_path,
        {
            "proc/version": text,
            "usr/lib/wsl/lib/libcuda.so.1": b"",
            "usr/lib/wsl/lib/libcuda.so": b"",
        },
    )
    values = "/usr/lib/wsl/lib/libcuda.so.1:C:\\Windows:%PATH%:0:/none"  # not folders
    found = read_files({"LD_LIBRARY_PATH": values}, root=str(tmp_path))
    assert (found.wsl, found.dxg) == (True, False)
    assert [(item.path, item.by) for item in found.libraries] == [
        (str(tmp_path / "usr/lib/wsl/lib/libcuda.so.1"), "WSL")
    ]
    put(tmp_path, {"dev/dxg": "", "proc/version": "Linux version 6.1.0-25-amd64\n"})
    again = read_files({}, root=str(tmp_path))
    assert (again.wsl, again.dxg) == (True, True)


def test_a_linux_is_no_wsl(tmp_path: Path) -> None:
    put(tmp_path, {"proc/version": "Linux version 6.1.0\n", "usr/lib/wsl/lib/libcuda.so.1": b""})
    found = read_files({}, root=str(tmp_path))
    assert not found.wsl
    assert found.libraries == ()


def test_an_empty_entry_of_the_search_path_is_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, {"libcuda.so.1": b"", "below/libcuda.so.1": b""})
    monkeypatch.chdir(tmp_path)
    for value, folder in ((":/none", ""), ("/none:", ""), ("below", "below/")):
        (found,) = read_files({"LD_LIBRARY_PATH": value}, root="/").libraries[:1]
        assert (found.path, found.by) == (f"{tmp_path}/{folder}libcuda.so.1", "LD_LIBRARY_PATH")
    assert read_files({"LD_LIBRARY_PATH": ""}, root=str(tmp_path)).libraries == ()


def test_a_current_folder_that_was_removed_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    read_files({"LD_LIBRARY_PATH": "relative:"}, root=str(tmp_path))


def test_a_preloaded_driver_goes_before_all(tmp_path: Path) -> None:
    put(tmp_path, {"a/libcuda.so.1": b"", "usr/lib/libcuda.so.1": b""})
    preload = {"LD_PRELOAD": "/lib/libjemalloc.so.2 /a/libcuda.so.1:/b/libcuda.so"}
    found = read_files(preload, root=str(tmp_path)).libraries
    assert [item.by for item in found] == ["LD_PRELOAD", "default folder"]


def test_b14_a_compat_folder_is_known_by_its_name(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "usr/local/cuda-12.4/compat/libcuda.so.550.54.14": b"",
            "usr/lib/x86_64-linux-gnu/libcuda.so.1": b"",
            "etc/ld.so.cache": cache({"libcuda.so.1": ["/usr/local/cuda/compat/libcuda.so.1"]}),
        },
    )
    (tmp_path / "usr/local/cuda").symlink_to("cuda-12.4")
    (tmp_path / "usr/local/cuda/compat/libcuda.so.1").symlink_to("libcuda.so.550.54.14")
    first, second = read_files({}, root=str(tmp_path)).libraries
    assert (first.is_compat, second.is_compat) == (True, False)
    assert str(first).endswith("/compat/libcuda.so.1 (550.54.14, loader cache)")
    assert str(second).endswith("libcuda.so.1 (release unknown, default folder)")


def elf(machine: int, *, bits: int = 64, order: Literal["little", "big"] = "little") -> bytes:
    """The first bytes of a shared library."""
    identity = bytes([bits // 32, 1 if order == "little" else 2, 1])
    kind, number = (value.to_bytes(2, order) for value in (3, machine))
    return b"\x7fELF" + identity + bytes(9) + kind + number + bytes(44)


@pytest.mark.parametrize(
    ("content", "foreign"),
    [
        (elf(62), ""),
        (elf(183), "aarch64"),
        (elf(3, bits=32), "i386"),
        (elf(62, bits=32), "x32"),
        (elf(21, order="big"), "ppc64le"),
        (elf(9999), "ELF machine 9999"),
        (elf(183)[:19], ""),
        (b"", ""),
        (b"this is no library\n" * 9, ""),
    ],
)
def test_the_machine_that_a_library_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, foreign: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="x86_64"))
    put(tmp_path, {"a/libcuda.so.1": content, "usr/lib/libcuda.so.1": elf(62)})
    found = read_files({"LD_LIBRARY_PATH": "/a"}, root=str(tmp_path))
    assert [item.foreign for item in found.libraries] == [foreign, ""]
    assert found.own == found.libraries[1 if foreign else 0 :]
    assert str(found.libraries[0]).endswith(f"LD_LIBRARY_PATH{foreign and ', for '}{foreign})")
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="s390x"))
    unknown = read_files({"LD_LIBRARY_PATH": "/a"}, root=str(tmp_path))
    assert [item.foreign for item in unknown.libraries] == ["", ""]


def test_libcuda_without_its_number_is_no_driver(tmp_path: Path) -> None:
    put(tmp_path, {"a/libcuda.so": b"", "usr/lib/libcuda.so": b""})
    assert not read_files({"LD_LIBRARY_PATH": "/a"}, root=str(tmp_path)).any_sign


def test_the_cache_is_read_behind_the_old_format() -> None:
    content = cache({"libcuda.so.1": ["/a/libcuda.so.1", "/b/libcuda.so.1"]}, before=bytes(64))
    assert cached_paths(content, "libcuda.so.1") == ["/a/libcuda.so.1", "/b/libcuda.so.1"]
    assert cached_paths(content, "libcuda.so.2") == []


def test_a_cache_whose_names_are_ends_of_paths() -> None:
    """As ldconfig writes it from glibc 2.33 on: one string serves as path and, from there, name."""
    path = b"/usr/local/cuda/compat/libcuda.so.1"
    at = 48 + 24
    table = struct.pack("<iIIIQ", 0x0303, at + path.index(b"libcuda"), at, 0, 0)
    header = b"glibc-ld.so.cache1.1" + struct.pack("<II", 1, len(path) + 1) + bytes(20)
    content = header + table + path + b"\0"
    assert cached_paths(content, "libcuda.so.1") == [path.decode()]
    assert cached_paths(content, "cuda.so.1") == []


@pytest.mark.parametrize("keep", [0, 19, 21, 47, 60, 90, 100])
def test_a_truncated_cache_gives_nothing_it_does_not_hold(keep: int) -> None:
    content = cache({"libcuda.so.1": ["/a/libcuda.so.1"]})
    assert cached_paths(content[:keep], "libcuda.so.1") == []


def test_a_cache_that_lies_about_its_count() -> None:
    content = bytearray(cache({"libcuda.so.1": ["/a/libcuda.so.1"]}))
    content[20:24] = b"\xff\xff\xff\xff"
    assert "/a/libcuda.so.1" in cached_paths(bytes(content), "libcuda.so.1")


def test_row_12_the_file_layer_is_fast(tmp_path: Path) -> None:
    """Under 100 us (benchmarks/device.py), against 50 looks at a file that is not there."""
    root = put(tmp_path, {"etc/ld.so.cache": cache({f"l{n}": ["/l"] for n in range(900)})})

    def least(work: Callable[[], object]) -> float:
        return min(timeit.repeat(work, number=1, repeat=100))

    look = least(lambda: [Path(root, "none").exists() for _ in range(50)])
    assert least(lambda: read_files({}, root=root)) < 4 * look
