"""Device toolchains out of pinned wheels: fetched once, checked by hash, kept in the store."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from wheelfab import console
from wheelfab.errors import ToolchainError
from wheelfab.records import digest, file_digest
from wheelfab.run import check
from wheelfab.store import Store
from wheelfab.toolchain import pip
from wheelfab.toolchain.pins import PinnedWheel, ToolchainPins, pinned

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
    unpack_pinned(pins.wheels, content, what=pins.name, where="facts/toolchains.toml")
    _finish(pins, content)


def unpack_pinned(
    wheels: Sequence[PinnedWheel],
    content: Path,
    *,
    what: str,
    where: str,
    arguments: Sequence[str] = (),
) -> None:
    """Fetch ``wheels`` with the user's own pip and unpack them into ``content``.

    ``where`` names the file that has their hashes; ``arguments`` are added to pip's.

    Raises ``ToolchainError`` when one cannot be had with its hash.
    """
    with tempfile.TemporaryDirectory(dir=content.parent) as name:
        folder = Path(name)
        requirements = folder / "requirements.txt"
        lines = [wheel.requirement for wheel in wheels]
        requirements.write_text("\n".join(lines) + "\n", encoding="utf-8")
        done = pip.download(
            (*arguments, "--require-hashes", "--requirement", str(requirements)),
            into=folder,
            env=pip.user_environment(folder),
        )
        check(
            done,
            ToolchainError,
            doing=f"fetching the wheels of {what}",
            next_step=f"check that pip reaches its index; the hashes are in {where}",
        )
        for wheel in wheels:
            path = folder / wheel.file
            if not path.is_file() or file_digest(path) != wheel.sha256:
                raise ToolchainError(f"pip left no {wheel.file} with the pinned hash", where=where)
            pip.unpack_wheel(path, content)
            path.unlink()


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
