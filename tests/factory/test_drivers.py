"""The names and files of ``wheelfab.drivers``, as far as no compiler is needed; its page."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import wheelfab.drivers
from wheelfab.drivers import DriverKind, entry_points, make_driver
from wheelfab.drivers.library import write_file
from wheelfab.errors import ToolchainError, UsageError

SOURCES = Path(wheelfab.drivers.__file__).parent
PAGE = (SOURCES.parents[2] / "docs" / "drivers.md").read_text(encoding="utf-8")
LIBRARIES = {"fake": "fake/behaviour.h", "nvml": "nvml/fakenvml.cpp"}


def explained(source: str) -> dict[str, str]:
    """The environment variables that the comment at the top of a source explains."""
    found: dict[str, str] = {}
    for line in (SOURCES / source).read_text(encoding="utf-8").splitlines():
        if begun := re.match(r"//   ([A-Z_]{6,}) +(.*)", line):
            name = begun[1]
            found[name] = begun[2]
        elif (more := re.match(r"//    +(.*)", line)) and found:
            found[name] += f" {more[1]}"
        elif not line.startswith("//"):
            break
    return found


def test_the_page_explains_the_variables_in_the_sources_words() -> None:
    rows = [dict(explained(source)) for source in LIBRARIES.values()]
    expected = [f"| `{name}` | {text} |" for table in rows for name, text in table.items()]
    assert re.findall(r"^\| `[A-Z_]{6,}` \|.*$", PAGE, re.MULTILINE) == expected


@pytest.mark.parametrize("folder", LIBRARIES)
def test_every_variable_that_is_read_is_explained(folder: str) -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (SOURCES / folder).glob("*.cpp"))
    read = set(re.findall(r'(?:getenv|Setting)\("([A-Z_]+)"', code))
    assert read == set(explained(LIBRARIES[folder]))


def test_every_action_is_explained() -> None:
    code = (SOURCES / "fake" / "behaviour.cpp").read_text(encoding="utf-8")
    actions = set(re.findall(r'action(?: == |\.rfind\()"([a-z]+)', code))
    assert actions == {"segv", "gp", "abort", "exit", "hang", "deaf", "slow"}
    text = explained(LIBRARIES["fake"])["FAKECUDA_FAIL"]
    assert [action for action in actions if not re.search(rf"\b{action}\b", text)] == []


def test_the_page_tells_how_many_entry_points_there_are() -> None:
    answered, known = entry_points(refused=False), entry_points()
    assert f"It answers {len(answered)} entry points" in PAGE
    assert len(known) - len(answered) >= 400
    assert len(set(known)) == len(known)
    assert known[: len(answered)] == answered


def test_every_kind_is_on_the_page() -> None:
    assert [kind for kind in DriverKind if f"DriverKind.{kind.name}, folder" not in PAGE] == []


@pytest.mark.parametrize(
    ("kind", "hide", "words"),
    [
        (DriverKind.FAKE, "cuDeviceGetCuont", "did you mean cuDeviceGetCount?"),
        (DriverKind.STUB, "everything", "no entry point 'everything'"),
        (DriverKind.GARBAGE, "cuInit", "no exports to hide"),
    ],
)
def test_what_cannot_be_hidden(tmp_path: Path, kind: DriverKind, hide: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        make_driver(kind, tmp_path, hide=[hide])


def test_without_a_compiler_it_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="g\\+\\+ is not on the PATH; install g\\+\\+"):
        make_driver(DriverKind.STUB, tmp_path / "drivers")


def test_what_is_no_library_needs_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    garbage = make_driver(DriverKind.GARBAGE, tmp_path / "drivers")
    assert (garbage / "libcuda.so.1").read_bytes().startswith(b"this is no library")
    empty = make_driver(DriverKind.EMPTY, tmp_path / "drivers")
    assert [path.name for path in empty.iterdir()] == ["libcuda.so.1"]
    assert (empty / "libcuda.so.1").read_bytes() == b""
    assert make_driver(DriverKind.GARBAGE, tmp_path / "drivers") == garbage


def test_everyone_may_read_what_is_made(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        made = make_driver(DriverKind.GARBAGE, tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert {path: path.stat().st_mode & 0o777 for path in (made, made.parent, made.parents[1])} == (
        dict.fromkeys((made, made.parent, made.parents[1]), 0o755)
    )
    assert (made / "libcuda.so.1").stat().st_mode & 0o777 == 0o755


def test_a_file_is_found_again_by_its_content(tmp_path: Path) -> None:
    one, other = write_file(tmp_path, "x.s", b"one"), write_file(tmp_path, "x.s", b"other")
    assert (one.read_bytes(), other.read_bytes()) == (b"one", b"other")
    assert write_file(tmp_path, "x.s", b"one") == one
    assert one.stat().st_mode & 0o777 == 0o644
