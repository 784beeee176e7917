"""One build of all cells in a copy of the project, with an empty store of compiled things."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import wheelfab
from wheelfab import console
from wheelfab.copies import copy_project
from wheelfab.diagnosis import Compiles, count_compiles
from wheelfab.errors import HarnessError
from wheelfab.plan import Plan
from wheelfab.records import file_digest
from wheelfab.reproduce.surroundings import Surroundings
from wheelfab.run import fetch_environment, run
from wheelfab.store import Store

_TIMEOUT = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """One build: where, how long (seconds), what the compilers did, and each cell's wheel."""

    name: str
    root: Path
    seconds: float
    compiles: Compiles
    wheels: Mapping[str, Path]
    failures: Mapping[str, str]

    def sha256(self, cell: str) -> str | None:
        """The digest of a cell's wheel."""
        wheel = self.wheels.get(cell)
        return file_digest(wheel) if wheel else None


def build_again(
    plan: Plan, cells: Sequence[str], around: Surroundings, folder: Path, store: Store
) -> Made:
    """Copy the project below ``folder`` and build ``cells`` there; downloads come from ``store``.

    Raises ``HarnessError`` when the build broke off, or when no compiler ran.
    """
    base = folder / around.name
    shutil.rmtree(base, ignore_errors=True)
    root, home = base / around.folder, base / "home"
    copy_project(plan, root, dated=around.dated)
    home.mkdir()
    console.step(f"{around.name} build, in {root}")
    python = (sys.executable, "-m", "wheelfab", "build", *cells, "--json")
    done = run(
        around.command(python),
        env=_environment(around, home, store),
        cwd=root,
        timeout=_TIMEOUT,
        log=base / "build.log",
    )
    try:
        results = json.loads(done.stdout)
    except ValueError as error:
        tail = done.stderr.strip()[-2000:]
        raise HarnessError(
            f"the {around.name} build broke off ({done.ending}): {tail}", where=str(root)
        ) from error
    wheels = {item["cell"]: Path(item["wheel"]) for item in results if item["wheel"]}
    compiles = count_compiles(root / "build" / "logs")
    if wheels and not compiles.host:
        raise HarnessError("no compiler ran, so that nothing was proved", where=str(root))
    console.note(
        f"{around.name} build: {compiles.host} host and {compiles.device} device compiles, "
        f"{done.seconds:.0f} s"
    )
    return Made(
        name=around.name,
        root=root,
        seconds=done.seconds,
        compiles=compiles,
        wheels=wheels,
        failures={item["cell"]: item["reason"] for item in results if not item["wheel"]},
    )


def _environment(around: Surroundings, home: Path, store: Store) -> dict[str, str]:
    ours = str(Path(wheelfab.__file__).parent.parent)
    paths = [ours, *filter(None, [os.environ.get("PYTHONPATH")])]
    return fetch_environment(
        {
            **around.environment(str(home)),
            "PYTHONPATH": os.pathsep.join(paths),
            "WHEELFAB_STORE": str(store.root),
        }
    )
