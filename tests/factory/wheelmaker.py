"""Makes small wheels, good ones and bad ones: every way to be bad is one switch."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CP310_ABI3 = "cp310-abi3-manylinux_2_28_x86_64"
_SEALED = (2024, 1, 2, 3, 4, 6)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A wheel to make. Everything after ``build`` is a defect, absent by default."""

    name: str = "freewheel"
    version: str = "0.1.0+cu121.torch2.4"
    tag: str = CP310_ABI3
    requires_dist: tuple[str, ...] = ("torch>=2.4.1,<2.5",)
    requires_python: str | None = ">=3.10"
    files: Mapping[str, bytes] = field(default_factory=dict)
    build: Mapping[str, Any] | None = None

    metadata_version: str | None = None  # version in METADATA, the file name's otherwise
    metadata_name: str | None = None
    folder_version: str | None = None  # version of the dist-info folder
    wheel_tag: str | None = None  # tag in WHEEL
    wheel_head: str = "Wheel-Version: 1.0\n"
    wheel_extra: str = ""  # lines appended to WHEEL
    extra_metadata: str = ""  # header lines appended to METADATA
    omit: tuple[str, ...] = ()  # of RECORD, METADATA, WHEEL
    omit_init: bool = False  # no ``__init__.py`` in the package
    unrecorded: Mapping[str, bytes] = field(default_factory=dict)
    record_edit: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # path: (hash, size)
    record_lines: tuple[str, ...] = ()  # appended to RECORD
    drop_rows: tuple[str, ...] = ()  # paths left out of RECORD
    padded: bool = False  # hashes with '=' at the end
    self_row: str = ",,"  # what RECORD says of itself, nothing at all when empty
    link: str | None = None  # name of a symbolic link member
    twice: str | None = None  # name of a member written again
    mtime: tuple[int, int, int, int, int, int] = _SEALED
    mode: int = 0o644
    programs: tuple[str, ...] = ()  # names of members with mode 755
    reverse: bool = False  # members in the opposite order

    @property
    def file(self) -> str:
        """The wheel's file name."""
        return f"{self.name}-{self.version}-{self.tag}.whl"

    @property
    def dist_info(self) -> str:
        """The dist-info folder."""
        return f"{self.name}-{self.folder_version or self.version}.dist-info"


def make_wheel(folder: Path, recipe: Recipe | None = None, **switches: Any) -> Path:
    """Write the wheel of ``recipe``, or of ``Recipe(**switches)``, into ``folder``."""
    recipe = recipe or Recipe(**switches)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / recipe.file
    recorded = _recorded(recipe)
    members = [*recorded.items(), *recipe.unrecorded.items()]
    if "RECORD" not in recipe.omit:
        members.append((f"{recipe.dist_info}/RECORD", _record(recipe, recorded)))
    if recipe.reverse:
        members.reverse()
    with zipfile.ZipFile(path, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(_info(recipe, name), data)
        if recipe.link is not None:
            info = _info(recipe, recipe.link)
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, b"/etc/passwd")
        if recipe.twice is not None:
            archive.writestr(_info(recipe, recipe.twice), b"second")
    return path


def cut(path: Path, count: int = 40) -> None:
    """Cut ``count`` bytes off the end of a file."""
    path.write_bytes(path.read_bytes()[:-count])


def flip(path: Path, offset: int | None = None) -> None:
    """Change one byte of a file, in the middle by default."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if offset is None else offset] ^= 0xFF
    path.write_bytes(bytes(data))


def build_record(
    cell: str, version: str, others: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A plausible ``_build.json`` of ``cell`` (such as ``cu121-torch2.4`` or its twin)."""
    release = cell.removesuffix("-debug")
    variant, _, pin = release.partition("-torch")
    cuda = {"cu118": "11.8", "cu121": "12.1", "cu130": "13.0"}.get(variant)
    return {
        "schema": 1,
        "project": "freewheel",
        "version": version,
        "cell": cell,
        "profile": "release" if cell == release else "debug",
        "variant": variant,
        "cuda": cuda,
        "archs": ["8.0", "8.6", "8.9", "9.0", "9.0+PTX"] if cuda else [],
        "torch": {"pin": pin, "abi": "classic", "requirement": ">=2.4.1,<2.5"},
    } | dict(others or {})


def make_cell(folder: Path, cell: str, **switches: Any) -> Path:
    """A good wheel of ``cell``, with ``_build.json`` and the version that belongs to it."""
    version = f"{switches.pop('public', '0.1.0')}+{cell.replace('-', '.')}"
    requires = switches.pop("requires_dist", (_requirement(cell),))
    record = build_record(cell, version, switches.pop("record", None))
    return make_wheel(folder, version=version, build=record, requires_dist=requires, **switches)


def _requirement(cell: str) -> str:
    classic = cell.removesuffix("-debug").endswith("torch2.4")
    return "torch>=2.4.1,<2.5" if classic else "torch>=2.10"


def _recorded(recipe: Recipe) -> dict[str, bytes]:
    files = {f"{recipe.name}/__init__.py": f'__version__ = "{recipe.version}"\n'.encode()}
    if recipe.omit_init:
        files = {}
    files |= recipe.files
    if recipe.build is not None:
        files[f"{recipe.name}/_build.json"] = json.dumps(recipe.build).encode()
    if "METADATA" not in recipe.omit:
        files[f"{recipe.dist_info}/METADATA"] = _metadata(recipe)
    if "WHEEL" not in recipe.omit:
        files[f"{recipe.dist_info}/WHEEL"] = _wheel(recipe)
    return files


def _metadata(recipe: Recipe) -> bytes:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {recipe.metadata_name or recipe.name}",
        f"Version: {recipe.metadata_version or recipe.version}",
        *(f"Requires-Dist: {need}" for need in recipe.requires_dist),
    ]
    if recipe.requires_python is not None:
        lines.append(f"Requires-Python: {recipe.requires_python}")
    return ("\n".join(lines) + "\n" + recipe.extra_metadata + "\nA test.\n").encode()


def _wheel(recipe: Recipe) -> bytes:
    tag = recipe.wheel_tag or recipe.tag
    pure = "true" if tag.endswith("-any") else "false"
    interpreter, abi, platforms = tag.rsplit("-", 2)
    tags = "".join(f"Tag: {interpreter}-{abi}-{one}\n" for one in platforms.split("."))
    lines = f"Generator: wheelmaker\nRoot-Is-Purelib: {pure}\n{tags}"
    return f"{recipe.wheel_head}{lines}{recipe.wheel_extra}".encode()


def _record(recipe: Recipe, files: Mapping[str, bytes]) -> bytes:
    rows = list(_rows(recipe, files))
    if recipe.self_row:
        rows.append(f"{recipe.dist_info}/RECORD{recipe.self_row}")
    return ("\n".join([*rows, *recipe.record_lines]) + "\n").encode()


def _rows(recipe: Recipe, files: Mapping[str, bytes]) -> Iterable[str]:
    for path, data in files.items():
        if path in recipe.drop_rows:
            continue
        value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
        written = f"sha256={value if recipe.padded else value.rstrip('=')}"
        hash_, size = recipe.record_edit.get(path, (written, str(len(data))))
        yield f"{path},{hash_},{size}"


def _info(recipe: Recipe, name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, date_time=recipe.mtime)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = (stat.S_IFREG | (0o755 if name in recipe.programs else recipe.mode)) << 16
    return info
