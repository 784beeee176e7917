"""A static simple index of the wheels, and the way to publish it.

The folder that ``write_index`` makes, and that ``publish`` makes anew and switches to::

    index.html                             for people: pages and install lines
    catalog.json                           every file with its digest, size, page
    files/NAME.whl, files/NAME.whl.metadata
    all/, all/freewheel/                   every file
    cu121/torch2.4/, …/freewheel/          one index per variant and torch pin

Each index folder has ``index.html`` (PEP 503, with SHA-256, ``data-requires-python`` and the
metadata files of PEP 658 and 714) and ``index.json`` (PEP 691). Any web server serves the former as
it is. One that is to serve the latter too answers a request whose ``Accept`` prefers
``application/vnd.pypi.simple.v1+json`` with ``index.json`` under that content type; for nginx::

    map $http_accept $simple_page {
        default                                     index.html;
        "~^application/vnd.pypi.simple.v1.json"     index.json;
    }
    types { text/html html; application/vnd.pypi.simple.v1+json json; }
    index $simple_page;

A torch pin has an index of its own because pip and uv, given both pins' wheels, take the higher
local version and replace the user's torch.
"""

from __future__ import annotations

from wheelfab.compat.cells import CellWheel, built_wheels
from wheelfab.index.catalog import Catalog, Listed, install_line
from wheelfab.index.publish import publish
from wheelfab.index.served import verify_served
from wheelfab.index.verify import IndexFlaw, IndexFlawKind, index_flaws, verify_index
from wheelfab.index.write import write_index

__all__ = [
    "Catalog",
    "CellWheel",
    "IndexFlaw",
    "IndexFlawKind",
    "Listed",
    "built_wheels",
    "index_flaws",
    "install_line",
    "publish",
    "verify_index",
    "verify_served",
    "write_index",
]
