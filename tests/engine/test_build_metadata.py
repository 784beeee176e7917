"""The metadata provider of a build without the factory."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

import build_metadata
from build_metadata import TorchRequirement, requirement, torch_version

DYNAMIC = {"dynamic": ["dependencies"]}


@pytest.fixture
def torch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path that holds a torch package which must not be imported."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('torch was imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return package


def test_torch_is_read_not_imported(torch_folder: Path) -> None:
    """The version comes from version.py."""
    (torch_folder / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda = None\n")
    assert torch_version() == "2.13.0+cpu"
    provider = TorchRequirement()
    assert provider.dynamic_metadata({}, DYNAMIC) == {"dependencies": ["torch>=2.10"]}


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("2.4.1", ">=2.4.1,<2.5"),
        ("2.4.1+cu121", ">=2.4.1,<2.5"),
        ("2.9.0", ">=2.9.0,<2.10"),
        ("2.10.0", ">=2.10"),
        ("2.15.0+cu132", ">=2.10"),
        ("2.5.0a0+e000abc", ">=2.5.0a0,<2.6"),
    ],
)
def test_requirement(version: str, wanted: str) -> None:
    """A series for the classic ABI, everything later for the stable one."""
    assert requirement(version) == wanted


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel stops at once and names both remedies (build isolation hides torch)."""
    monkeypatch.setattr(build_metadata, "torch_version", lambda: None)
    provider = TorchRequirement()
    provider.build_state("metadata_wheel")
    start = time.perf_counter()
    with pytest.raises(SystemExit) as stopped:
        provider.dynamic_metadata({}, DYNAMIC)
    assert time.perf_counter() - start < 1
    text = str(stopped.value)
    assert "--no-build-isolation" in text
    assert "install a finished wheel from the index of your torch release" in text
    heading = re.search(r'\(README\.md,\s+"(.+)"\)', text)
    assert heading is not None
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    assert f"\n## {heading[1]}\n" in readme


def test_source_archive_needs_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """An sdist is made anywhere; its requirement stays open."""
    monkeypatch.setattr(build_metadata, "torch_version", lambda: None)
    provider = TorchRequirement()
    provider.build_state("sdist")
    assert provider.dynamic_metadata({}, DYNAMIC) == {"dependencies": []}
    assert provider.dynamic_wheel({}) == {"dependencies": True}


def test_static_dependencies_win() -> None:
    """Where the factory has set the requirement there is nothing to provide."""
    assert TorchRequirement().dynamic_metadata({}, {"dependencies": ["torch>=2.4.1,<2.5"]}) == {}
