"""``compat.html``: the table as one page that a person asks, without any other file or server.

Scripts and styles stand in the page and are allowed by their digests alone; the data is JSON that
no browser runs.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import asdict
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from wheelfab.compat.line import PLACEHOLDER
from wheelfab.compat.offer import Picked
from wheelfab.compat.record import Answer, By, CompatTable
from wheelfab.compat.verdict import NO_GPU, numbers
from wheelfab.records import to_plain

_TEMPLATES = "templates"


def to_html(table: CompatTable) -> str:
    """The page, the same text for the same table."""
    style = _text("compat.css")
    scripts = [_text(name) for name in ("verdict.js", "page.js")]
    script = "\n".join(["'use strict';", *scripts])
    data = {**to_plain(table), "start": asdict(start(table))}
    return (
        _environment()
        .get_template("compat.html")
        .render(
            table=table,
            data=data,
            style=Markup(style),  # noqa: S704 (this package's own files)
            script=Markup(script),  # noqa: S704
            style_digest=_digest(style),
            script_digest=_digest(script),
            index_words=index_words(table),
            no_gpu=NO_GPU,
            start=start(table),
            gpus=_gpus(table),
        )
    )


def start(table: CompatTable) -> Picked:
    """What is picked when the page opens: the newest place, on the CPU, that a load was made in."""
    seen = [
        (entry.torch, python, glibc)
        for row in table.wheels
        for entry in row.torch
        if entry.answer is Answer.WORKS and entry.by is By.LOOP
        for python in entry.pythons_seen
        for glibc in entry.glibcs_seen
    ]
    torch, python, glibc = max(
        seen,
        key=lambda item: tuple(map(numbers, item)),
        default=(table.axes.torch[-1], "3.12", table.axes.glibc[-1]),
    )
    return Picked(torch=torch, python=python, glibc=glibc, gpu=NO_GPU, driver="")


def index_words(table: CompatTable) -> str:
    """Where the install lines lead to, or that they have a placeholder."""
    if table.index_url is not None:
        return f"The index is served at {table.index_url}."
    return (
        f"{PLACEHOLDER} stands for the address where the index is served: nobody said it when this "
        "page was made (wheelfab compat --index-url)."
    )


def _gpus(table: CompatTable) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """The options by architecture, newest first: name of a GPU, its capability, a label."""
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for item in reversed(table.axes.gpu):
        options = groups.setdefault(item.architecture, [])
        for name in item.examples:
            options.append((name, item.capability, f"{name} ({item.capability})"))
        other = f"another {item.architecture} of compute capability {item.capability}"
        options.append((item.capability, item.capability, other))
    return list(groups.items())


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@lru_cache
def _text(name: str) -> str:
    return (files("wheelfab.compat") / _TEMPLATES / name).read_text(encoding="utf-8")


@lru_cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("wheelfab.compat"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
