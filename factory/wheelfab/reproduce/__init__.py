"""Builds each cell again elsewhere, compares the bytes, and names why they differ."""

from __future__ import annotations

from wheelfab.reproduce.again import ReproduceOptions, reproduce
from wheelfab.reproduce.report import Report, ReproduceError, show_reports

__all__ = ["Report", "ReproduceError", "ReproduceOptions", "reproduce", "show_reports"]
