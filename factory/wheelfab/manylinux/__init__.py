"""Builds cells in a container, through cibuildwheel: its configuration, its hooks, the run."""

from __future__ import annotations

from wheelfab.manylinux.box import BASE, Box, BoxedWheel, build_in_box, find_box
from wheelfab.manylinux.boxed import build_boxed, open_box

__all__ = ["BASE", "Box", "BoxedWheel", "build_boxed", "build_in_box", "find_box", "open_box"]
