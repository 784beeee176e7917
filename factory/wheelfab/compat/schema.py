"""The JSON schema of ``compat.json``, from the records themselves."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from wheelfab.compat.record import CompatTable


def documents() -> dict[str, str]:
    """The generated files by their name in ``docs/``, with their text."""
    return {"compat.schema.json": schema()}


def schema() -> str:
    """The JSON schema of ``compat.json``: every key is there, and no other."""
    document = TypeAdapter(CompatTable).json_schema(ref_template="#/$defs/{model}")
    for table in (document, *document["$defs"].values()):
        if table.get("type") == "object":
            _close(table)
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **document,
        "title": "compat.json",
    }
    return json.dumps(whole, indent=2) + "\n"


def _close(table: dict[str, Any]) -> None:
    table["additionalProperties"] = False
    table["required"] = list(table["properties"])
