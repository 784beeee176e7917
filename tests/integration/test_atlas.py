"""The atlas against real imports, on the two releases that other tests have in the store anyway."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfab.atlas import Verdict, read_atlas
from wheelfab.store import Store, default_root

from .atlas_bindings import Torch, agrees, ask, build, get_torch, load

RELEASES = ("2.4.1", "2.13.0")
BINDINGS = (("classic", "2.4.1", ""), ("classic", "2.13.0", ""), ("stable", "2.13.0", "2.10"))


@pytest.fixture(scope="module")
def torches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Torch]:
    store, folder = Store(default_root()), tmp_path_factory.mktemp("torch")
    return {name: get_torch(store, name, folder / name) for name in RELEASES}


@pytest.mark.parametrize(("kind", "release", "target"), BINDINGS)
def test_b01_an_answer_is_what_an_import_shows(
    torches: dict[str, Torch], tmp_path: Path, kind: str, release: str, target: str
) -> None:
    library = build(torches[release], kind, tmp_path, target)
    said = ask(read_atlas(), library)
    happened = {name: load(torch, library) for name, torch in torches.items()}
    assert {name: agrees(said[name], what) for name, what in happened.items()} == dict.fromkeys(
        RELEASES, True
    ), happened
    assert said[release].verdict is Verdict.LOADS
    assert sum(what == "answers" for what in happened.values()) == 1
