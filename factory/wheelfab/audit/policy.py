"""The policy of an audit: what is allowed, read from TOML with all its errors reported."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from packaging.version import InvalidVersion, Version
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)

from wheelfab.arch import FORM, parse_arch_list
from wheelfab.audit.kind import WheelKind
from wheelfab.audit.record import Severity
from wheelfab.elf import Relro
from wheelfab.errors import UsageError
from wheelfab.matrix_file import malformed, size_in_bytes
from wheelfab.matrix_reader import key_path
from wheelfab.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic_core import ErrorDetails

_LARGEST = 256 * 1024  # bytes
_MOST = 1000  # entries of an array
_OPERATOR = re.compile(r"\w+(::\w+)?", re.ASCII)
_CAPABILITY = re.compile(r"[1-9]\d?\.\d", re.ASCII)


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return size_in_bytes(value)
    except ValueError as error:
        raise malformed(str(error), "write a size such as 40 MB or 64 MiB") from error


def _archs(text: str) -> str:
    try:
        parse_arch_list(text)
    except UsageError as error:
        raise malformed(error.what, error.next_step or FORM) from error
    return text


def _capability(text: str) -> str:
    if not _CAPABILITY.fullmatch(text):
        step = "write a compute capability such as 9.0"
        raise malformed(f"unknown GPU {text[:40]!r}", step)
    return text


def _release(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion as error:
        raise malformed(f"unknown release {text!r}", "write a release such as 12.1") from error
    return text


def _operator(text: str) -> str:
    if not _OPERATOR.fullmatch(text):
        next_step = "write a namespace, or namespace::name"
        raise malformed(f"no operator {text!r}", next_step)
    return text


ArchList = Annotated[str, AfterValidator(_archs)]
Capability = Annotated[str, AfterValidator(_capability)]
Release = Annotated[str, AfterValidator(_release)]
Bytes = Annotated[int, BeforeValidator(_size)]
Texts = Annotated[tuple[str, ...], Field(max_length=_MOST)]
Operator = Annotated[str, AfterValidator(_operator)]
Operators = Annotated[tuple[Operator, ...], Field(max_length=_MOST)]


class Table(BaseModel):
    """A table of the policy file: unknown keys are errors, keys are written with hyphens."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )


class IgnoreTable(Table):
    """One kind of finding that is let pass."""

    rule: str = Field(description="A rule's name, or a pattern: `archive-*`.")
    subject: str = Field(default="*", description="The subject, or a pattern: `*/tests/*`.")
    reason: str = Field(min_length=1, description="Why; it is shown with the finding.")


class ContentsTable(Table):
    """What lies in the wheel."""

    packages: Texts = Field(
        default=(), description="Top-level names that belong to the wheel beside its own."
    )
    files: Texts = Field(
        default=(), description="Patterns of files that are meant to be there: `pkg/include/*.h`."
    )
    budget: Bytes | None = Field(
        default=None,
        gt=0,
        description="The largest size of the file, `40 MB`. Without it, over 100 MiB is a warning.",
    )


class ElfTable(Table):
    """Shared libraries and programs. Patterns are those of file names: `libfoo*.so*`."""

    needs: Texts = Field(
        default=(), description="Libraries that may be needed although nothing here explains them."
    )
    bundles: Texts = Field(
        default=(), description="Members that may be copies of torch, CUDA or the driver."
    )
    undefined: Texts = Field(
        default=(), description="Symbols that may stay undefined although nothing explains them."
    )
    relro: Relro = Field(
        default=Relro.PARTIAL, description="The least: `none`, `partial` or `full`."
    )
    cpu_level: int = Field(
        default=1, ge=1, le=4, description="The level of x86-64 that all code may need, 1 to 4."
    )
    stripped: bool | None = Field(
        default=None,
        description="Whether the table of all symbols must be gone, or must be there.",
    )


class DeviceTable(Table):
    """Device code."""

    archs: ArchList | None = Field(
        default=None,
        description="What each file with device code holds, as `TORCH_CUDA_ARCH_LIST` says it; by "
        "default what the build record says.",
    )
    gpus: tuple[Capability, ...] = Field(
        default=(),
        max_length=_MOST,
        description="Compute capabilities that something must run on: `9.0`.",
    )
    cuda: Release | None = Field(
        default=None, description="The CUDA release of the wheel, `12.1`: no PTX is newer."
    )
    kernels: Texts = Field(
        default=(),
        description="Kernels, or patterns, that must be there for every arch asked for: "
        "`*paged_attention*`.",
    )


class TorchTable(Table):
    """What is registered with torch."""

    operators: Operators = Field(
        default=(),
        description="Namespaces and operators that a library must name: `freewheel`, "
        "`freewheel::rms_norm`.",
    )


class ImportsTable(Table):
    """What loading does."""

    initialisers: int = Field(
        default=200, ge=0, description="How many functions may run when a library is loaded."
    )


class Policy(Table):
    """What an audit allows; every key has a default."""

    kind: WheelKind | None = Field(
        default=None, description="What the wheel must be; by default it is taken as what it is."
    )
    required: Texts = Field(
        default=(),
        description="Rules, or patterns, that must have been checked: else the exit code is 14.",
    )
    severity: dict[str, Severity] = Field(
        default_factory=dict, description="Rule = `error`, `warning` or `note`."
    )
    ignore: tuple[IgnoreTable, ...] = Field(
        default=(), max_length=_MOST, description="Findings that are let pass, with the reasons."
    )
    contents: ContentsTable = Field(default_factory=ContentsTable, description="See below.")
    elf: ElfTable = Field(default_factory=ElfTable, description="See below.")
    device: DeviceTable = Field(default_factory=DeviceTable, description="See below.")
    torch: TorchTable = Field(default_factory=TorchTable, description="See below.")
    imports: ImportsTable = Field(default_factory=ImportsTable, description="See below.")


def read_policy(path: Path, rules: Iterable[str]) -> Policy:
    """The policy in a TOML file; ``rules`` are the names of all rules.

    Raises ``UsageError`` with everything that is wrong with it: no TOML, unknown keys and rules,
    values of another type.
    """
    raw = _read(path)
    try:
        policy = Policy.model_validate(raw)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise _joined(path, [_worded(detail) for detail in details]) from error
    unknown = list(_unknown_rules(policy, tuple(rules)))
    if unknown:
        raise _joined(path, unknown)
    return policy


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise UsageError(f"is longer than {_LARGEST // 1024} KiB", where=str(path))
        return tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"not TOML: {error}", where=str(path)) from error


def _joined(path: Path, lines: list[str]) -> UsageError:
    return UsageError("\n".join(f"{path.name}: {line}" for line in lines))


def _worded(detail: ErrorDetails) -> str:
    location, context = detail["loc"], detail.get("ctx", {})
    where = key_path(location)
    match detail["type"]:
        case "extra_forbidden":
            return f"{where}: unknown key; {did_you_mean(str(location[-1]), _keys(location[:-1]))}"
        case "malformed":
            return f"{where}: {context['what']}; {context['next_step']}"
        case "enum":
            known = str(context["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
            return f"{where}: unknown value; {did_you_mean(str(detail['input'])[:60], known)}"
        case "missing":
            return f"{where}: is missing"
    return f"{where}: {detail['msg']}"


def _keys(location: tuple[str | int, ...]) -> tuple[str, ...]:
    """The keys of the table at that place of the file."""
    table: type[Table] = Policy
    for part in location:
        names = {field.alias or name: name for name, field in table.model_fields.items()}
        if isinstance(part, int) or part not in names:
            continue
        table = _TABLES.get(names[part], table)
    return tuple(field.alias or name for name, field in table.model_fields.items())


_TABLES: dict[str, type[Table]] = {
    "ignore": IgnoreTable,
    "contents": ContentsTable,
    "elf": ElfTable,
    "device": DeviceTable,
    "torch": TorchTable,
    "imports": ImportsTable,
}


def tables() -> dict[str, type[Table]]:
    """The tables of a policy by their name in the file, the top level as the empty name."""
    return {"": Policy, **_TABLES}


def _unknown_rules(policy: Policy, rules: tuple[str, ...]) -> Iterator[str]:
    named = [("severity", name) for name in policy.severity]
    named += [("required", name) for name in policy.required]
    named += [(f"ignore[{at}].rule", entry.rule) for at, entry in enumerate(policy.ignore)]
    for where, name in named:
        if not any(fnmatchcase(known, name) for known in rules):
            yield f"{where}: no rule {name!r}; {did_you_mean(name, rules)}"
