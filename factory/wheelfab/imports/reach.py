"""From the top level of each module along calls to the lines that touch CUDA."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from wheelfab.imports.facts import Condition, Event, FunctionFacts
from wheelfab.imports.facts import Kind as EventKind
from wheelfab.imports.package import Kind, Package, Resolved
from wheelfab.imports.record import Context, Finding, Place, Step
from wheelfab.imports.releases import Releases
from wheelfab.imports.rules import judge

TOP = "<module>"
_MADE = ("__new__", "__init__", "__post_init__")


@dataclass(frozen=True, slots=True)
class Body:
    """A body of code that runs: a module's top level, or a function called from one."""

    module: str
    function: str = TOP
    asked: str | None = None
    returned: bool = False  # a decorator's: the functions that it returns run as well


@dataclass(frozen=True, slots=True)
class Way:
    """How a body was reached first: from which body, by which event, over how many calls."""

    origin: Body
    event: Event
    depth: int


class Reach:
    """The bodies that importing any module of a package runs, and what they do to the driver."""

    def __init__(self, package: Package, depth: int, releases: Releases | None = None) -> None:
        self.package = package
        self._releases = releases or Releases()
        self._depth = depth
        self._ways: dict[Body, Way] = {}
        self._callers: dict[Body, set[Body]] = {}
        self._found: dict[tuple[str, int, int, str], tuple[Finding, set[Body]]] = {}
        self._first: dict[tuple[str, int, int, str], Body] = {}
        self._run()

    def findings(self) -> tuple[Finding, ...]:
        """What was found, each line once, with the shortest chain of calls that leads to it."""
        every = (
            dataclasses.replace(
                finding,
                chain=self._chain(self._first[key], finding),
                reached_from=len(self._modules_of(bodies)),
            )
            for key, (finding, bodies) in self._found.items()
        )
        return tuple(sorted(every, key=lambda finding: (finding.place, finding.rule)))

    def touching(self) -> dict[tuple[str, int], list[Finding]]:
        """The findings by the module-level line (module, line) that leads to them."""
        found: dict[tuple[str, int], list[Finding]] = {}
        for finding in self.findings():
            start = finding.chain[0].place
            found.setdefault((start.file, start.line), []).append(finding)
        return found

    def _run(self) -> None:
        starts = (name for name in self.package.modules if not runs_as_program(name))
        queue = deque((Body(module), 0) for module in starts)
        seen = {body for body, _ in queue}
        while queue:
            body, depth = queue.popleft()
            for event in filter(self.package.can_run, self._events(body)):
                for called in self._visit(body, event):
                    self._callers.setdefault(called, set()).add(body)
                    if called in seen or depth >= self._depth:
                        continue
                    seen.add(called)
                    self._ways[called] = Way(body, event, depth + 1)
                    queue.append((called, depth + 1))

    def _events(self, body: Body) -> Iterator[Event]:
        if body.function == TOP:
            yield from self.package.modules[body.module].events
            return
        facts = self.package.function(body.module, body.function)
        if facts is None:
            return
        yield from (event for event in facts.events if _asked(event, body.asked))
        if body.returned:
            for inner in self._returned(body.module, facts):
                yield from inner.events

    def _returned(self, module: str, facts: FunctionFacts) -> Iterator[FunctionFacts]:
        for name in facts.returned:
            inner = self.package.function(module, name)
            if inner is not None:
                yield inner

    def _visit(self, body: Body, event: Event) -> list[Body]:
        """Judge one event; gives the bodies of the package that it calls."""
        if event.name.startswith("."):
            self._judge(body, event, event.name)
            return []
        resolved = self.package.resolve(event.name)
        if resolved.kind in (Kind.OUTSIDE, Kind.UNKNOWN):
            known = resolved.kind is Kind.OUTSIDE and self._judge(body, event, resolved.name)
            # a method of something made elsewhere is known by its name alone
            if not known and event.kind is EventKind.CALL:
                self._judge(body, event, "." + event.name.rpartition(".")[2])
            return []
        if resolved.asked is not None:
            return [Body(resolved.module, resolved.name, resolved.asked)]
        return self._called(resolved, event) if event.kind is EventKind.CALL else []

    def _called(self, resolved: Resolved, event: Event) -> list[Body]:
        """The bodies that calling ``resolved`` runs."""
        if resolved.kind is Kind.FUNCTION:
            facts = self.package.function(resolved.module, resolved.name)
            entered = event.iterated or event.context is Context.WITH
            if facts is None or (facts.late and not entered):
                return []
            return [Body(resolved.module, resolved.name, None, event.applied)]
        if resolved.kind is Kind.CLASS:
            wanted = (*_MADE, "__enter__") if event.context is Context.WITH else _MADE
            made: list[Resolved] = self.package.methods(resolved, wanted)
            return [Body(one.module, one.name) for one in made]
        return []

    def _judge(self, body: Body, event: Event, name: str) -> bool:
        """Keep the finding that ``event`` is, if it is one; says whether."""
        touch = judge(name, event)
        if touch is None or not self._releases.allow(touch.only):
            return False
        facts = self.package.modules[body.module]
        span = event.span
        key = (facts.file, span.line, span.column, str(touch.rule))
        if event.kind is EventKind.IMPORT:
            key = (facts.file, 0, 0, name)  # a module runs once, however often it is imported
        if key in self._found:
            self._found[key][1].add(body)
            return True
        self._first[key] = body
        when = (self._condition(body.module, condition) for condition in event.when)
        finding = Finding(
            rule=touch.rule,
            level=touch.level,
            module=body.module,
            place=Place(file=facts.file, line=span.line, column=span.column + 1),
            call=name,
            text=self.package.shown(body.module, event),
            why=touch.why,
            next_step=touch.next_step,
            context=event.context,
            when=tuple(when),
        )
        self._found[key] = (finding, {body})
        return True

    def _condition(self, module: str, condition: Condition) -> str:
        test = self.package.text(module, condition.test)
        return f"not ({test})" if condition.negated else test

    def _chain(self, body: Body, finding: Finding) -> tuple[Step, ...]:
        steps = [Step(place=finding.place, function=_named(body), call=finding.text)]
        while body in self._ways:
            way = self._ways[body]
            steps.append(self._step(way.origin, way.event))
            body = way.origin
        return tuple(reversed(steps))

    def _step(self, body: Body, event: Event) -> Step:
        file = self.package.modules[body.module].file
        place = Place(file=file, line=event.span.line, column=event.span.column + 1)
        return Step(place=place, function=_named(body), call=self.package.shown(body.module, event))

    def _modules_of(self, bodies: set[Body]) -> set[str]:
        """The modules whose top level leads to one of ``bodies``."""
        seen, stack = set(bodies), list(bodies)
        while stack:
            for caller in self._callers.get(stack.pop(), ()):
                if caller not in seen:
                    seen.add(caller)
                    stack.append(caller)
        return {body.module for body in seen if body.function == TOP}


def runs_as_program(module: str) -> bool:
    """Whether a module is there to be run with ``python -m``, not to be imported."""
    return module.rpartition(".")[2] == "__main__"


def _named(body: Body) -> str:
    return body.function if body.asked is None else f"{body.function}({body.asked!r})"


def _asked(event: Event, name: str | None) -> bool:
    return event.only_for is None or name is None or name in event.only_for
