"""Each module imported in a fresh process under a counting driver library, within bounds."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wheelfab import console, run
from wheelfab.imports import child
from wheelfab.imports.budget import Budget
from wheelfab.imports.reach import runs_as_program
from wheelfab.imports.record import Ending, ImportRun, LintOptions, Unchecked
from wheelfab.imports.target import Target

_READ = 1 << 20  # bytes read of any file that a child wrote
_TAIL = 2000
_AGAIN = 3  # runs of a module that seems to be over its budget
_DUMP = re.compile(r"^(?:Stack|Thread|Current thread).*:$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_HANG = 0.8  # of the time limit, after which a stack is written
_FRAMES = 60
_OPENED = re.compile(r'"(/dev/nvidia[^"]*)"')
_SOURCE = Path(__file__).with_name("counting_fake.c")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What the imports run with."""

    python: Path
    root: str  # what is put before all on sys.path; ``-`` for an installed package
    folder: Path
    drivers: Path | None  # the folder of the counting libraries
    strace: str | None
    limit: float


def run_imports(
    target: Target, options: LintOptions, budget: Budget | None
) -> tuple[tuple[ImportRun, ...], tuple[Unchecked, ...]]:
    """Import each module of ``target``; a crash or a hang of one is a result and ends nothing."""
    named = [name for name, _ in target.modules if not runs_as_program(name)]
    chosen = named[: options.modules]
    unchecked = []
    if len(named) > len(chosen):
        reason = f"not imported: over the bound of {options.modules}"
        unchecked.append(Unchecked(what=f"{len(named) - len(chosen)} modules", reason=reason))
    with tempfile.TemporaryDirectory(prefix="wheelfab-imports-") as folder:
        bench, missing = _bench(target, options, Path(folder))
        unchecked += missing
        runs, late = _all(bench, chosen, options)
        unchecked += late
        if budget is not None:
            runs = [_timed_again(bench, done, budget) for done in runs]
    return tuple(runs), tuple(unchecked)


def _all(
    bench: Bench, modules: Sequence[str], options: LintOptions
) -> tuple[list[ImportRun], list[Unchecked]]:
    deadline = time.monotonic() + options.total
    late = 0

    def one(module: str) -> ImportRun | None:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        return import_one(replace(bench, limit=min(bench.limit, max(left, 1.0))), module)

    runs: list[ImportRun] = []
    with (
        console.progress("imports", len(modules)) as advance,
        ThreadPoolExecutor(max_workers=max(1, options.jobs)) as pool,
    ):
        for done in pool.map(one, modules):
            advance()
            if done is None:
                late += 1
            else:
                runs.append(done)
    reason = f"not imported: {options.total:.0f} s for all imports were over"
    return runs, [Unchecked(what=f"{late} modules", reason=reason)] if late else []


def _bench(target: Target, options: LintOptions, folder: Path) -> tuple[Bench, list[Unchecked]]:
    missing: list[Unchecked] = []
    drivers: Path | None = folder / "drivers"
    reason = build_fake(folder / "drivers")
    if reason:
        drivers = None
        missing.append(Unchecked(what="calls into the driver", reason=reason))
    strace = shutil.which("strace")
    if strace is None or not _traces(strace):
        strace = None
        why = "strace is not there or may not trace"
        missing.append(Unchecked(what="opens of /dev/nvidia*", reason=why))
    bench = Bench(
        python=options.python or Path(sys.executable),
        root=str(target.root) if target.editable or not target.importable else "-",
        folder=folder,
        drivers=drivers,
        strace=strace,
        limit=options.limit,
    )
    return bench, missing


def build_fake(folder: Path) -> str:
    """Build the counting driver libraries in ``folder``; gives why not, or nothing."""
    compiler = shutil.which("g++")
    if compiler is None:
        return "no g++ to build the counting driver with"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libcuda.so.1"
    flags = ("-x", "c", "-std=c11", "-O1", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1")
    argv = (compiler, *flags, "-o", str(library), str(_SOURCE), "-ldl")
    done = run.run(argv, env=run.tool_environment(), timeout=60)
    if not done.ok:
        return f"the counting driver does not build: {done.stderr.strip()[-_TAIL:]}"
    for name in ("libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"):
        (folder / name).symlink_to(library.name)
    return ""


def _traces(strace: str) -> bool:
    argv = (strace, "-f", "--seccomp-bpf", "-qq", "-e", "trace=openat", "-o", "/dev/null", "true")
    return run.run(argv, env=run.tool_environment(), timeout=20).ok


def import_one(bench: Bench, module: str) -> ImportRun:
    """Import ``module`` in a fresh process and read what it left behind."""
    folder = Path(tempfile.mkdtemp(dir=bench.folder))
    calls, trace = folder / "calls", folder / "trace"
    extra = {"WHEELFAB_COUNT_LOG": str(calls)}
    if bench.drivers is not None:
        extra["LD_LIBRARY_PATH"] = str(bench.drivers)
    hang = f"{bench.limit * _HANG:.1f}"
    argv = [str(bench.python), child.__file__, module, bench.root, str(folder), hang]
    if bench.strace is not None:
        opens = ("-e", "trace=open,openat", "-e", "signal=none")
        argv = [bench.strace, "-f", "--seccomp-bpf", "-qq", *opens, "-o", str(trace), *argv]
    done = run.run(argv, env=run.tool_environment(extra), timeout=bench.limit)
    report = _report(folder / "report.json")
    ending, detail = _ending(done, report, bench, folder)
    names = _text(calls).split()
    dumps = read_dumps(_text(folder / "stack"))
    pools = bool(report.get("pools"))
    return ImportRun(
        module=module,
        ending=ending,
        detail=detail,
        milliseconds=report.get("milliseconds"),
        driver_calls=dict(Counter(names)),
        driver_stack=dumps[0] if names and dumps else (),
        end_stack=dumps[-1] if ending in (Ending.DIED, Ending.HUNG) and dumps else (),
        devices=tuple(sorted(set(_OPENED.findall(_text(trace))))),
        threads=tuple(map(str, report.get("threads", ()))),
        native_threads=0 if pools else int(report.get("native_threads", 0)),
        processes=tuple(map(str, report.get("processes", ()))),
    )


def _ending(
    done: run.Completed, report: dict[str, Any], bench: Bench, folder: Path
) -> tuple[Ending, str]:
    if done.returncode is None:
        return Ending.HUNG, f"not done after {bench.limit:.0f} s"
    if not report:
        printed = _text(folder / "output").strip() or done.stderr.strip()
        return Ending.DIED, " ".join(f"{done.ending} {printed[-300:]}".split())
    missing = report.get("missing")
    if missing is not None:
        return Ending.MISSING, str(report["error"])
    if "error" in report:
        return Ending.RAISED, str(report["error"])
    return Ending.DONE, ""


def _timed_again(bench: Bench, first: ImportRun, budget: Budget) -> ImportRun:
    """Import a module that was slow again, untraced and alone; its least time counts."""
    allowed = budget.of(first.module)
    best = first.milliseconds
    if allowed is None or best is None:
        return first
    untraced = replace(bench, strace=None)
    for _ in range(_AGAIN):
        if best <= allowed:
            break
        again = import_one(untraced, first.module).milliseconds
        best = min(best, again) if again is not None else best
    return replace(first, milliseconds=best)


def read_dumps(text: str) -> list[tuple[str, ...]]:
    """The stacks that faulthandler wrote, outermost frame first, without importlib's frames."""
    dumps = []
    for dump in _DUMP.split(text)[1:]:
        frames = [
            f"{file}:{line} in {name}"
            for file, line, name in _FRAME.findall(dump)
            if "importlib" not in file and file != child.__file__
        ]
        dumps.append(tuple(reversed(frames[:_FRAMES])))
    return dumps


def _report(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(_text(path))
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_READ).decode(errors="replace")
    except OSError:
        return ""
