"""The hosts: every wheel loaded on each machine of the matrix, in containers where possible."""

from __future__ import annotations

from wheelfab.hosts.cover import cover
from wheelfab.hosts.pages import write_pages
from wheelfab.hosts.report import HostResult, Verdict
from wheelfab.hosts.run_hosts import run_hosts, select_hosts, show_results
from wheelfab.hosts.stay import HostOptions

__all__ = [
    "HostOptions",
    "HostResult",
    "Verdict",
    "cover",
    "run_hosts",
    "select_hosts",
    "show_results",
    "write_pages",
]
