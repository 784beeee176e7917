"""Containers to build and load in: the one door to a Docker engine, and its images."""

from __future__ import annotations

from wheelfab.containers.container import Container
from wheelfab.containers.engine import Engine, NoEngine, find_engine
from wheelfab.containers.options import ContainerOptions, Mount

__all__ = ["Container", "ContainerOptions", "Engine", "Mount", "NoEngine", "find_engine"]
