"""The lock file: what was written is read back, and what is wrong in it is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wheelfab.errors import MatrixError, ToolchainError
from wheelfab.locked import LOCK, Locked, LockedWheel, load_locked, write_locked
from wheelfab.resolve import TORCH_INDEX

from .lockmaker import make_locked
from .test_plan import COMPILER

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = f"""
schema = 1
[[requirement]]
package = "x"
version = "1"
file = "../x.whl"
sha256 = "{"0" * 64}"
size = 1
"""
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,20}", fullmatch=True)
DIGESTS = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
WHEELS = st.builds(
    LockedWheel,
    package=NAMES,
    version=NAMES,
    file=NAMES,
    sha256=DIGESTS,
    size=st.integers(1, 1 << 40),
)


def test_what_is_written_is_read_back_and_written_alike(tmp_path: Path) -> None:
    locked = make_locked(COMPILER)
    path = write_locked(tmp_path, locked)
    assert load_locked(tmp_path) == locked
    before = path.read_bytes()
    write_locked(tmp_path, locked)
    assert path.read_bytes() == before


@settings(deadline=None)  # files are written
@given(wheels=st.lists(WHEELS, max_size=4))
def test_any_wheels_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, wheels: list[LockedWheel]
) -> None:
    folder = tmp_path_factory.mktemp("lock")
    locked = Locked(schema=1, requirement=tuple(wheels))
    write_locked(folder, locked)
    assert load_locked(folder) == locked


def test_a_project_may_have_none(tmp_path: Path) -> None:
    assert load_locked(tmp_path) is None


def test_this_repositorys_lock_is_as_it_would_be_written(tmp_path: Path) -> None:
    locked = load_locked(ROOT)
    assert locked is not None
    assert write_locked(tmp_path, locked).read_text() == (ROOT / LOCK).read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("schema = ", r"^matrix\.lock: not TOML: .*; make it again$"),
        ("", r"^matrix\.lock: schema: Field required"),
        ("schema = 2", r"^matrix\.lock: schema: Input should be less than or equal to 1"),
        ("schema = 1\nmore = 1", r"^matrix\.lock: more: Extra inputs are not permitted"),
        (
            'schema = 1\n[[image]]\nbase = "x"\ndigest = "md5:1"',
            r"^matrix\.lock: image\.0\.digest: String should match pattern",
        ),
        (
            OUTSIDE,
            r"^matrix\.lock: requirement\.0\.file: String should match pattern",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / LOCK).write_text(text)
    with pytest.raises(MatrixError, match=says):
        load_locked(tmp_path)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_bytes(b"\xff\xfe")
    with pytest.raises(MatrixError, match=r"^matrix\.lock: not TOML: "):
        load_locked(tmp_path)


def test_torch_is_found_by_release_and_index() -> None:
    locked = make_locked(COMPILER)
    assert locked.torch_of("2.4.1", TORCH_INDEX).sha256 == "a" * 64
    with pytest.raises(ToolchainError, match=r"^matrix\.lock: no torch 2\.4\.1 of file:///x; run"):
        locked.torch_of("2.4.1", "file:///x")
