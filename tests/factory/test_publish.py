"""Publishing: the complete set or nothing, files write-once, one rename as the last act."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

import pytest

from tests.factory.cellmaker import CELLS, build_all, build_cell, cells, record_cell
from tests.factory.wheelmaker import cut, flip
from wheelfab.errors import FactoryError, InfrastructureError, PublishError, WheelError
from wheelfab.index import CellWheel, built_wheels, publish, verify_index
from wheelfab.index.publish import Published


@pytest.fixture
def root(tmp_path: Path) -> Path:
    build_all(tmp_path)
    return tmp_path


def go(root: Path) -> Published:
    """Publish what lies under ``root`` to ``root/public``."""
    return publish(built_wheels(root, cells()), root / "public", expected=cells())


def refused(root: Path, error: type[FactoryError] = PublishError) -> str:
    """The text of the refusal to publish, which must leave the folder as it was."""
    before = tree(root / "public")
    with pytest.raises(error) as caught:
        go(root)
    assert tree(root / "public") == before
    return str(caught.value)


def tree(folder: Path) -> dict[str, bytes | str]:
    """Names with bytes or link targets below ``folder``."""
    return {
        path.relative_to(folder).as_posix(): (
            str(path.readlink()) if path.is_symlink() else path.read_bytes()
        )
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_a_complete_set_is_published_and_served_through_current(root: Path) -> None:
    done = go(root)
    current = root / "public" / "current"
    assert current.is_symlink()
    assert current.resolve() == done.snapshot
    assert verify_index(current) == done.catalog
    assert [item.cell for item in done.catalog.files if item.page == "cu121/torch2.4"] == [
        "cu121-torch2.4"
    ]
    assert {item.cell for item in done.catalog.files} == set(CELLS)


def test_publishing_the_same_again_changes_nothing(root: Path) -> None:
    assert go(root).changed
    before = tree(root / "public")
    assert not go(root).changed
    assert tree(root / "public") == before


def test_b58_one_cell_short_and_nothing_is_published(root: Path) -> None:
    record_cell(root, "cpu-torch2.4", "failed", reason="c++: out of memory")
    record_cell(root, "cpu-torch2.10", "skipped", reason="not asked for")
    record_cell(root, "cu118-torch2.4", "missing", reason="left no wheel")
    (root / "build" / "cu118-torch2.10" / "build.json").unlink()
    next((root / "dist").glob("*cu121.torch2.10*")).unlink()
    assert refused(root) == (
        "nothing was published: 5 of 6 cells have no wheel\n"
        "  cpu-torch2.4: failed (c++: out of memory)\n"
        "  cpu-torch2.10: skipped (not asked for)\n"
        "  cu118-torch2.4: missing (left no wheel)\n"
        "  cu118-torch2.10: missing (it was not built)\n"
        "  cu121-torch2.10: missing (its wheel freewheel-0.1.0+cu121.torch2.10-cp310-abi3-"
        "manylinux_2_28_x86_64.whl is not in dist/); build them, or exclude them in matrix.toml "
        "with a reason"
    )
    assert not (root / "public").exists()


def test_a_cell_that_nobody_speaks_of_is_missing(root: Path) -> None:
    wheels = built_wheels(root, cells())
    with pytest.raises(PublishError, match=r"cpu-torch2\.4: missing \(nothing is known of it\)"):
        publish(wheels[1:], root / "public", expected=cells())
    with pytest.raises(PublishError, match=r"does not have: cpu-torch2\.4"):
        publish(wheels, root / "public", expected=cells(CELLS[1:]))
    with pytest.raises(PublishError, match="0 of 0 cells"):
        publish((), root / "public", expected=())


def test_wheels_of_two_versions_are_not_one_release(root: Path) -> None:
    build_cell(root, "cu121-torch2.4", public="0.2.0")
    assert "the wheels are of freewheel 0.1.0, freewheel 0.2.0" in refused(root)


def test_every_wheel_that_is_not_sound_is_named(root: Path) -> None:
    wheels = built_wheels(root, cells())
    broken = [item.wheel.path for item in wheels[:2] if item.wheel is not None]
    for path in broken:
        cut(path)
    with pytest.raises(WheelError) as caught:
        publish(wheels, root / "public", expected=cells())
    assert [str(path) in str(caught.value) for path in broken] == [True, True]
    assert not (root / "public").exists()


def test_a_wheel_exchanged_after_it_was_read(root: Path) -> None:
    wheels = built_wheels(root, cells())
    build_cell(root, CELLS[0], files={"freewheel/new.py": b""})
    with pytest.raises(WheelError, match="changed while it was published"):
        publish(wheels, root / "public", expected=cells())


def test_a_published_file_never_changes(root: Path) -> None:
    go(root)
    wheel = build_cell(root, "cu121-torch2.4", files={"freewheel/new.py": b""})
    text = refused(root)
    assert "published with other bytes" in text
    assert wheel.name in text
    assert "raise the version" in text


def test_a_file_of_a_snapshot_that_is_no_longer_served_counts_too(root: Path) -> None:
    first = go(root)
    build_all(root, public="0.2.0")
    go(root)
    link = root / "public" / "current"
    link.unlink()
    link.symlink_to(first.snapshot.relative_to(root / "public"))  # taken back by hand
    build_cell(root, "cu121-torch2.4", public="0.2.0", files={"freewheel/new.py": b""})
    assert "published with other bytes" in refused(root)


def test_a_new_version_joins_the_old_one(root: Path) -> None:
    first = go(root)
    build_all(root, public="0.2.0")
    second = go(root)
    assert len(second.catalog.files) == 12
    assert set(first.catalog.files) < set(second.catalog.files)
    page = (root / "public/current/cu121/torch2.4/freewheel/index.html").read_text()
    assert page.count("<a ") == 2
    assert verify_index(first.snapshot) == first.catalog  # what a reader still has open is whole
    file = first.catalog.files[0].file
    old, new = (snapshot / "files" / file for snapshot in (first.snapshot, second.snapshot))
    assert old.samefile(new)


def test_a_file_changed_in_the_published_folder_stops_the_next_release(root: Path) -> None:
    done = go(root)
    flip(done.snapshot / "files" / done.catalog.files[0].file)
    build_all(root, public="0.2.0")
    assert "the index is not sound" in refused(root)


def test_leftovers_of_a_killed_publisher_are_removed(root: Path) -> None:
    go(root)
    part = root / "public/snapshots/.0123456789abcdef.12345678.part/files"
    part.mkdir(parents=True)
    (part / "half.whl").write_bytes(b"PK")
    (root / "public/.current.12345678").symlink_to("snapshots/.0123456789abcdef.12345678.part")
    build_all(root, public="0.2.0")
    go(root)
    assert not part.exists()
    assert sorted(path.name for path in (root / "public").iterdir()) == ["current", "snapshots"]
    assert len(list((root / "public/snapshots").iterdir())) == 2


def test_current_must_be_a_link(root: Path) -> None:
    (root / "public/current").mkdir(parents=True)
    assert "current: is not a link" in refused(root)


@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, InfrastructureError), (errno.EACCES, PublishError)]
)
def test_a_disk_that_refuses_leaves_the_old_state(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[FactoryError]
) -> None:
    go(root)
    build_all(root, public="0.2.0")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("wheelfab.index.write.shutil.copyfile", refuse)
    assert os.strerror(number) in refused(root, error)


def test_a_page_that_would_shadow_the_files_is_refused(root: Path) -> None:
    wheels: list[CellWheel] = [
        dataclasses.replace(item, page="files/torch2.4") for item in built_wheels(root, cells())
    ]
    with pytest.raises(PublishError, match="cannot be the folder of an index"):
        publish(wheels, root / "public", expected=cells())
