"""Why two builds differ: facts of the differing bytes turned into named causes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from wheelfab.elf import MAGIC, parse_elf
from wheelfab.errors import FormatError
from wheelfab.reproduce.compare import Difference, Member

_STRING = re.compile(rb"[\x20-\x7e]{6,4096}")
_SHOWN = 120
_BUILD_ID = ".note.gnu.build-id"
_DERIVED = re.compile(r"\.dist-info/(RECORD|sboms/.*)$")
# What stands for a time, in text: dates, clocks, and seconds of the epoch.
_TIME = re.compile(
    r"\b\d{4}-\d\d-\d\d\b|\b[A-Z][a-z]{2} [ \d]\d \d{4}\b|\b\d\d:\d\d:\d\d\b"
    r"|\b[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d\b|\b1[0-9]{9}(?:\.\d+)?\b"
)
# Names that CUDA's compilers make for what has internal linkage, from a path, a hash or a process.
_MODULE = re.compile(
    r"_GLOBAL__N__[0-9a-f]+|__nv_module_id\w*|tmpxft_[0-9a-f]+_[0-9a-f]+|__nv_static_\d+__[0-9a-f]+"
    r"|_INTERNAL_[0-9a-f]+|_[0-9a-f]{8}_\d+_\w+_(?:cu|cpp)_[0-9a-f]{8}|_cu_[0-9a-f]{8}"
)
_COMPILER = re.compile(r"^(GCC: |clang version ).*")
_PATH = re.compile(r"(?<![\w.-])(?:/[^/\s:;\"'<>]+){2,}")


class Cause(StrEnum):
    """What made the bytes differ."""

    PATH = "path"
    TIME = "time"
    ORDER = "order"
    BUILD_ID = "build id"
    MODULE_ID = "module id"
    COMPILER = "compiler"
    INPUT = "input"
    USER = "user or host"
    MODE = "umask"
    FILES = "files"
    PACKING = "zip library"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One cause, the member that shows it, and what is in either wheel."""

    cause: Cause
    where: str
    first: str
    second: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """What a build may have left of itself: its folder, its user and host names."""

    folder: str
    names: tuple[str, ...] = ()


def name_causes(difference: Difference, first: Words, second: Words) -> tuple[Finding, ...]:
    """The causes, one a member and kind; what only follows from another difference is left out."""
    findings = [*_archive(difference)]
    for member in difference.members:
        if not member.same_content and not _DERIVED.search(member.name):
            findings.extend(_content(member, first, second))
    if not findings:
        derived = [item for item in difference.members if not item.same_content]
        for member in derived:
            findings.extend(_content(member, first, second))
    found = dict[tuple[Cause, str], Finding]()
    for finding in findings:
        found.setdefault((finding.cause, finding.where), finding)
    return tuple(found.values())


def _archive(difference: Difference) -> Iterator[Finding]:
    for names, sides in (
        (difference.only_first, ("there", "absent")),
        (difference.only_second, ("absent", "there")),
    ):
        for name in names:
            yield _finding(Cause.FILES, name, *sides)
    if difference.reordered:
        yield _finding(Cause.ORDER, "the archive's members", "one order", "another")
    if difference.packed:
        yield _finding(Cause.PACKING, "the archive", "equal members", "other bytes")
    for member in difference.members:
        if member.times:
            yield _finding(Cause.TIME, member.name, *member.times)
        if member.modes:
            yield _finding(Cause.MODE, member.name, *member.modes)


def _content(member: Member, first: Words, second: Words) -> Iterator[Finding]:
    if member.name.endswith("_build.json"):
        yield from _record(member)
        return
    one, other = _without_build_id(member.first), _without_build_id(member.second)
    if one == other:
        yield _finding(Cause.BUILD_ID, member.name, "", "")
        return
    ours, theirs = _strings(one), _strings(other)
    left, right = _without(ours, theirs), _without(theirs, ours)
    findings, rest = _explain(member.name, left, right, first, second)
    yield from findings
    if not findings and (rest or not left):
        cause = Cause.ORDER if Counter(one) == Counter(other) else Cause.UNKNOWN
        yield _finding(cause, member.name, left[0] if left else "", right[0] if right else "")


def _explain(
    where: str, left: Sequence[str], right: Sequence[str], first: Words, second: Words
) -> tuple[list[Finding], bool]:
    """Findings for the strings that agree once their cause is masked; whether any was left."""
    findings: list[Finding] = []
    masks = (
        (Cause.PATH, _mask_paths),
        (Cause.USER, _mask_names),
        (Cause.MODULE_ID, lambda text, _: _MODULE.sub("\0", text)),
        (Cause.TIME, lambda text, _: _TIME.sub("\0", text)),
        (Cause.COMPILER, lambda text, _: _COMPILER.sub("\0", text)),
    )
    rest_left, rest_right = list(left), list(right)
    for cause, mask in masks:
        others = {mask(text, second): text for text in reversed(rest_right)}
        explained = [
            (text, others[masked])
            for text in rest_left
            if "\0" in (masked := mask(text, first))
            if masked in others and others[masked] != text
        ]
        if explained:
            findings.append(_finding(cause, where, *explained[0]))
            gone_left = {text for text, _ in explained}
            masked_gone = {mask(text, first) for text in gone_left}
            rest_left = [text for text in rest_left if text not in gone_left]
            rest_right = [text for text in rest_right if mask(text, second) not in masked_gone]
    return findings, bool(rest_left or rest_right)


def _mask_paths(text: str, words: Words) -> str:
    """Absolute paths; the build's own folder may have blanks in it."""
    return _PATH.sub("\0", text.replace(words.folder, "/the/folder"))


def _mask_names(text: str, words: Words) -> str:
    for name in words.names:
        text = text.replace(name, "\0")
    return text


def _without_build_id(data: bytes) -> bytes:
    """The bytes with zeros for a build id: it follows from all the others, or from chance alone."""
    if data[: len(MAGIC)] != MAGIC:
        return data
    try:
        section = parse_elf(data, where="", symbols=False).section(_BUILD_ID)
    except FormatError:
        return data
    if section is None:
        return data
    end = section.offset + section.size
    return data[: section.offset] + bytes(section.size) + data[end:]


def _record(member: Member) -> Iterator[Finding]:
    """The build record: which input or compiler it names differently."""
    ours, theirs = (json.loads(data) for data in (member.first, member.second))
    told = (
        (Cause.COMPILER, ("compilers", "host")),
        (Cause.INPUT, ("compilers", "device")),
        (Cause.INPUT, ("torch",)),
        (Cause.INPUT, ("tools",)),
        (Cause.INPUT, ("commit",)),
        (Cause.INPUT, ("flags",)),
    )
    found = False
    for cause, keys in told:
        one, other = ours, theirs
        for key in keys:
            one, other = (one or {}).get(key), (other or {}).get(key)
        if one != other:
            found = True
            yield _finding(cause, f"{member.name}: {'.'.join(keys)}", str(one), str(other))
    if not found and ours.get("plan") != theirs.get("plan"):  # sources, or the line's own code
        yield _finding(Cause.INPUT, f"{member.name}: plan", str(ours["plan"]), str(theirs["plan"]))


def _strings(data: bytes) -> list[str]:
    return [found.decode("ascii") for found in _STRING.findall(data)]


def _without(these: Sequence[str], others: Sequence[str]) -> list[str]:
    """The strings that are here more often than there, in their order."""
    left = Counter(these) - Counter(others)
    return [text for text in dict.fromkeys(these) if left[text] > 0]


def _finding(cause: Cause, where: str, first: str, second: str) -> Finding:
    return Finding(cause=cause, where=where, first=_short(first), second=_short(second))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
