"""The compatibility table: which wheel runs on which torch, driver and GPU, and how we know."""

from __future__ import annotations

from wheelfab.compat.asked import ask_both
from wheelfab.compat.evidence import Sources, Spoken
from wheelfab.compat.line import checked_url
from wheelfab.compat.offer import Offer, Picked, offer
from wheelfab.compat.record import Answer, CompatTable
from wheelfab.compat.render import show_table, write_table
from wheelfab.compat.schema import documents
from wheelfab.compat.table import tabulate
from wheelfab.compat.verdict import Verdict, verdict

__all__ = [
    "Answer",
    "CompatTable",
    "Offer",
    "Picked",
    "Sources",
    "Spoken",
    "Verdict",
    "ask_both",
    "checked_url",
    "documents",
    "offer",
    "show_table",
    "tabulate",
    "verdict",
    "write_table",
]
