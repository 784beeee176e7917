"""Canonical JSON, digests, and writes that are whole or absent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest
from packaging.version import Version

from wheelfab.records import aside, canonical_json, digest, file_digest, read_json, write_json


class Colour(StrEnum):
    """An enumeration."""

    RED = "red"


@dataclass(frozen=True)
class Record:
    """What has no plain types."""

    path: Path
    version: Version
    colour: Colour
    numbers: tuple[int, ...]


def test_a_record_has_one_text() -> None:
    record = Record(Path("a/b"), Version("2.10"), Colour.RED, (1, 2))
    text = '{"colour":"red","numbers":[1,2],"path":"a/b","version":"2.10"}'
    assert canonical_json(record) == text
    assert digest(record) == hashlib.sha256(text.encode()).hexdigest()


def test_sets_and_key_order_do_not_change_the_digest() -> None:
    assert digest({"b": {3, 1, 2}, "a": 1}) == digest({"a": 1, "b": [1, 2, 3]})


def test_what_has_no_plain_form_is_refused() -> None:
    with pytest.raises(TypeError, match="no plain form for object"):
        canonical_json(object())


def test_written_records_are_read_back(tmp_path: Path) -> None:
    write_json(tmp_path / "deep" / "x.json", {"a": [1, None, "é"]})
    assert read_json(tmp_path / "deep" / "x.json") == {"a": [1, None, "é"]}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["x.json"]


def write_half(target: Path) -> None:
    """A write that fails after its first bytes."""
    with aside(target) as part:
        part.write_text("half")
        raise RuntimeError


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_text("old")
    with pytest.raises(RuntimeError):
        write_half(target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_file_digest_reads_in_pieces(tmp_path: Path) -> None:
    data = b"x" * ((1 << 20) + 7)
    (tmp_path / "f").write_bytes(data)
    assert file_digest(tmp_path / "f") == hashlib.sha256(data).hexdigest()
