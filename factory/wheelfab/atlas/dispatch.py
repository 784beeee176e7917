"""The numbers of ``c10::DispatchKey``: a header fixes them, so a binding has its own torch's.

``TORCH_LIBRARY_IMPL(name, CPU, m)`` compiles to the number that CPU had in the headers. Keys come
and go between releases and move the others: torch 2.13 took ``Named`` out, and what was CPU's
number became that of no backend at all on 2.12. No symbol tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from wheelfab.errors import FormatError

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENUM = re.compile(r"enum\s+class\s+DispatchKey\b[^{]*\{(.*?)\};", re.DOTALL)
_LIST = re.compile(r"#define\s+(C10_FORALL_\w+)\(_(?:,\s*\w+)?\)((?:[^\n]*\\\n)*[^\n]*)")
_ENTRY = re.compile(r"_\(\s*(\w+)\s*,\s*(\w*)\s*\)")
_ITEM = re.compile(r"(\w+)\s*(?:=\s*(\w+))?\s*(?:,|$)")
_PER_BACKEND = "C10_FORALL_FUNCTIONALITY_KEYS(DEFINE_PER_BACKEND_KEYS)"
_BACKENDS, _FUNCTIONS = "C10_FORALL_BACKEND_COMPONENTS", "C10_FORALL_FUNCTIONALITY_KEYS"
_MOST = 4096


def read_dispatch_keys(header: str, where: str = "c10/core/DispatchKey.h") -> tuple[str, ...]:
    """The names of the keys by number, from the text of the header.

    Of several names for a number the first is given. Raises ``FormatError`` when the header is not
    laid out as torch 2.1 to 2.15 have it.
    """
    lists = {name: _ENTRY.findall(body) for name, body in _LIST.findall(header)}
    text = _COMMENT.sub("", header)
    found = _ENUM.search(text)
    if found is None or not lists.get(_BACKENDS) or not lists.get(_FUNCTIONS):
        raise FormatError("no list of dispatch keys as it is known here", where=where)
    before, call, after = found.group(1).partition(_PER_BACKEND)
    if not call:
        raise FormatError("no keys by backend", where=where)
    numbers: dict[str, int] = {}
    names: list[str] = []
    items = (*_items(before), *_per_backend(lists), *_items(after))
    for name, value in items:
        if value is None or value.isdigit():
            number = int(value) if value else len(names)
        elif value in numbers:
            number = numbers[value]
        else:
            raise FormatError(f"{name} is {value}, which is not a key before it", where=where)
        if number > min(len(names), _MOST):
            raise FormatError(f"{name} leaves numbers out", where=where)
        if number == len(names):
            names.append(name)
        numbers[name] = number
    return tuple(names)


def _items(text: str) -> Iterator[tuple[str, str | None]]:
    plain = re.sub(r"^\s*#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.MULTILINE)
    for name, value in _ITEM.findall(plain):
        yield name, value or None


def _per_backend(lists: dict[str, list[tuple[str, str]]]) -> Iterator[tuple[str, str | None]]:
    backends = [name for name, _ in lists[_BACKENDS]]
    for full, prefix in lists[_FUNCTIONS]:
        yield f"StartOf{full}Backends", None
        for backend in backends:
            yield f"{prefix}{backend}", None
        yield f"EndOf{full}Backends", f"{prefix}{backends[-1]}"
