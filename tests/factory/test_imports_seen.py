"""What is made of an import that was run, of its stack and of its budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfab.errors import UsageError
from wheelfab.imports.budget import Budget, load_budget
from wheelfab.imports.dynamic import read_dumps
from wheelfab.imports.record import Ending, ImportRun, Level, Rule
from wheelfab.imports.seen import judge_runs

ROOT = Path("/somewhere")
DUMP = """Stack (most recent call first):
  File "/somewhere/p/b.py", line 5 in ask
  File "/somewhere/p/b.py", line 8 in <module>
  File "<frozen importlib._bootstrap>", line 241 in _call_with_frames_removed
  File "/somewhere/p/a.py", line 1 in <module>
Fatal Python error: Segmentation fault

Stack (most recent call first):
  File "/somewhere/p/a.py", line 9 in crash
"""


def done(module: str, **values: object) -> ImportRun:
    given = {"ending": Ending.DONE, "detail": "", "milliseconds": 1.0, **values}
    return ImportRun(module=module, **given)  # type: ignore[arg-type]


def test_dumps_are_read_outermost_first_without_the_import_machinery() -> None:
    assert read_dumps(DUMP) == [
        (
            "/somewhere/p/a.py:1 in <module>",
            "/somewhere/p/b.py:8 in <module>",
            "/somewhere/p/b.py:5 in ask",
        ),
        ("/somewhere/p/a.py:9 in crash",),
    ]
    assert read_dumps("") == []


def test_one_driver_call_seen_from_two_modules_is_one_finding() -> None:
    own = ("/somewhere/p/b.py:8 in <module>", "/somewhere/p/b.py:5 in ask")
    runs = [
        done("p.a", driver_calls={"cuInit": 1}, driver_stack=("/elsewhere/a.py:1 in x", *own)),
        done("p.b", driver_calls={"cuInit": 1}, driver_stack=own),
    ]
    (finding,) = judge_runs(runs, {}, ROOT, None)
    assert (finding.rule, finding.module, finding.reached_from) == (Rule.DRIVER_CALLED, "p.b", 2)
    assert [str(step.place) for step in finding.chain] == ["p/b.py:8", "p/b.py:5"]
    assert finding.text == "cuInit x1"


@pytest.mark.parametrize(
    ("values", "rule", "level"),
    [
        ({"devices": ("/dev/nvidiactl",)}, Rule.DEVICE_OPENED, Level.ERROR),
        ({"threads": ("pool",)}, Rule.THREAD, Level.WARNING),
        ({"native_threads": 3}, Rule.THREAD, Level.WARNING),
        ({"processes": ("os.system",)}, Rule.PROCESS, Level.WARNING),
        ({"ending": Ending.DIED, "detail": "SIGSEGV"}, Rule.CRASHED, Level.ERROR),
        ({"ending": Ending.HUNG}, Rule.HUNG, Level.ERROR),
        ({"ending": Ending.RAISED}, Rule.RAISED, Level.ERROR),
    ],
)
def test_each_thing_seen_has_its_rule(values: dict[str, object], rule: Rule, level: Level) -> None:
    (finding,) = judge_runs([done("p", **values)], {"p": "p/__init__.py"}, ROOT, None)
    assert (finding.rule, finding.level, finding.place.file) == (rule, level, "p/__init__.py")


def test_a_quiet_import_and_a_missing_dependency_are_no_findings() -> None:
    runs = [done("p"), done("p.a", ending=Ending.MISSING)]
    assert judge_runs(runs, {}, ROOT, None) == ()


def test_a_budget_is_kept_or_not() -> None:
    budget = Budget(milliseconds={"p": 5, "p.*": 0.4})
    (finding,) = judge_runs([done("p"), done("p.a")], {}, ROOT, budget)
    assert (finding.rule, finding.module) == (Rule.OVER_BUDGET, "p.a")
    assert finding.text == "1.0 ms of 0.4 ms"


def test_the_most_exact_line_of_a_budget_decides() -> None:
    budget = Budget(milliseconds={"*": 1, "p.*": 2, "p.a": 3})
    assert [budget.of(name) for name in ("p.a", "p.b", "q")] == [3, 2, 1]
    assert Budget(milliseconds={}).of("p") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[milliseconds]\nq = 1\n", "no module 'q'"),
        ("[milliseconds]\np = 0\n", "positive"),
        ("[milliseconds]\np = true\n", "positive"),
        ("[seconds]\np = 1\n", "one table"),
        ("[milliseconds", "no budget"),
    ],
)
def test_a_wrong_budget_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "budget.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        load_budget(path, ["p"])


def test_a_budget_is_read(tmp_path: Path) -> None:
    path = tmp_path / "budget.toml"
    path.write_text('[milliseconds]\np = 10\n"p.*" = 2.5\n')
    assert load_budget(path, ["p", "p.a"]).milliseconds == {"p": 10, "p.*": 2.5}
