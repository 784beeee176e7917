"""Reads ``matrix.toml`` into its tables; every flaw of its shape is worded, none hides another."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from wheelfab.errors import MatrixError
from wheelfab.matrix_file import (
    DebugTable,
    DeviceRunTable,
    DeviceTable,
    ExcludeTable,
    HostKeys,
    HostTable,
    LoadTable,
    MatrixFile,
    PartTable,
    PinTable,
    ProjectTable,
    RowDefaults,
    SessionTable,
    VariantTable,
)
from wheelfab.suggest import did_you_mean, nearest

Location = tuple[str | int, ...]

_ANY = "*"
_TABLES: tuple[tuple[tuple[str, ...], type[BaseModel]], ...] = (
    ((), MatrixFile),
    (("project",), ProjectTable),
    (("project", "device"), DeviceTable),
    (("project", "debug"), DebugTable),
    (("project", "device-run"), DeviceRunTable),
    (("project", "parts", _ANY), PartTable),
    (("project", "load", _ANY), LoadTable),
    (("torch", _ANY), PinTable),
    (("defaults",), RowDefaults),
    (("variants", _ANY), VariantTable),
    (("exclude", _ANY), ExcludeTable),
    (("sessions", _ANY), SessionTable),
    (("hosts", _ANY), HostTable),
    (("hosts", _ANY, "cases", _ANY), HostKeys),
)
_LARGEST = 256 * 1024  # bytes
_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_AT = re.compile(r"(?P<what>.*) \(at (?P<place>line \d+, column \d+|end of document)\)", re.DOTALL)
_EXPECTED = {
    "string_type": "a string",
    "bool_type": "true or false",
    "tuple_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What could be read. ``file`` holds the tables without a flaw, ``errors`` the flaws.

    ``broken`` names the tables that have one, as ``("variants", "cu121")`` or ``("project",)``: a
    broken project is replaced by a placeholder that every rule accepts, a broken row, pin or
    exclusion is absent. ``file`` is ``None`` where a whole section is missing or not a table.
    ``exclude_at`` gives the index in the text of each exclusion that is left.
    """

    name: str
    file: MatrixFile | None
    raw: Mapping[str, Any]
    errors: tuple[MatrixError, ...]
    broken: frozenset[tuple[str, ...]]
    exclude_at: tuple[int, ...]


def read_tables(raw: dict[str, Any], name: str) -> Reading:
    """The tables of the TOML document ``raw``; ``name`` is the file's, for messages."""
    try:
        file = MatrixFile.model_validate(raw)
    except ValidationError as error:
        return _read_in_pieces(name, raw, error)
    at = tuple(range(len(file.exclude)))
    return Reading(name=name, file=file, raw=raw, errors=(), broken=frozenset(), exclude_at=at)


def key_path(location: Iterable[str | int]) -> str:
    """The dotted path of a key: ``variants.cu118.arch[3]``, ``torch."stable >= 2.10".headers``."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _BARE.fullmatch(part) else json.dumps(part))
    return text


def table_at(location: Location) -> type[BaseModel] | None:
    """The model of the table at that place of the file."""
    for pattern, table in _TABLES:
        if len(pattern) == len(location) and all(
            want in (_ANY, part) for want, part in zip(pattern, location, strict=True)
        ):
            return table
    return None


def read_toml(path: Path) -> dict[str, Any]:
    """The TOML document in the file ``path``.

    Raises ``MatrixError`` where there is no file, or what it holds is too long, or not TOML.
    """
    name = path.name
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise MatrixError(
            f"cannot be read: {error.strerror}",
            where=str(path),
            next_step="run in the folder of matrix.toml, or name the file",
        ) from error
    if len(data) > _LARGEST:
        raise MatrixError(f"is longer than {_LARGEST // 1024} KiB", where=name)
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise MatrixError("is not UTF-8", where=f"{name}: line {line}") from error
    except tomllib.TOMLDecodeError as error:
        found = _AT.fullmatch(str(error))
        what, place = (found["what"], found["place"]) if found else (str(error), "")
        where = f"{name}: {place}" if place else name
        raise MatrixError(f"not TOML: {what}", where=where) from error
    except RecursionError as error:
        raise MatrixError("is nested too deeply", where=name) from error


def _read_in_pieces(name: str, raw: dict[str, Any], error: ValidationError) -> Reading:
    """Word the errors, then read again what they do not touch, so that the rules can look at it."""
    details = _without_consequences(error.errors(include_url=False))
    broken = frozenset(
        ("defaults",) if _misspelt_defaults(detail) else _table_of(detail["loc"])
        for detail in details
    )
    errors = tuple(_worded(name, detail) for detail in details)
    pieces = [raw.get(key, {}) for key in ("project", "torch", "defaults", "variants")]
    excludes = raw.get("exclude", [])
    if any(not isinstance(piece, dict) for piece in pieces) or not isinstance(excludes, list):
        return Reading(name=name, file=None, raw=raw, errors=errors, broken=broken, exclude_at=())
    kept = tuple(index for index in range(len(excludes)) if ("exclude", str(index)) not in broken)
    file = _pieces(raw, details, broken, kept)
    return Reading(name=name, file=file, raw=raw, errors=errors, broken=broken, exclude_at=kept)


def _pieces(
    raw: Mapping[str, Any],
    details: Iterable[ErrorDetails],
    broken: frozenset[tuple[str, ...]],
    kept: Iterable[int],
) -> MatrixFile:
    """The tables without a flaw; of the defaults, the keys without one."""
    flawed = {detail["loc"][1] for detail in details if detail["loc"][0] == "defaults"}
    defaults = {key: value for key, value in raw.get("defaults", {}).items() if key not in flawed}
    project = ProjectTable.model_validate(
        raw["project"] if ("project",) not in broken else _placeholder()
    )

    def whole(section: str) -> Mapping[str, Any]:
        table: Mapping[str, Any] = raw.get(section, {})
        return {key: value for key, value in table.items() if (section, key) not in broken}

    return MatrixFile.model_construct(
        project=project,
        torch={key: PinTable.model_validate(value) for key, value in whole("torch").items()},
        defaults=RowDefaults.model_validate(defaults),
        variants={
            key: VariantTable.model_validate(value) for key, value in whole("variants").items()
        },
        exclude=tuple(ExcludeTable.model_validate(raw["exclude"][index]) for index in kept),
    )


def _placeholder() -> dict[str, Any]:
    """A project that no rule objects to, in place of one with a flaw."""
    return {
        "name": "placeholder",
        "python": ">=3.0",
        "python-tag": "py3-none",
        "glibc": "2.41",
        "sources": ["*"],
        "parts": {"placeholder": {"per": "project", "inputs": ["*"]}},
        "load": [{"stage": "placeholder", "run": "pass"}],
    }


def _table_of(location: Location) -> tuple[str, ...]:
    """The table that an error breaks: a row, a pin, an exclusion, or a section."""
    length = 2 if location[0] in ("torch", "variants", "exclude") else 1
    return tuple(str(part) for part in location[:length])


def _misspelt_defaults(detail: ErrorDetails) -> bool:
    key = str(detail["loc"][0])
    sections = _keys(())
    return key not in sections and nearest(key, sections) == "defaults"


def _without_consequences(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out "too short" where it only follows from a flaw further down."""
    return [
        detail
        for detail in details
        if detail["type"] != "too_short"
        or not any(
            other["loc"][: len(detail["loc"])] == detail["loc"] and other["loc"] != detail["loc"]
            for other in details
        )
    ]


def _worded(name: str, detail: ErrorDetails) -> MatrixError:
    what, next_step = _words(detail)
    where = key_path(detail["loc"])
    return MatrixError(what, where=f"{name}: {where}", next_step=next_step)


def _words(detail: ErrorDetails) -> tuple[str, str]:  # noqa: PLR0911 (a kind a return)
    """What is wrong and what to do about it."""
    location, context = detail["loc"], detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return "unknown key", did_you_mean(str(location[-1]), _keys(location[:-1]))
        case "missing":
            return "is missing", f"add it: {_description(location)}"
        case "malformed":
            return str(context["what"]), str(context["next_step"])
        case "enum":
            known = re.findall(r"'([^']*)'", str(context["expected"]))
            if isinstance(detail["input"], str):
                return (
                    f"unknown value {detail['input'][:60]!r}",
                    did_you_mean(detail["input"], known),
                )
            return f"expected a string, found {_shown(detail['input'])}", ""
        case "too_short" | "string_too_short":
            return "is empty", _description(location)
        case "too_long" | "string_too_long":
            size, unit = len(detail["input"]), "characters"
            if detail["type"] == "too_long":
                unit = "entries"
            return f"has {size} {unit}; at most {context['max_length']} are read", ""
        case kind if kind in _EXPECTED:
            what = f"expected {_EXPECTED[kind]}, found {_shown(detail['input'])}"
            return what, _rewritten(kind, detail["input"]) or _description(location)
    return detail["msg"], ""


def _rewritten(kind: str, value: object) -> str:
    """What to write instead of a value of the wrong type, where that is plain."""
    if kind == "string_type" and isinstance(value, float):
        return "put the number in quotes, so that 12.10 stays 12.10"
    if kind == "tuple_type" and isinstance(value, str):
        return f"write [{json.dumps(value[:60], ensure_ascii=False)}]"
    return ""


def _shown(value: object) -> str:
    match value:
        case dict():
            return "a table"
        case list():
            return "an array"
        case str() | bool() | int() | float():
            text = json.dumps(value, ensure_ascii=False)
            return text if len(text) <= 60 else text[:59] + "…"
    return str(value)


def _keys(location: Location) -> tuple[str, ...]:
    table = table_at(location)
    if table is None:
        return ()
    return tuple(field.alias or name for name, field in table.model_fields.items())


def _description(location: Location) -> str:
    """What the key is for, as the reference says it, where it is a key of a table."""
    table = table_at(location[:-1])
    for name, field in table.model_fields.items() if table else ():
        if location[-1] in (field.alias, name) and field.description:
            text = field.description.rstrip(".").replace("`", "")
            return text[0].lower() + text[1:]
    return ""
