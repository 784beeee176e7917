"""RECORD lists every file with its hash and size, and no others."""

from __future__ import annotations

from collections.abc import Iterator

from wheelfab.archive import FlawKind
from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Severity
from wheelfab.audit.rules.flaws import broken_by
from wheelfab.audit.rules.registry import Outcome, rule

_NEXT_STEP = "build it again, or repack it with `wheel pack`; nothing is edited afterwards"


@rule(
    "record-complete",
    severity=Severity.ERROR,
    about="""RECORD is there, has three columns, lists every file of the archive once, lists itself
    without a hash, and lists nothing that is not in the archive. pip does not look; strict
    installers refuse, and what is not listed stays behind when the package is removed (B56).""",
    next_step=_NEXT_STEP,
)
def _complete(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(
        facts,
        "a row for each file, and a file for each row",
        FlawKind.RECORD,
        FlawKind.RECORD_DUPLICATE,
        FlawKind.UNRECORDED,
        FlawKind.ABSENT,
    )


@rule(
    "record-hash",
    severity=Severity.ERROR,
    about="""Each row's hash and size are the file's. A difference means that the wheel was edited
    after it was built, or damaged by whoever packed it again (B56).""",
    next_step=_NEXT_STEP,
)
def _hash(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(facts, "the file's own hash and size", FlawKind.HASH, FlawKind.SIZE)


@rule(
    "record-hash-form",
    severity=Severity.ERROR,
    about="""A hash is sha256, sha384 or sha512 in base64url without padding, as the binary
    distribution format says. md5 and sha1 are not allowed; hex is no hash at all.""",
    next_step=_NEXT_STEP,
)
def _form(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(facts, "sha256=, base64url, no padding", FlawKind.HASH_FORM)
