"""What a wheel requires on the machines that it is for: markers judged, several lines together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from packaging.markers import Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import canonicalize_name

_PYTHON = "3.12"  # of tags that name no series, as py3 does
_NAMED = re.compile(r"(?:cp|py)3\d+")
_MACHINE = re.compile(r"(?:linux|manylinux\d+|(?:many|musl)linux_\d+_\d+)_(?P<machine>\w+)")


def machine_of(platform: str) -> str | None:
    """The machine that a platform tag of Linux names, ``x86_64``; ``None`` of any other tag."""
    found = _MACHINE.fullmatch(platform)
    return found["machine"] if found else None


def required(needs: Iterable[Requirement], tags: Iterable[Tag]) -> Mapping[str, SpecifierSet]:
    """The distributions required without extras, each with all that is wanted of its version.

    Markers are judged for Linux, the machine of the tags and the oldest Python that they name.
    """
    environment = _environment(frozenset(tags))
    found: dict[str, SpecifierSet] = {}
    for need in needs:
        if need.marker is None or _holds(need.marker, environment):
            name = canonicalize_name(need.name)
            found[name] = found.get(name, SpecifierSet()) & need.specifier
    return found


def _holds(marker: Marker, environment: Mapping[str, str]) -> bool:
    """Whether a marker applies; one that compares what cannot be compared does."""
    try:
        return marker.evaluate(dict(environment))
    except (UndefinedComparison, UndefinedEnvironmentName):
        return True


def _environment(tags: frozenset[Tag]) -> Mapping[str, str]:
    named = [tag.interpreter for tag in tags if _NAMED.fullmatch(tag.interpreter)]
    python = min((f"3.{name[3:]}" for name in named), key=_minor, default=_PYTHON)
    machines = sorted({machine for tag in tags if (machine := machine_of(tag.platform))})
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": f"{python}.99",
        "os_name": "posix",
        "platform_machine": machines[0] if machines else "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.99",  # the newest of the series
        "python_version": python,
        "sys_platform": "linux",
    }


def _minor(python: str) -> int:
    return int(python.partition(".")[2])
