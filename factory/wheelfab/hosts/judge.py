"""Whether what was seen on a host is what is expected there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from wheelfab.host import Expectation, Host
from wheelfab.hosts.visits import Visit
from wheelfab.run import Completed
from wheelfab.variant import Cell

GRACE = 0.5  # seconds that an answer may come after the limit
IMPORT = "import"  # the stage of the control that imports torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """The answer of a host for one wheel. An empty ``status`` or ``error`` is not looked at.

    It must be given ``times`` times in each load, each within ``limit`` seconds and a half, and as
    often, with the status ``forked``, in each of ``forks`` processes forked from the load.
    """

    status: str
    says: tuple[str, ...]
    images: tuple[str, ...] | None
    error: tuple[str, ...]
    times: int = 1
    limit: float | None = None
    forks: int = 0
    forked: str = ""

    @property
    def text(self) -> str:
        """In short, for a table."""
        load = "clear error" if self.error else "passes"
        return f"{self.status}, {load}" if self.status else load


def expected_of(host: Host, cell: Cell, torch: Version | None = None) -> Expected:
    """What ``host`` must answer for the wheel of ``cell`` beside ``torch``."""
    expect = host.expect
    code, ptx = cell.variant.cuda is not None, any(arch.ptx for arch in cell.variant.arch)
    status = expect.status
    if not code:
        status = expect.without_code
    elif not ptx:
        status = expect.without_ptx
    usual = status == expect.status
    return Expected(
        status=status,
        says=expect.says if usual else (),
        images=expect.images if usual and code else None,
        error=tuple(word.replace("{torch}", str(torch)) for word in _error(expect, cell)),
        times=max(1, len(host.environment_after)),
        limit=host.state_limit if host.cpu is None else None,  # an emulator's time is no measure
    )


def _error(expect: Expectation, cell: Cell) -> tuple[str, ...]:
    if expect.error_for is not None and expect.error_for != cell.pin.kind.value:
        return ()
    return expect.error


def judge_fresh(visit: Visit, expected: Expected) -> str:
    """Why a load without torch is not as expected, or ``""``."""
    if not visit.passed:
        return visit.trouble
    return judge_state(visit, expected)


def judge_torch(visit: Visit, expected: Expected) -> str:
    """Why a load with torch is not as expected, or ``""``."""
    if not expected.error:
        if not visit.passed:
            return visit.trouble
        return judge_state(visit, expected) or judge_forks(visit, expected)
    if visit.died or not visit.error:
        wanted = " … ".join(expected.error)
        return f"no error that says {wanted!r}: {visit.trouble if not visit.passed else 'passed'}"
    missing = [word for word in expected.error if word not in visit.error]
    return f"its error does not say {missing}: {visit.error}" if missing else ""


def judge_state(visit: Visit, expected: Expected) -> str:
    """Why the state is not the expected one, or ``""``."""
    if not expected.status:
        return ""
    if len(visit.states) != expected.times:
        return f"it gave {len(visit.states)} states, not {expected.times}"
    troubles = (_judge_one(state, expected) for state in visit.states)
    return next(filter(None, troubles), "") or _late(visit.state_seconds, expected)


def judge_forks(visit: Visit, expected: Expected) -> str:
    """Why the states of the processes forked from a load are not the expected ones, or ``""``."""
    if not expected.status:
        return ""
    wanted, forks = expected.forked or expected.status, expected.forks * expected.times
    if len(visit.forked) != forks:
        return f"its forked processes gave {len(visit.forked)} states, not {forks}"
    others = [status for status, _ in visit.forked if status != wanted]
    if others:
        return f"{len(others)} of {forks} states of forked processes: {others[0]!r}, not {wanted!r}"
    late = _late([seconds for _, seconds in visit.forked], expected)
    return f"in a forked process {late}" if late else ""


def is_late(visit: Visit, expected: Expected) -> bool:
    """Whether a state came after its time, in the load or in a fork of it."""
    forked = [seconds for _, seconds in visit.forked]
    return bool(expected.status and _late([*visit.state_seconds, *forked], expected))


def _late(seconds: Sequence[float], expected: Expected) -> str:
    longest = max(seconds, default=0.0)
    if expected.limit is None or longest <= expected.limit + GRACE:
        return ""
    return f"the state took {longest:.2f} s where {expected.limit + GRACE:g} s is the limit"


def _judge_one(state: Mapping[str, Any], expected: Expected) -> str:
    status, reason = str(state.get("status")), str(state.get("reason"))
    if status != expected.status:
        return f"state {status!r}, not {expected.status!r}: {reason}"
    said = "\n".join([reason, *map(str, _list(state.get("notes")))])
    missing = [word for word in expected.says if word not in said]
    if missing:
        return f"neither reason nor notes say {missing}: {said}"
    images = tuple(str(image or "none") for image in _list(state.get("images")))
    if expected.images is not None and images != expected.images:
        return f"images {images}, not {expected.images}"
    return ""


def is_explained(control: Visit, host: Host) -> bool:
    """Whether torch alone does not pass for the host's own reason."""
    return control.died or bool(host.pollution)


def is_excused(load: Visit, control: Visit | None, host: Host, importing: Sequence[str]) -> bool:
    """Whether a load may end in a stage that imports torch, as torch alone is not imported either.

    What torch does after its import excuses nothing: a load never asks it for a device.
    ``importing`` are those stages.
    """
    if control is None or control.passed or control.began != IMPORT or load.passed:
        return False
    return is_explained(control, host) and load.began in importing


def control_words(visit: Visit) -> str:
    """What torch alone did on the host."""
    if visit.died:
        where = "its import" if visit.began == IMPORT else "is_available()"
        return f"torch dies here: {visit.ending} in {where}"
    if not visit.passed:
        return f"torch fails here: {visit.trouble}"
    return f"is_available() is {visit.available}"


def doctor_trouble(done: Completed) -> str:
    """Why a report on the machine is none, or ``""``; its exit code is its own verdict."""
    if done.returncode is None or done.returncode < 0:
        return done.ending
    if "Traceback (most recent call last)" in done.stderr:
        return done.stderr.strip().rpartition("\n")[2]
    return "" if done.stdout.strip() else f"it said nothing ({done.ending})"


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()
