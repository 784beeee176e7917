"""What runs: the calls, imports and attributes that executing a body would reach, in order."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from wheelfab.imports.arguments import read_arguments
from wheelfab.imports.bind import read_names
from wheelfab.imports.facts import (
    METHODS,
    ROOTS,
    Arguments,
    Condition,
    Event,
    Kind,
    ModuleFacts,
    Span,
)
from wheelfab.imports.names import (
    Function,
    Scope,
    absolute,
    needs,
    truth,
)
from wheelfab.imports.record import Context

_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_CONSUMERS = frozenset({"list", "tuple", "set", "dict", "sorted", "any", "all", "sum", "next"})
When = tuple[Condition, ...]
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def scan_module(
    name: str, package: str, file: str, tree: ast.Module, tops: frozenset[str]
) -> ModuleFacts:
    """What importing the module runs; ``tops`` are the packages whose own calls are kept too."""
    names, scope = read_names(name, package, tree)
    walk = Walk(scope, tops)
    walk.block(tree.body, ())
    return ModuleFacts(name=name, file=file, names=names, events=tuple(walk.events))


class Walk:
    """One walk over a body, in the order of execution; what it meets is added to ``events``."""

    def __init__(self, scope: Scope, tops: frozenset[str], special: Function | None = None) -> None:
        self.scope = scope
        self.tops = tops
        self.events: list[Event] = []
        self.returned: list[str] = []
        self.yields = False
        self._iterated: set[ast.expr] = set()
        self._asked = special.args.args[0].arg if special and special.args.args else None
        self._only_for: frozenset[str] | None = None

    def block(
        self, body: Sequence[ast.stmt], when: When, context: Context = Context.STATEMENT
    ) -> None:
        """The statements of ``body`` up to one that leaves it."""
        for node in body:
            self.statement(node, when, context)
            if isinstance(node, _ENDS):
                return

    def statement(self, node: ast.stmt, when: When, context: Context) -> None:  # noqa: C901, PLR0912 (a case a statement)
        """One statement; bodies of functions that it defines do not run."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._definition(node, when)
            case ast.ClassDef():
                for decorator in node.decorator_list:
                    self._decorator(decorator, when)
                for part in [*node.bases, *(keyword.value for keyword in node.keywords)]:
                    self.expression(part, when, context)
                self.block(node.body, when, Context.CLASS_BODY)
            case ast.If():
                self._if(node, when, context)
            case ast.Import(names=imported):
                for alias in imported:
                    self._import(node, alias.name, when)
            case ast.ImportFrom():
                self._import_from(node, when)
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                for item in items:
                    self.expression(item.context_expr, when, Context.WITH)
                self.block(body, when, context)
            case ast.AnnAssign():
                eager = not self.scope.names.lazy_annotations and not self.scope.qualname
                if eager:
                    self.expression(node.annotation, when, Context.ANNOTATION)
                if node.value is not None:
                    self.expression(node.value, when, context)
            case _:
                self._other(node, when, context)

    def _other(self, node: ast.stmt, when: When, context: Context) -> None:
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Name):
            inner = self.scope.inner.get(node.value.id)
            self.returned.extend([inner] if inner else [])
        if isinstance(node, ast.For):
            self._iterated.add(node.iter)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.expression(child, when, context)
        for part in ("body", "orelse", "finalbody"):
            self.block(getattr(node, part, []), when, context)
        quiet = isinstance(node, ast.Try) and self._cannot_raise(node.body)
        for handler in () if quiet else getattr(node, "handlers", ()):
            self.block(handler.body, when, context)
        for case in getattr(node, "cases", []):
            self.block(case.body, when, context)

    def _cannot_raise(self, body: Sequence[ast.stmt]) -> bool:
        """Whether what is known to run of ``body`` only passes or returns constants."""
        for node in body:
            match node:
                case ast.Pass() | ast.Return(value=None | ast.Constant()):
                    continue
                case ast.If() if (known := truth(node.test, self.scope)) is not None:
                    if not self._cannot_raise(node.body if known else node.orelse):
                        return False
                case _:
                    return False
        return True

    def _if(self, node: ast.If, when: When, context: Context) -> None:
        known = truth(node.test, self.scope)
        self.expression(node.test, when, context)
        test = _span(node.test)
        outer = self._only_for
        if known is not False:
            self._only_for = self._names_asked(node.test) or outer
            self.block(
                node.body,
                when
                if known
                else (
                    *when,
                    Condition(test, negated=False, needs=needs(node.test, self.scope, wanted=True)),
                ),
                context,
            )
            self._only_for = outer
        if known is not True:
            self.block(
                node.orelse,
                when
                if known is False
                else (
                    *when,
                    Condition(test, negated=True, needs=needs(node.test, self.scope, wanted=False)),
                ),
                context,
            )

    def _names_asked(self, test: ast.expr) -> frozenset[str] | None:
        """In a module's ``__getattr__(name)``: the names for which ``test`` is true."""
        match test:
            case ast.Compare(left=ast.Name(id=left), ops=[ast.Eq()], comparators=[right]):
                items = [right]
            case ast.Compare(
                left=ast.Name(id=left),
                ops=[ast.In()],
                comparators=[ast.Tuple() | ast.List() | ast.Set() as many],
            ):
                items = many.elts
            case _:
                return None
        if self._asked is None or left != self._asked:
            return None
        return frozenset(str(item.value) for item in items if isinstance(item, ast.Constant))

    def _definition(self, node: Function, when: When) -> None:
        for decorator in node.decorator_list:
            self._decorator(decorator, when)
        arguments = node.args
        for default in [*arguments.defaults, *arguments.kw_defaults]:
            if default is not None:
                self.expression(default, when, Context.DEFAULT)
        if self.scope.names.lazy_annotations:
            return
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
        annotations = [argument.annotation for argument in every] + [node.returns]
        for annotation in annotations:
            if annotation is not None:
                self.expression(annotation, when, Context.ANNOTATION)

    def _decorator(self, node: ast.expr, when: When) -> None:
        self.expression(node, when, Context.DECORATOR)
        applied = node.func if isinstance(node, ast.Call) else node
        name = self.scope.dotted(applied)
        if name is None:
            return
        if not isinstance(node, ast.Call):
            self._add(name, node, when, Context.DECORATOR)
        elif self._own(name):
            self._add(name, node, when, Context.DECORATOR, applied=True)

    def expression(self, node: ast.expr, when: When, context: Context) -> None:  # noqa: C901, PLR0912 (a case an expression)
        """What evaluating ``node`` runs."""
        match node:
            case ast.Call():
                self._call(node, when, context)
            case ast.Yield() | ast.YieldFrom():
                self.yields = True
                self._inside(node, when, context)
            case ast.Lambda(args=arguments):
                for default in [*arguments.defaults, *arguments.kw_defaults]:
                    if default is not None:
                        self.expression(default, when, context)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                known = truth(test, self.scope)
                self.expression(test, when, context)
                if known is not False:
                    self.expression(body, when, context)
                if known is not True:
                    self.expression(orelse, when, context)
            case ast.BoolOp(op=op, values=values):
                for value in values:
                    self.expression(value, when, context)
                    if truth(value, self.scope) is isinstance(op, ast.Or):
                        break
            case ast.Attribute():
                name = self.scope.dotted(node)
                if name is None:
                    self.expression(node.value, when, context)
                elif self._kept(name):
                    self._add(name, node, when, context, kind=Kind.LOAD)
            case _:
                self._inside(node, when, context)

    def _inside(self, node: ast.expr, when: When, context: Context) -> None:
        if context in (Context.STATEMENT, Context.CLASS_BODY):
            if isinstance(node, _COMPREHENSIONS):
                context = Context.COMPREHENSION
            elif isinstance(node, ast.JoinedStr):
                context = Context.F_STRING
        if isinstance(node, _COMPREHENSIONS):
            self._loop_over(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.expression(child, when, context)
            elif isinstance(child, ast.comprehension):
                for part in (child.iter, *child.ifs):
                    self.expression(part, when, context)

    def _loop_over(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        for generator in node.generators:
            self._iterated.add(generator.iter)
            for target in ast.walk(generator.target):
                if isinstance(target, ast.Name):
                    self.scope.loops[target.id] = generator.iter

    def _call(self, node: ast.Call, when: When, context: Context) -> None:
        name = self.scope.dotted(node.func)
        if isinstance(node.func, ast.Name) and node.func.id in _CONSUMERS:
            self._iterated.update(node.args)
        for part in [*node.args, *(keyword.value for keyword in node.keywords)]:
            self.expression(part, when, context)
        if isinstance(node.func, ast.Lambda):
            self.expression(node.func.body, when, context)
            return
        if name is None and isinstance(node.func, ast.Attribute):
            self._method(node, node.func, when, context)
            return
        if name is not None and self._kept(name):
            self._add(name, node, when, context)
        for possible in self._dispatched(node.func):
            self._add(possible, node, when, context)
        if name is None:
            self.expression(node.func, when, context)

    def _method(self, node: ast.Call, func: ast.Attribute, when: When, context: Context) -> None:
        is_super = isinstance(func.value, ast.Call) and isinstance(func.value.func, ast.Name)
        if is_super and func.value.func.id == "super" and self.scope.owner:  # type: ignore[attr-defined]
            for base in self.scope.names.classes.get(self.scope.owner, ()):
                self._add(f"{base}.{func.attr}", node, when, context)
            return
        self.expression(func.value, when, context)
        if func.attr in METHODS or func.attr.startswith("nvml"):
            self._add(f".{func.attr}", node, when, context)

    def _dispatched(self, func: ast.expr) -> tuple[str, ...]:
        """The functions of a table that ``func`` may be: ``TABLE[key]``, or a loop over it."""
        tables = self.scope.names.dispatch
        if isinstance(func, ast.Subscript) and isinstance(func.value, ast.Name):
            return tables.get(func.value.id, ())
        source = self.scope.loops.get(func.id) if isinstance(func, ast.Name) else None
        if source is None:
            return ()
        listed = [node.id for node in ast.walk(source) if isinstance(node, ast.Name)]
        return tuple(name for table in listed for name in tables.get(table, ()))

    def _import(self, node: ast.stmt, name: str, when: When) -> None:
        if self._kept(name):
            self._add(name, node, when, Context.STATEMENT, kind=Kind.IMPORT)

    def _import_from(self, node: ast.ImportFrom, when: When) -> None:
        base = absolute(self.scope.names.package, node.level, node.module)
        self._import(node, base, when)
        for alias in node.names:
            self._import(node, base if alias.name == "*" else f"{base}.{alias.name}", when)

    def _own(self, name: str) -> bool:
        return name.split(".", maxsplit=1)[0] in self.tops

    def _kept(self, name: str) -> bool:
        return self._own(name) or name.split(".", maxsplit=1)[0] in ROOTS

    def _add(
        self,
        name: str,
        node: ast.expr | ast.stmt,
        when: When,
        context: Context,
        *,
        kind: Kind = Kind.CALL,
        applied: bool = False,
    ) -> None:
        arguments = read_arguments(node, self.scope) if isinstance(node, ast.Call) else Arguments()
        self.events.append(
            Event(
                name=name,
                span=_span(node),
                kind=kind,
                context=context,
                when=when,
                arguments=arguments,
                applied=applied,
                iterated=node in self._iterated,
                only_for=self._only_for,
            )
        )


def _span(node: ast.expr | ast.stmt) -> Span:
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return Span(node.lineno, node.col_offset, end_line, end_column)
