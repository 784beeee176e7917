"""Progress goes to stderr, results to stdout, both fit for a file where there is no terminal."""

from __future__ import annotations

import hashlib
import json
import sys
import tracemalloc
from pathlib import Path

import pytest
from packaging.version import Version

from wheelfab import console
from wheelfab.errors import MatrixError


class Clock:
    """A clock that goes on by ``tick`` seconds each time it is asked."""

    def __init__(self, tick: float) -> None:
        self.now, self.tick = 0.0, tick

    def monotonic(self) -> float:
        """The time now."""
        self.now += self.tick
        return self.now


def shown(monkeypatch: pytest.MonkeyPatch, tick: float, total: int) -> None:
    """Count to ``total``, an item each ``tick`` seconds."""
    monkeypatch.setattr(console, "time", Clock(tick))
    with console.progress("build", total) as advance:
        for _ in range(total):
            advance()


def test_plain_progress_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(monkeypatch, 2.0, 8)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["build 3/8 (6 s)", "build 6/8 (12 s)", "build 8/8 (16 s)"]


def test_quick_work_has_its_last_line_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(monkeypatch, 0.01, 100)
    assert capsys.readouterr().err.splitlines() == ["build 100/100 (1 s)"]


def test_items_may_be_done_many_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "time", Clock(1.0))
    with console.progress("fork", 1000) as advance:
        advance(999)
        advance(1)
    assert capsys.readouterr().err == "fork 1000/1000 (2 s)\n"


@pytest.mark.parametrize("write", [console.step, console.note, console.warn, console.error])
def test_what_goes_on_is_on_stderr_word_for_word(
    capsys: pytest.CaptureFixture[str], write: console.Advance
) -> None:
    text = "variants.cu118.arch[3]: [bold]9.0a[/bold] " + "long " * 80
    write(text)  # type: ignore[arg-type]
    out, err = capsys.readouterr()
    assert out == ""
    assert err.removeprefix("warning: ").removeprefix("error: ") == text + "\n"
    assert "\x1b" not in err


def test_a_table_without_a_terminal_has_neither_colour_nor_cut_cells(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    reason = "torch 2.4 has no build for [CUDA 13.0] " + "and so on " * 12
    console.table(("cell", "reason"), [("cu130-torch2.4", reason), ("cpu-torch2.4", "")], title="T")
    out, err = capsys.readouterr()
    assert err == ""
    assert "\x1b" not in out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 160
    rows = [line.split("│")[1:-1] for line in out.splitlines() if "│" in line]
    assert [row[0].strip() for row in rows] == ["cu130-torch2.4", "", "cpu-torch2.4"]
    assert " ".join(" ".join(row[1] for row in rows).split()) == reason.strip()


def test_the_result_for_machines_is_one_document_in_plain_types(
    capsys: pytest.CaptureFixture[str],
) -> None:
    console.result_json({"b": Version("2.4.1"), "a": (Path("dist"), {3, 1}), "c": None})
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out) == {"a": ["dist", [1, 3]], "b": "2.4.1", "c": None}
    assert out.index('"a"') < out.index('"b"')
    assert out.endswith("}\n")


class Digest:
    """A stdout that keeps nothing but a digest of what is written."""

    def __init__(self) -> None:
        self.sha = hashlib.sha256()

    def write(self, text: str) -> None:
        """Take some more of the text."""
        self.sha.update(text.encode())

    def flush(self) -> None:
        """There is nothing to flush."""


def test_a_large_document_is_never_in_memory_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    value, written = {"a": [0] * 200_000}, Digest()
    text = json.dumps(value, indent=2) + "\n"
    monkeypatch.setattr(sys, "stdout", written)
    tracemalloc.start()
    console.result_json(value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert written.sha.hexdigest() == hashlib.sha256(text.encode()).hexdigest()
    assert peak < 4 << 20  # the copy in plain types takes 1.6 MB; the pieces together over 10


def test_what_has_no_plain_form_is_a_bug_not_a_text() -> None:
    with pytest.raises(TypeError, match="no plain form for MatrixError"):
        console.result_json([MatrixError("x")])


@pytest.mark.parametrize("text", ["dist", "dist\n"])
def test_a_result_ends_with_one_newline(capsys: pytest.CaptureFixture[str], text: str) -> None:
    console.result(text)
    assert capsys.readouterr().out == "dist\n"
