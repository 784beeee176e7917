"""``import freewheel``: lazy names, no torch, no native library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import freewheel

ENGINE = Path(__file__).resolve().parents[2] / "engine"


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a bare interpreter that sees the sources only."""
    path = f"import sys; sys.path.insert(0, {str(ENGINE)!r})\n"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", path + code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_import_with_poisoned_torch() -> None:
    """A torch that raises on import is never touched, also not by the lazy names that need none."""
    done = run(
        "class Poison:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        assert name.partition('.')[0] not in ('torch', 'numpy', 'ctypes'), name\n"
        "sys.meta_path.insert(0, Poison())\n"
        "import freewheel\n"
        "from freewheel import errors, load, build, warm_up\n"
        "assert dir(freewheel) and freewheel.load is load\n"
    )
    assert done.returncode == 0, done.stderr


def test_import_brings_few_modules() -> None:
    """The package itself and nothing heavy: a fence before the benchmark's 30 ms."""
    done = run("before = set(sys.modules)\nimport freewheel\nprint(*set(sys.modules) - before)")
    assert set(done.stdout.split()) == {"freewheel", "__future__"}


def test_unknown_attribute() -> None:
    """As any module says it."""
    with pytest.raises(AttributeError, match="module 'freewheel' has no attribute 'nothing'"):
        _ = freewheel.nothing  # type: ignore[attr-defined]


def test_names() -> None:
    """What is promised is listed."""
    assert set(freewheel.__all__) <= set(dir(freewheel))


def test_version_of_a_source_tree() -> None:
    """Without a build record the version comes from the metadata, or says that there is none."""
    done = run("import freewheel; print(freewheel.__version__)")
    assert done.stdout.strip() == "0+unknown", done.stderr
