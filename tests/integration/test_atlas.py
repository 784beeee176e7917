"""The atlas against real imports, on the two releases that other tests have in the store anyway."""

from __future__ import annotations

import resource
from pathlib import Path

from tests.factory.elfmaker import make_library
from tests.factory.wheelmaker import make_wheel
from wheelfab.atlas import Verdict, read_atlas
from wheelfab.store import Store, default_root

from .atlas_bindings import agrees, ask, build, get_torch, load
from .conftest import Wheelfab

RELEASES = ("2.4.1", "2.13.0")
BINDINGS = (("classic", "2.4.1", ""), ("classic", "2.13.0", ""), ("stable", "2.13.0", "2.10"))


def test_b01_an_answer_is_what_an_import_shows(tmp_path: Path) -> None:
    store = Store(default_root())
    torches = {name: get_torch(store, name, tmp_path / name) for name in RELEASES}
    libraries = [
        build(torches[release], kind, tmp_path, target) for kind, release, target in BINDINGS
    ]
    answers = [
        ask(read_atlas(), library, item[1])
        for library, item in zip(libraries, BINDINGS, strict=True)
    ]
    for name, torch in torches.items():
        happened = load(torch, libraries)
        pairs = zip(BINDINGS, answers, happened, strict=True)
        assert [agrees(said[name], what) for _, said, what in pairs] == [True] * 3, happened
        assert [what == "answers" for what in happened] == [name == item[1] for item in BINDINGS]
        own = [
            said[name].verdict
            for item, said in zip(BINDINGS, answers, strict=True)
            if item[1] == name
        ]
        assert set(own) == {Verdict.LOADS}


def test_a_wheel_is_answered_in_under_a_second(tmp_path: Path, wheelfab: Wheelfab) -> None:
    """Of CPU, all of Python's start included: the machine may be busy."""
    library = make_library(undefined=["aoti_torch_new_nothing"], needed=["libtorch_cpu.so"])
    wheel = make_wheel(tmp_path, files={"freewheel/x.so": library})
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    (found,) = wheelfab.json("compat", str(wheel))["wheels"]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0
    assert [item["verdict"] for item in found["releases"]] == ["fails"] * len(found["releases"])
    assert found["releases"][0]["missing"][0]["symbol"] == "aoti_torch_new_nothing"
