"""Ways to start, orders of imports, and torches that are not the one: it loads, or says why not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import freewheel
from tests.installed.machine import start

USE = """
import freewheel, freewheel._C
from freewheel import device, ops
import torch
assert ops.rms_norm(torch.ones(2, 8), torch.ones(8)).shape == (2, 8)
assert device.state().reason
assert freewheel.capabilities().torch.loadable
print("passed")
"""
REFUSED = """
import importlib, freewheel, freewheel._C
from freewheel import device
for load in (freewheel.load, lambda: importlib.import_module("freewheel.ops"), freewheel.load):
    try:
        load()
    except ImportError as error:
        print(type(error).__name__, error)
assert device.state().reason
"""


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (("-OO",), {}),
        (("-I",), {}),
        (("-X", "faulthandler"), {"PYTHONMALLOC": "debug"}),
        (("-W", "error::RuntimeWarning", "-B", "-s"), {"PYTHONSAFEPATH": "1"}),
    ],
)
def test_ways_to_start(driver: Path, options: tuple[str, ...], settings: dict[str, str]) -> None:
    done = start(USE, driver, *options, **settings)
    assert done.stdout.split() == ["passed"], done.stderr


@pytest.mark.parametrize(
    "order",
    [
        "import torch, freewheel; freewheel.load()",
        "import freewheel; freewheel.load(); import torch",
        "import freewheel.ops, torch",
        "import freewheel._C, torch, freewheel.ops",
    ],
)
def test_b44_both_orders_with_torch(driver: Path, order: str) -> None:
    done = start(f"{order}\n{USE}", driver)
    assert done.stdout.split() == ["passed"], done.stderr


def plant(folder: Path, body: str) -> str:
    """A package named torch; the folder for PYTHONPATH."""
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text(body, encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize("imported_before", [False, True])
@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("__version__ = '2.3.1+cu121'", "TorchMismatchError", "but torch 2.3.1+cu121 is installed"),
        ("__version__ = '1.13.1'", "TorchMismatchError", "but torch 1.13.1 is installed"),
        ("", "TorchMissingError", "is no torch"),
    ],
)
def test_b01_another_torch_is_named_with_what_the_wheel_is_for(
    driver: Path, tmp_path: Path, body: str, kind: str, words: str, *, imported_before: bool
) -> None:
    """Built for and found, three times the same, and the line that mends it."""
    first = "import torch\n" if imported_before else ""
    done = start(first + REFUSED, driver, PYTHONPATH=plant(tmp_path, body))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    wanted = freewheel.build()["torch"]["requirement"]
    assert len(lines) == 3
    assert len(set(lines)) == 1
    assert lines[0].startswith(f"{kind} freewheel {freewheel.__version__} ")
    assert f"torch{wanted}" in lines[0]
    assert words in lines[0]
    assert f'pip install "torch{wanted}"' in lines[0]


def test_b48_a_torch_that_breaks(driver: Path, tmp_path: Path) -> None:
    body = "raise OSError('libcudart.so.12: cannot open shared object file')"
    done = start(REFUSED, driver, PYTHONPATH=plant(tmp_path, body))
    assert done.stdout.count("torch does not import: OSError: libcudart.so.12") == 3, done.stderr


def test_without_torch(driver: Path) -> None:
    """Everything but operations works."""
    hide = "import sys\nsys.modules['torch'] = None\n"
    done = start(f"{hide}{REFUSED}", driver)
    assert done.stdout.count("but torch is not installed; pip install") == 3, done.stderr


def test_b01_a_binding_whose_symbols_are_missing(driver: Path, tmp_path: Path) -> None:
    """A torch with the right number and other symbols: the loader's words, and both versions."""
    series = freewheel.build()["torch"]["headers"]
    body = f"""
__version__ = {series!r}
import ctypes
class ops:
    def load_library(path):
        ctypes.CDLL(path, mode=2)
"""
    done = start(REFUSED, driver, PYTHONPATH=plant(tmp_path, body))
    (line,) = set(done.stdout.splitlines())
    assert line.startswith("LibraryError")
    assert f"built for torch{freewheel.build()['torch']['requirement']}" in line
    assert f"beside torch {series}: " in line
    assert "undefined symbol" in line or "cannot open shared object" in line


@pytest.mark.parametrize("release", ["11.8", "13.0", None])
def test_b49_another_cudas_torch_is_no_obstacle(driver: Path, release: str | None) -> None:
    """The wheel needs a driver, none of torch's CUDA libraries."""
    done = start(f"import torch\ntorch.version.cuda = {release!r}\n{USE}", driver)
    assert done.stdout.split() == ["passed"], done.stderr


INTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
code = {code!r}
failed = interpreters.run_string(interpreters.create(), code)
assert not failed, failed
"""


@pytest.mark.parametrize("torch_first", [False, True])
def test_a_second_interpreter_gets_an_import_error(driver: Path, *, torch_first: bool) -> None:
    """And goes on: the state, ``_C`` and the main interpreter's operations work."""
    inner = f"import sys; sys.path[:] = {sys.path!r}\n{REFUSED}"
    before = "import torch\n" if torch_first else ""
    after = USE if torch_first else ""
    done = start(f"{before}{INTERPRETER.format(code=inner)}\n{after}", driver)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(line.startswith("InterpreterError freewheel") for line in lines[:3])
    assert all("work in the main interpreter only" in line for line in lines[:3])
    assert lines[3:] == (["passed"] if torch_first else [])
