"""The atlas against real imports: each binding on each of many releases. Fetches 4 GB."""

from __future__ import annotations

import json
import os
from pathlib import Path

from wheelfab.atlas import read_atlas
from wheelfab.store import Store, default_root

from .atlas_bindings import agrees, ask, build, get_torch, load

RELEASES = ("2.4.1", "2.5.1", "2.10.0", "2.12.1", "2.13.0", "2.14.1")
BINDINGS = (
    *(("classic", release, "") for release in ("2.4.1", "2.12.1", "2.13.0")),
    *(("cpu", release, "") for release in ("2.4.1", "2.12.1", "2.13.0")),
    *(("stable", "2.13.0", target) for target in ("2.10", "2.13")),
)


def test_every_answer_is_what_an_import_shows(tmp_path: Path) -> None:
    store, atlas = Store(default_root()), read_atlas()
    releases = tuple(os.environ.get("WHEELFAB_ATLAS_RELEASES", "").split()) or RELEASES
    torches = {name: get_torch(store, name, tmp_path / name) for name in releases}
    bindings = [binding for binding in BINDINGS if binding[1] in torches]
    libraries = [
        build(torches[release], kind, tmp_path / "bindings", target)
        for kind, release, target in bindings
    ]
    answers = [
        ask(atlas, library, binding[1])
        for library, binding in zip(libraries, bindings, strict=True)
    ]
    rows, wrong = [], []
    for name, torch in torches.items():
        for library, said, happened in zip(libraries, answers, load(torch, libraries), strict=True):
            row = {
                "binding": library.stem,
                "torch": torch.tree.version,
                "verdict": said[name].verdict,
                "reason": said[name].reason,
                "missing": said[name].missing,
                "happened": happened,
            }
            rows.append(row)
            if not agrees(said[name], happened):
                wrong.append(row)
    if place := os.environ.get("WHEELFAB_ATLAS_TABLE"):
        Path(place).write_text(json.dumps(rows, indent=2))
    assert len(rows) >= 2 * len(releases)
    assert wrong == []
