"""Name, version and tags agree in the file name, METADATA, WHEEL and the dist-info folder."""

from __future__ import annotations

from collections.abc import Iterator

from wheelfab.archive import FlawKind
from wheelfab.audit.facts import NEWER_FIELD, WheelFacts
from wheelfab.audit.localversion import misordered
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Severity
from wheelfab.audit.rules.flaws import broken_by
from wheelfab.audit.rules.registry import Broken, Outcome, rule

_NEVER_RENAME = "set it before the build and build again; a wheel is never renamed or edited"


@rule(
    "file-name",
    severity=Severity.ERROR,
    about="""The file name is that of a wheel: name, version, an optional build number, and the
    three tags, each in its normal form.""",
    next_step=_NEVER_RENAME,
)
def _file_name(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(facts, "name-version[-build]-python-abi-platform", FlawKind.FILE_NAME)


@rule(
    "dist-info",
    severity=Severity.ERROR,
    about="""There is one `.dist-info` folder at the top of the archive. Installers take the first
    of several, each its own first.""",
    next_step="build it again from an empty build folder",
)
def _dist_info(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(facts, "one dist-info folder", FlawKind.DIST_INFO)


@rule(
    "metadata-valid",
    severity=Severity.ERROR,
    about="""METADATA is there and valid as packaging.metadata reads it, strictly: known fields,
    allowed values, each requirement and version well formed. A field that the file's own
    Metadata-Version does not know yet is a warning, since many build tools write License-File
    early.""",
    next_step="mend the project's pyproject.toml or its build tool",
)
def _metadata(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    for broken in broken_by(facts, "valid core metadata", FlawKind.METADATA):
        early = NEWER_FIELD in broken.found
        yield Broken(
            subject=broken.subject,
            found=broken.found,
            allowed=broken.allowed,
            severity=Severity.WARNING if early else None,
        )


@rule(
    "name-equal",
    severity=Severity.ERROR,
    about="""The project's name is the same in the file name, METADATA, and the dist-info and data
    folders.""",
    next_step=_NEVER_RENAME,
)
def _name(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(facts, "one name everywhere", FlawKind.NAME)


@rule(
    "version-equal",
    severity=Severity.ERROR,
    about="""The version is the same, local part included, in the file name, METADATA, the dist-info
    and data folders, and a build record. A wheel that got its local version by renaming installs
    from its file and is refused from an index, and uv installs it again at every sync (B11).""",
    next_step=_NEVER_RENAME,
)
def _version(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(facts, "one version everywhere", FlawKind.VERSION)


@rule(
    "build-record",
    severity=Severity.ERROR,
    about="""Where a package has a `_build.json`, it has one, and it is a JSON object.""",
    next_step="build it again",
)
def _build_record(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(facts, "one JSON object", FlawKind.BUILD_RECORD)


@rule(
    "wheel-file",
    severity=Severity.ERROR,
    about="""WHEEL is there, of format 1.x, says whether the root is purelib, and has tags that are
    tags.""",
    next_step="build it again with a current build tool",
)
def _wheel_file(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(facts, "Wheel-Version 1.x, Root-Is-Purelib, Tag", FlawKind.WHEEL_FILE)


@rule(
    "wheel-tags",
    severity=Severity.ERROR,
    about="""WHEEL lists just the tags, and the build number, of the file name. A difference means
    that the file was renamed: what was checked when it was built is not what it claims.""",
    next_step="set the tag while building, or use `wheel tags`",
)
def _tags(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    yield from broken_by(facts, "the tags of the file name", FlawKind.TAG)


@rule(
    "local-version",
    severity=Severity.WARNING,
    about="""The parts of a local version are compared as text wherever a letter is in them, so
    `+cu92` is above `+cu118` and `+pt29` above `+pt210`: an upgrade then moves people to an older
    variant (B52). A dot before each number makes it count as one. Three digits are taken as enough
    (`cu118`, `cu130`), two where they are a CUDA major number (`cu12`).""",
    next_step="write a dot before each number: +cu118.torch2.9",
)
def _local(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    if facts.name is None or facts.name.version.local is None:
        return
    for part, why in misordered(facts.name.version.local):
        yield Broken(
            subject=f"+{facts.name.version.local}",
            found=f"{part!r} {why}",
            allowed="parts that sort as their numbers do",
        )
