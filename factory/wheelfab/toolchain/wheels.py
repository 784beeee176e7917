"""Device toolchains out of pinned wheels: fetched once, checked by hash, kept in the store."""

from __future__ import annotations

import tempfile
from pathlib import Path

from packaging.version import Version

from wheelfab import console
from wheelfab.errors import ToolchainError
from wheelfab.records import digest, file_digest
from wheelfab.run import check
from wheelfab.store import Store
from wheelfab.toolchain import pip
from wheelfab.toolchain.pins import ToolchainPins, pinned

KIND = "toolchain"


def toolchain_key(pins: ToolchainPins) -> str:
    """The key in the store: route and release for people, and the digest of all pins."""
    return f"{pins.route}-{pins.cuda}-{digest(pins)[:16]}"


def fetch_toolchain(store: Store, route: str, cuda: Version) -> Path:
    """The folder of a toolchain's unpacked wheels, fetched now unless it is in ``store``.

    Raises ``ToolchainError`` when nothing is pinned for it or a wheel cannot be had with its hash.
    """
    pins = pinned(route, cuda)
    key = toolchain_key(pins)
    needs = pins.unpacked + 2 * sum(wheel.size for wheel in pins.wheels)
    return store.entry(KIND, key, lambda content: _make(pins, content), needs=needs)


def _make(pins: ToolchainPins, content: Path) -> None:
    size = sum(wheel.size for wheel in pins.wheels) / 1e6
    console.step(f"fetching {pins.name}: {len(pins.wheels)} wheels, {size:.0f} MB")
    with tempfile.TemporaryDirectory(dir=content.parent) as name:
        folder = Path(name)
        requirements = folder / "requirements.txt"
        lines = [wheel.requirement for wheel in pins.wheels]
        requirements.write_text("\n".join(lines) + "\n", encoding="utf-8")
        done = pip.download(
            ("--require-hashes", "--requirement", str(requirements)),
            into=folder,
            env=pip.user_environment(folder),
        )
        check(
            done,
            ToolchainError,
            doing=f"fetching the wheels of {pins.name}",
            next_step="check that pip reaches its index; the hashes are in facts/toolchains.toml",
        )
        for wheel in pins.wheels:
            path = folder / wheel.file
            if not path.is_file() or file_digest(path) != wheel.sha256:
                raise ToolchainError(f"pip left no {wheel.file} with the pinned hash")
            pip.unpack_wheel(path, content)
            path.unlink()
    _finish(pins, content)


def _finish(pins: ToolchainPins, content: Path) -> None:
    """What a zip cannot hold: exec bits and links."""
    for pattern in pins.programs:
        for program in content.glob(pattern):
            if program.is_file():
                program.chmod(0o755)
    for link, target in pins.links.items():
        (content / link).symlink_to(target)
    for part in (pins.compiler, pins.packer, *pins.include):
        if not (content / part).exists():
            raise ToolchainError(f"no {part} in the wheels of {pins.name}")
