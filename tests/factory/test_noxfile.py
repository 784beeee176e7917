"""The noxfile's own requirements are wheelfab's: `uvx nox` and `pip install nox` work alike."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from wheelfab.matrix import load_matrix
from wheelfab.resolve import BUILT_IN_SESSIONS

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?m)^# /// script\n(?P<body>(?:^#(?: .*)?\n)+)^# ///$")


def script_metadata() -> dict[str, object]:
    """The PEP 723 block of noxfile.py."""
    match = BLOCK.search((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    assert match is not None
    lines = (line.removeprefix("#").removeprefix(" ") for line in match["body"].splitlines())
    return tomllib.loads("\n".join(lines))


def test_dependencies_equal_wheelfabs() -> None:
    project = tomllib.loads((ROOT / "factory/pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    block = script_metadata()
    assert block["dependencies"] == project["dependencies"]
    assert block["requires-python"] == project["requires-python"]


def test_the_readme_names_every_session() -> None:
    matrix = load_matrix(ROOT / "matrix.toml")
    builds = [f"build-{variant.name}" for variant in matrix.variants]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for session in (*BUILT_IN_SESSIONS, *builds, *matrix.sessions):
        assert re.search(rf"`(nox -s )?{session}[ `]", readme), session
