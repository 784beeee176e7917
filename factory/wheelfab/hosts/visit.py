"""A visit to a host: run there by the wheel's own interpreter, it imports, asks and reports.

Run by path (Python 3.10 or later) with the standard library only; wheelfab is never imported::

    python [OPTIONS] visit.py PLAN MODE

``PLAN`` is a JSON file, ``MODE`` one of ``fresh`` (what needs no torch), ``torch`` (all stages,
then forks of that process that repeat the last one) and ``control`` (torch alone). Each event is a
line
``@visit {JSON}`` on stdout; what else is printed there is not ours. Like a worker of
``multiprocessing``, a forked process leaves by ``os._exit``; the others end as interpreters do.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MARK = "@visit "
PLAN_LIMIT = 1 << 20  # bytes
TEXT_LIMIT = 2000  # characters of an exception's text
THREADS = 8
_FORKED: list[int] = []  # holds something in a forked process, which tells little
_OF_FORKS = ("error", "forked")  # the events of such a process
CONTROL = [("import", "import torch"), ("is_available", "result = torch.cuda.is_available()")]


def tell(event: str, **values: object) -> None:
    """Send an event, as one write."""
    if _FORKED and event not in _OF_FORKS:
        return
    line = MARK + json.dumps({"event": event, **values}) + "\n"
    os.write(1, line.encode())


def read_plan(path: str) -> dict[str, Any]:
    """The plan in ``path``; raises ``ValueError`` when it is too large or no plan."""
    with open(path, "rb") as file:  # noqa: PTH123 (pathlib would cost a third of a bare start)
        data = file.read(PLAN_LIMIT + 1)
    plan = json.loads(data) if len(data) <= PLAN_LIMIT else None
    if not isinstance(plan, dict) or plan.get("schema") != 1:
        raise ValueError(f"{path}: not a plan of schema 1")
    return plan


def execute(name: str, source: str, namespace: dict[str, Any]) -> None:
    """Run one stage and tell how it went; raises what it raised."""
    tell("begin", stage=name)
    started = time.perf_counter()
    try:
        exec(compile(source, f"<stage {name}>", "exec"), namespace)  # noqa: S102 (its purpose)
    except BaseException as error:
        tell("error", stage=name, error=worded(error))
        raise
    tell("stage", stage=name, seconds=time.perf_counter() - started)


def worded(error: BaseException) -> str:
    """An exception in a line: its class, the built-in class that it is one of, its text."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    own = type(error).__name__
    name = own if own in kinds else f"{own} ({kinds[0]})"
    return f"{name}: {error}"[:TEXT_LIMIT]


def run_stages(stages: list[tuple[str, str]], namespace: dict[str, Any]) -> None:
    """Run the stages one after another in one namespace."""
    for name, source in stages:
        execute(name, source, namespace)


def ask(plan: dict[str, Any]) -> None:
    """Ask the extension for its state, after each set of variables, and tell it with its time."""
    for variables in (plan["later"] or [{}]) if plan["state"] else ():
        os.environ.update(variables)
        namespace: dict[str, Any] = {}
        started = time.perf_counter()
        execute("state", plan["state"], namespace)
        found = namespace.get("result")
        said = found if isinstance(found, dict) else {}
        seconds = said.get("seconds", time.perf_counter() - started)
        if _FORKED:
            tell("forked", status=str(said.get("status"))[:TEXT_LIMIT], seconds=seconds)
        else:
            tell("state", state=found, seconds=seconds)


def threaded(stages: list[tuple[str, str]], namespace: dict[str, Any]) -> None:
    """Run the stages in eight threads at once; raises the first error."""
    import threading

    barrier = threading.Barrier(THREADS)
    errors: list[BaseException] = []

    def work() -> None:
        barrier.wait()
        try:
            run_stages(stages, dict(namespace))
        except BaseException as error:  # noqa: BLE001 (it is raised below)
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    run_stages(stages, namespace)


def forked(stages: list[tuple[str, str]], namespace: dict[str, Any]) -> None:
    """Run the stages in a child forked before they ran here, then here."""
    tell_fork(fork(lambda: run_stages(stages, dict(namespace))))
    run_stages(stages, namespace)


def subinterpreter(stages: list[tuple[str, str]], namespace: dict[str, Any]) -> None:
    """Run the stages in a subinterpreter, and what it raised again here."""
    del namespace
    try:
        import _interpreters as interpreters  # type: ignore[import-not-found]
    except ImportError:
        import _xxsubinterpreters as interpreters  # type: ignore[import-not-found]
    import tempfile

    with tempfile.NamedTemporaryFile("w+", suffix=".txt") as answer:
        code = (
            f"import sys\nsys.path[:] = {sys.path!r}\nspace = {{}}\nsaid = ''\ntry:\n"
            f"    for name, source in {stages!r}:\n"
            "        exec(compile(source, name, 'exec'), space)\n"
            "except BaseException as error:\n"
            "    said = type(error).__name__ + ': ' + str(error)\n"
            "    said = 'ImportError, ' + said if isinstance(error, ImportError) else said\n"
            f"open({answer.name!r}, 'w').write(said)\n"
        )
        number = interpreters.create()
        tell("begin", stage="subinterpreter")
        interpreters.run_string(number, code)
        interpreters.destroy(number)
        answer.seek(0)
        said = answer.read()
    if said:
        tell("error", stage=stages[-1][0], error=said[:TEXT_LIMIT])
        raise SystemExit(1)
    tell("stage", stage="subinterpreter", seconds=0.0)


WAYS: dict[str, Callable[[list[tuple[str, str]], dict[str, Any]], None]] = {
    "plain": run_stages,
    "torch-first": run_stages,
    "threaded": threaded,
    "forked": forked,
    "subinterpreter": subinterpreter,
}


def fork(work: Callable[[], None]) -> int:
    """The exit code of a fork that does ``work``, negative for a signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _FORKED.append(pid)
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:  # noqa: BLE001 (told, then the exit code says it)
            tell("error", stage="forked", error=worded(error))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def tell_fork(code: int) -> None:
    """Tell how a forked process ended."""
    tell("fork", returncode=code)


def again(plan: dict[str, Any], namespace: dict[str, Any]) -> None:
    """What a process forked from this one does: the operation, and the question."""
    name, source = plan["repeat"]
    execute(name, source, namespace)
    ask(plan)


def chosen(plan: dict[str, Any], mode: str) -> list[tuple[str, str]]:
    """The stages of a mode, in the order of the way of importing."""
    stages = [
        (name, source) for name, source, torch in plan["stages"] if mode == "torch" or not torch
    ]
    if mode == "torch" and plan["way"] == "torch-first":
        return [("torch before all", "import torch"), *stages]
    return stages


def main(arguments: list[str]) -> None:
    """Make one visit."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    plan, mode = read_plan(arguments[0]), arguments[1]
    tell("start", mode=mode)
    namespace: dict[str, Any] = {"__name__": "__visit__"}
    if mode == "torch" and plan["before"]:
        exec(compile(plan["before"], "<before>", "exec"), namespace)  # noqa: S102 (its purpose)
    if mode == "control":
        run_stages(CONTROL, namespace)
        tell("control", available=namespace.get("result"))
    else:
        stages = chosen(plan, mode)
        WAYS[plan["way"]](stages, namespace)
        ask(plan)
        for _ in range(plan["forks"] if mode == "torch" else 0):
            tell_fork(fork(lambda: again(plan, namespace)))
    torch = getattr(sys.modules.get("torch"), "__version__", None)
    tell("done", torch=None if torch is None else str(torch)[:TEXT_LIMIT])


if __name__ == "__main__":
    main(sys.argv[1:])
