"""The archive is sound: whole, within bounds, and unpacked alike by every program."""

from __future__ import annotations

from collections.abc import Iterator

from wheelfab.archive import LIMITS, FlawKind
from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Severity
from wheelfab.audit.rules.flaws import broken_by
from wheelfab.audit.rules.registry import Outcome, rule


@rule(
    "archive-zip",
    severity=Severity.ERROR,
    about="""A wheel is one whole zip archive of stored or deflated members. One that was cut off
    while it was copied, or damaged on its way, is found here: every member is unpacked and its
    checksum compared. Each member's own header must say what the list at the end says, and no bytes
    may lie before, between, in or after the members that are no file's: otherwise two programs
    unpack two different wheels from one file.""",
    next_step="build or download it again",
    unsound=True,
)
def _zip(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(
        facts,
        "a whole zip archive that all programs read alike",
        FlawKind.NOT_A_ZIP,
        FlawKind.TRUNCATED,
        FlawKind.STRAY_BYTES,
        FlawKind.UNREADABLE,
        FlawKind.DAMAGED,
        FlawKind.HEADER,
    )


@rule(
    "archive-path",
    severity=Severity.ERROR,
    about="""Members have relative paths below the folder that the wheel is unpacked into: no
    leading slash or drive, no empty, `.` or `..` part, no backslash and no control character.
    Anything else writes outside site-packages with a careless installer.""",
    next_step="build it from clean sources; do not install this one",
    unsound=True,
)
def _path(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(facts, "a relative path inside the wheel", FlawKind.BAD_PATH)


@rule(
    "archive-duplicate",
    severity=Severity.ERROR,
    about="""No name is in the archive twice. Which of the two an installer takes depends on the
    installer, and RECORD can only be right about one.""",
    next_step="build it again from an empty build folder",
    unsound=True,
)
def _duplicate(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(facts, "each name once", FlawKind.DUPLICATE)


@rule(
    "archive-link",
    severity=Severity.ERROR,
    about="""Members are files and folders: no symbolic links, devices or pipes. Installers write a
    link's target as its text, or follow it out of site-packages.""",
    next_step="ship the file itself, once, under the name that is needed at load",
    unsound=True,
)
def _link(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(facts, "a file or a folder", FlawKind.LINK)


@rule(
    "archive-bomb",
    severity=Severity.ERROR,
    about=f"""What the archive unpacks to is bounded: {LIMITS.members:,} members,
    {LIMITS.member >> 30} GiB each and {LIMITS.total >> 30} GiB together; members over
    {LIMITS.ratio_from >> 20} MiB at most {LIMITS.ratio} times their packed size; METADATA, WHEEL
    and RECORD {LIMITS.text >> 20} MiB each. Members that share their bytes count as over it.""",
    next_step="do not unpack it; build it again",
    unsound=True,
)
def _bomb(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(facts, "sizes within the bounds", FlawKind.OVER_LIMIT)
