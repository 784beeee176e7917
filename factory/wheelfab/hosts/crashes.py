"""Crash reports from hosts: what died is run again in the same place, with gdb and strace there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from wheelfab import console
from wheelfab.crash import CrashedCommand, investigate, write_crash
from wheelfab.errors import FactoryError
from wheelfab.hosts.places import Place
from wheelfab.hosts.visits import Visit
from wheelfab.run import Completed

_MOST = 3  # crashes that are investigated on one host
_TIMEOUT = 60.0


@dataclass(slots=True)
class Blame:
    """Investigates the crashes of one host, each kind once, and keeps the reports' paths.

    ``again`` brings the host up a second time, with the tools in it.
    """

    root: Path
    again: Callable[[], AbstractContextManager[Place]]
    known: dict[tuple[str, str], str] = field(default_factory=dict)

    def report(
        self, visit: Visit, argv: Sequence[str], environment: dict[str, str], place: str
    ) -> str:
        """The path of the report of a visit that died; ``""`` where there is none."""
        kind = (visit.began, visit.ending)
        if kind not in self.known and len(self.known) < _MOST:
            self.known[kind] = self._investigate(visit, argv, environment, place)
        return self.known.get(kind, "")

    def _investigate(
        self, visit: Visit, argv: Sequence[str], environment: dict[str, str], place: str
    ) -> str:
        console.step(f"investigating: {place}: {visit.trouble}")
        command = CrashedCommand(
            argv=tuple(argv),
            environment=environment,
            stage=visit.began,
            place=place,
            driver_state=visit.state,
        )
        first = Completed(
            argv=tuple(argv),
            returncode=visit.returncode,
            stdout="",
            stderr=visit.stderr,
            seconds=visit.seconds,
        )
        try:
            with self.again() as tools:
                report = investigate(command, first, tools.run, timeout=_TIMEOUT)
            return str(write_crash(self.root, report))
        except (FactoryError, OSError) as error:  # the host's own result matters more
            console.warn(f"no report of this crash: {error}")
            return ""
