"""A small legal matrix as text, changed by replacing pieces of it, and what loading it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfab.errors import MatrixError
from wheelfab.matrix import Matrix, load_matrix

MATRIX = """\
[project]
name = "demo"
python = ">=3.10"
python-tag = "cp310-abi3"
glibc = "2.28"
platform = "linux-x86_64"
size-budget = "40 MB"
sources = ["pyproject.toml"]

[project.device]
sources = ["csrc/*.cu"]

[project.parts.cpu]
per = "project"
inputs = ["csrc/cpu/*"]

[project.parts.kernels]
per = "variant"
uses = ["cpu", "device"]
inputs = ["csrc/kernels/*"]

[project.parts.torch]
per = "torch"
inputs = ["csrc/torch/*"]

[[project.load]]
stage = "package"
run = "import demo"

[torch."2.4"]
lowest = "2.4.1"
run-on = ["2.4.1"]

[torch."stable >= 2.10"]
headers = "2.13.0"
run-on = ["2.10.0", "2.13.0"]

[defaults]
cuda-api = "driver"
toolchain = "pypi-nvrtc"
arch = ["8.0", "8.6", "8.9", "9.0+PTX"]
torch = ["2.4", "stable >= 2.10"]

[variants.cpu]

[variants.cu118]
cuda = "11.8"

[variants.cu121]
cuda = "12.1"
"""


def changed(*changes: tuple[str, str]) -> str:
    """The matrix with each old text replaced by a new one; the old text must be there."""
    text = MATRIX
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def load(folder: Path, text: str) -> Matrix:
    """Load ``text`` as the matrix of a project in ``folder``."""
    path = folder / "matrix.toml"
    path.write_text(text, encoding="utf-8")
    return load_matrix(path)


def refusal(folder: Path, text: str) -> list[str]:
    """The lines of the error that loading ``text`` gives."""
    with pytest.raises(MatrixError) as caught:
        load(folder, text)
    return str(caught.value).splitlines()
