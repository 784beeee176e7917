"""The compatibility table: which wheel runs on which torch, driver and GPU, and how we know."""

from __future__ import annotations

from wheelfab.compat.render import show_table, write_table
from wheelfab.compat.table import CompatTable, tabulate

__all__ = ["CompatTable", "show_table", "tabulate", "write_table"]
