"""RECORD, the manifest inside a wheel: parsed, checked both ways, written."""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from wheelfab.archive import Flaw, FlawKind

ALGORITHMS = ("sha256", "sha384", "sha512")
_UNHASHED = ("RECORD", "RECORD.jws", "RECORD.p7s")  # binary distribution format: never recorded


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One row of RECORD; ``hash`` and ``size`` as written, empty where RECORD says nothing."""

    path: str
    hash: str
    size: str

    @property
    def algorithm(self) -> str:
        """The hash's algorithm where it is one that may be used, else sha256."""
        name = self.hash.partition("=")[0]
        return name if name in ALGORITHMS else "sha256"


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """What is really in the archive under a name: its digest (by the row's algorithm) and size."""

    digest: bytes
    size: int


def parse_manifest(data: bytes, where: str) -> tuple[tuple[Entry, ...], list[Flaw]]:
    """The rows of RECORD, and what is wrong with its form."""
    entries: list[Entry] = []
    flaws: list[Flaw] = []
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        return (), [Flaw(kind=FlawKind.RECORD, where=where, what=f"cannot be parsed: {error}")]
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        if len(row) != 3:
            what = f"row {number} has {len(row)} columns, not 3"
            flaws.append(Flaw(kind=FlawKind.RECORD, where=where, what=what))
            continue
        entries.append(Entry(path=row[0], hash=row[1], size=row[2]))
    for path, count in Counter(entry.path for entry in entries).items():
        if count > 1:
            what = f"{path} is listed {count} times"
            flaws.append(Flaw(kind=FlawKind.RECORD_DUPLICATE, where=where, what=what))
    return tuple(entries), flaws


def manifest_flaws(
    entries: Iterable[Entry], members: Mapping[str, Member], dist_info: str
) -> Iterator[Flaw]:
    """Where RECORD and the archive differ: rows without files, files without rows, wrong rows."""
    where = f"{dist_info}/RECORD"
    unhashed = {f"{dist_info}/{name}" for name in _UNHASHED}
    listed = {entry.path: entry for entry in entries}
    if where not in listed:
        yield Flaw(kind=FlawKind.RECORD, where=where, what="does not list itself")
    for path, entry in listed.items():
        if path in unhashed:
            if entry.hash or entry.size:
                yield Flaw(kind=FlawKind.RECORD, where=where, what=f"{path} has a hash or a size")
        elif path not in members:
            what = f"lists {path}, which is not in the archive"
            yield Flaw(kind=FlawKind.ABSENT, where=where, what=what)
        else:
            yield from _row_flaws(entry, members[path], where)
    for path in sorted(members.keys() - listed.keys() - unhashed):
        yield Flaw(kind=FlawKind.UNRECORDED, where=path, what="is not listed in RECORD")


def _row_flaws(entry: Entry, member: Member, where: str) -> Iterator[Flaw]:
    if reason := _hash_form(entry):
        yield Flaw(kind=FlawKind.HASH_FORM, where=where, what=f"{entry.path}: {reason}")
    elif (right := encode_digest(member.digest, entry.algorithm)) != entry.hash:
        what = f"{entry.path}: says {entry.hash}, the file has {right}"
        yield Flaw(kind=FlawKind.HASH, where=where, what=what)
    if not (entry.size.isascii() and entry.size.isdigit()):
        what = f"{entry.path}: size {entry.size!r} is not a number"
        yield Flaw(kind=FlawKind.RECORD, where=where, what=what)
    elif entry.size != str(member.size):
        what = f"{entry.path}: says {entry.size} bytes, the file has {member.size}"
        yield Flaw(kind=FlawKind.SIZE, where=where, what=what)


def _hash_form(entry: Entry) -> str:
    algorithm, equals, value = entry.hash.partition("=")
    if not entry.hash:
        return "has no hash"
    if not equals or algorithm not in ALGORITHMS:
        return f"hash {entry.hash!r} is not of {', '.join(ALGORITHMS)}"
    if value.endswith("="):
        return "hash is padded; the format wants base64url without '='"
    size = hashlib.new(algorithm).digest_size
    try:
        raw = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return f"hash {value!r} is not base64url"
    return "" if len(raw) == size else f"hash has {len(raw)} bytes, {algorithm} has {size}"


def encode_digest(digest: bytes, algorithm: str = "sha256") -> str:
    """A digest as RECORD writes it: ``sha256=`` and base64url without padding."""
    return f"{algorithm}={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def format_manifest(members: Mapping[str, Member], dist_info: str) -> bytes:
    """RECORD for ``members`` (SHA-256), sorted by path, with itself as the last row."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for path in sorted(members):
        writer.writerow((path, encode_digest(members[path].digest), members[path].size))
    writer.writerow((f"{dist_info}/RECORD", "", ""))
    return text.getvalue().encode()
