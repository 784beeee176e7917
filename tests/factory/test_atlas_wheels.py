"""A wheel against an atlas: which libraries ask, what they say together, what a reader is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfab.atlas import Kind, Verdict
from wheelfab.atlas.demangle import demangle
from wheelfab.atlas.show import plain_answers, show_answers
from wheelfab.atlas.wheels import WheelReport, ask
from wheelfab.errors import FormatError, WheelError

from .atlasmaker import atlas, release
from .elfmaker import make_library
from .wheelmaker import make_wheel

ADD, LATER, SHIM = "_ZN2at6Tensor3addEv", "_ZN2at6Tensor5laterEv", "aoti_torch_new"
MADE = atlas(
    (release("2.4.1"), {"libtorch_cpu.so": [ADD]}),
    (release("2.5.0"), {"libtorch_cpu.so": [ADD, SHIM]}),
    (release("2.6.0"), {"libtorch_cpu.so": [ADD, LATER, SHIM]}),
)


def report(folder: Path, **libraries: bytes) -> WheelReport:
    """The report of a wheel with these libraries, whose METADATA allows torch 2.5 and later."""
    files = {f"example/{name}.so": data for name, data in libraries.items()}
    return ask(MADE, make_wheel(folder, files=files, requires_dist=("torch>=2.5",)))


def library(*undefined: str, weak: tuple[str, ...] = ()) -> bytes:
    return make_library(undefined=undefined, needed=["libtorch_cpu.so"], weak=weak)


def test_b01_a_wheel_and_its_releases(tmp_path: Path) -> None:
    found = report(tmp_path, a=library(ADD, LATER, "memcpy"), b=make_library())
    assert [item.verdict for item in found.answers] == [Verdict.FAILS] * 2 + [Verdict.LOADS]
    assert [item.allowed for item in found.answers] == [False, True, True]
    assert (found.kind, str(found.since)) == (Kind.CLASSIC, "2.6.0")
    assert found.notes == ("METADATA allows torch 2.5.0, on which it fails",)
    (binding,) = found.bindings
    assert binding.undefined == (ADD, LATER)


def test_the_stable_abi_from_its_first_release_on(tmp_path: Path) -> None:
    found = report(tmp_path, a=library(SHIM))
    assert (found.kind, str(found.since)) == (Kind.STABLE, "2.5.0")


def test_what_a_weak_symbol_or_another_library_of_the_wheel_settles(tmp_path: Path) -> None:
    mine = "_ZN2at4mine3runEv"
    found = report(tmp_path, a=library(ADD, mine, weak=(LATER,)), b=make_library(defined=[mine]))
    assert {item.verdict for item in found.answers} == {Verdict.LOADS}


def test_a_wheel_without_torch_says_so(tmp_path: Path) -> None:
    found = report(tmp_path, a=make_library(undefined=["memcpy"]))
    assert (found.kind, found.answers, found.since) == (Kind.NONE, (), None)
    assert found.notes == (
        "its libraries want nothing of torch: the atlas has nothing to say of it",
    )
    assert report(tmp_path).notes[0].startswith("it has no library")


def test_libraries_that_disagree_say_so(tmp_path: Path) -> None:
    found = report(tmp_path, a=library(ADD), b=library(SHIM))
    first = found.answers[0]
    assert first.verdict is Verdict.UNKNOWN
    assert "its libraries disagree" in first.reason
    assert "example/b.so: 1 of 1 symbols are missing" in first.reason
    assert found.answers[1].verdict is Verdict.LOADS
    assert any("libraries of different interfaces" in note for note in found.notes)


def test_a_library_that_wants_no_symbol_has_no_say(tmp_path: Path) -> None:
    found = report(tmp_path, a=library(SHIM), b=library("memcpy"))
    assert [item.verdict for item in found.answers] == [Verdict.FAILS] + [Verdict.LOADS] * 2
    assert found.answers[0].reason == "1 of 1 symbols are missing"


def test_metadata_that_a_strict_reader_refuses(tmp_path: Path) -> None:
    files = {"example/a.so": library(ADD)}
    extra = "License-File: LICENSE\n"
    wheel = make_wheel(tmp_path, files=files, requires_dist=("torch<2.6",), extra_metadata=extra)
    found = ask(MADE, wheel)
    assert [item.allowed for item in found.answers] == [True, True, False]


def test_lines_with_markers_and_several_lines_hold_together(tmp_path: Path) -> None:
    lines = ("torch<2; sys_platform == 'darwin'", "torch>=2.5", "torch<2.6", "torch; extra == 'x'")
    wheel = make_wheel(tmp_path, files={"example/a.so": library(ADD)}, requires_dist=lines)
    found = ask(MADE, wheel)
    assert [item.allowed for item in found.answers] == [False, True, False]
    assert found.requires == "<2.6,>=2.5"


def test_what_is_no_wheel(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="no such file"):
        ask(MADE, tmp_path / "none.whl")
    (tmp_path / "a.whl").write_bytes(b"GIF89a")
    with pytest.raises(FormatError, match="not a zip archive"):
        ask(MADE, tmp_path / "a.whl")
    wheel = make_wheel(tmp_path, files={"a.so": b"\x7fELF" + bytes(100)})
    with pytest.raises(FormatError, match="ELF"):
        ask(MADE, wheel)


def test_what_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(tmp_path, a=library(ADD, LATER))
    show_answers([found])
    shown = capsys.readouterr().out
    assert "2.4.1+cu121" in shown
    assert "at::Tensor::later()" in shown
    plain = plain_answers([found])["wheels"][0]
    missing = plain["releases"][0]["missing"]
    assert missing == [{"symbol": LATER, "name": "at::Tensor::later()"}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("_ZN2at3addERKNS_6TensorES2_", "at::add(at::Tensor const&, at::Tensor const&)"),
        ("aoti_torch_new", "aoti_torch_new"),
        ("_Znonsense", "_Znonsense"),
        ("_ZN" + "2at" * 1000 + "Ev", "_ZN" + "2at" * 1000 + "Ev"),
    ],
)
def test_names_as_people_write_them(name: str, text: str) -> None:
    assert demangle(name) == text
