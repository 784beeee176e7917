"""The repair: the simple constant becomes a cached getter, everything else is left alone."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from wheelfab.imports import Fixed, LintOptions, Refused, fix, lint

if TYPE_CHECKING:
    from pathlib import Path


def repair(
    root: Path, source: str | bytes, **others: str
) -> tuple[str, tuple[Fixed, ...], tuple[Refused, ...]]:
    """The text of ``p/m.py`` after the repair, what was changed, and what was refused."""
    folder = root / "p"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "m.py").write_bytes(source if isinstance(source, bytes) else source.encode())
    for name, text in others.items():
        (folder / f"{name}.py").write_text(text)
    report = lint(folder, LintOptions(dynamic=False))
    fixed, refused = fix(report)
    return (folder / "m.py").read_bytes().decode(), fixed, refused


SIMPLE = '''"""Doc."""

from __future__ import annotations

import torch  # the usual

HAS_CUDA = torch.cuda.is_available()  # asked once


def pick(  odd,spacing ):
    """HAS_CUDA is not touched here."""
    return "cuda" if HAS_CUDA else "cpu"


class Engine:
    def run(self):
        return [HAS_CUDA for _ in range(2)], lambda: HAS_CUDA
'''


def test_row_59_the_simple_pattern_becomes_a_cached_getter(tmp_path: Path) -> None:
    text, fixed, refused = repair(tmp_path, SIMPLE)
    expected = SIMPLE.replace(
        "import torch  # the usual", "import functools\nimport torch  # the usual"
    )
    expected = expected.replace(
        "HAS_CUDA = torch.cuda.is_available()",
        "@functools.cache\ndef _get_has_cuda():\n    return torch.cuda.is_available()",
    )
    expected = expected.replace('if HAS_CUDA else "cpu"', 'if _get_has_cuda() else "cpu"')
    expected = expected.replace("[HAS_CUDA for", "[_get_has_cuda() for")
    expected = expected.replace("lambda: HAS_CUDA", "lambda: _get_has_cuda()")
    assert text == expected
    assert refused == ()
    assert [(one.name, one.getter, one.uses) for one in fixed] == [("HAS_CUDA", "_get_has_cuda", 3)]


def test_the_repaired_module_has_no_finding_left(tmp_path: Path) -> None:
    repair(tmp_path, SIMPLE)
    assert lint(tmp_path / "p", LintOptions(dynamic=False)).findings == ()


def test_the_repaired_module_means_the_same(tmp_path: Path) -> None:
    source = "import math\nimport torch\nN = torch.cuda.device_count()\ndef f():\n    return N, N\n"
    text, _, _ = repair(tmp_path, source)
    calls: list[int] = []

    class Cuda:
        @staticmethod
        def device_count() -> int:
            calls.append(1)
            return 7

    namespace: dict[str, object] = {}
    body = text.replace("import torch\n", "")
    fake = type("torch", (), {"cuda": Cuda})
    exec(compile(body, "m.py", "exec"), namespace := {"torch": fake})  # noqa: S102
    assert calls == []
    assert namespace["f"]() == (7, 7)  # type: ignore[operator]
    assert calls == [1]


def test_several_constants_in_one_file(tmp_path: Path) -> None:
    source = (
        "import functools\nimport torch\n"
        "A: bool = torch.cuda.is_available()\n"
        "B = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9\n"
        "def f():\n    return A, B\n"
    )
    text, fixed, refused = repair(tmp_path, source)
    assert text == (
        "import functools\nimport torch\n"
        "@functools.cache\ndef _get_a() -> bool:\n    return torch.cuda.is_available()\n"
        "@functools.cache\ndef _get_b():\n"
        "    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9\n"
        "def f():\n    return _get_a(), _get_b()\n"
    )
    assert len(fixed) == 2
    assert refused == ()


def test_line_ends_other_letters_and_several_lines_are_kept(tmp_path: Path) -> None:
    source = (
        "# größe\r\nfrom functools import cache\r\nimport torch\r\n"
        "N = (\r\n    torch.cuda.is_available()\r\n    and torch.cuda.device_count()\r\n)\r\n"
        'def f():\r\n    return "é", N\r\n'
    ).encode()
    text, _, _ = repair(tmp_path, source)
    assert text == (
        "# größe\r\nfrom functools import cache\r\nimport torch\r\n"
        "@cache\r\ndef _get_n():\r\n    return (torch.cuda.is_available()\r\n"
        "    and torch.cuda.device_count())\r\n"
        'def f():\r\n    return "é", _get_n()\r\n'
    )
    ast.parse(text)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("__all__ = ['N']\nN = {ask}\ndef f():\n    return N\n", "exported in __all__"),
        ("N = {ask}\ndef f():\n    global N\n    N = 1\n", "bound a second time"),
        ("N = {ask}\nN = 2\ndef f():\n    return N\n", "assigned again"),
        ("N = {ask}\ndel N\n", "assigned again or deleted"),
        ("N = {ask}\nM = N\ndef f():\n    return N\n", "read while the module is imported"),
        ("N = {ask}\ndef f(x=N):\n    return N\n", "read while the module is imported"),
        ("N = {ask}\nclass A:\n    x = N\n", "read while the module is imported"),
        ("N = {ask}\ndef f(N):\n    return N\n", "bound a second time"),
        ("N = {ask}\n", "not read in this module"),
        ("N = M = {ask}\ndef f():\n    return N\n", "more than one plain name"),
        ("N = [{ask} for _ in 'x']\ndef f():\n    return N\n", "ListComp"),
        ("k = 1\nN = {ask} + k\ndef f():\n    return N\n", "depends on k"),
        ("import triton\nN = {ask}\n@triton.jit\ndef f():\n    return N\n", "@jit may compile"),
        ("from x import c\nN = c({ask})\ndef f():\n    return N\n", "other than torch"),
        ("@mark({ask})\ndef f():\n    pass\n", "not a constant"),
        ("if {ask}:\n    N = 1\n", "not a constant"),
        ("def f():\n    return {ask}\nf()\n", "called at the top level"),
        ("N = {ask}\ndef _get_n():\n    return N\n", "the name _get_n is taken"),
    ],
)
def test_what_is_not_simple_is_refused_with_the_reason(
    tmp_path: Path, body: str, reason: str
) -> None:
    source = "import torch\n" + body.format(ask="torch.cuda.device_count()")
    text, fixed, refused = repair(tmp_path, source)
    assert text == source
    assert fixed == ()
    assert [reason in one.reason for one in refused] == [True], refused


def test_a_call_over_several_lines_needs_no_parentheses(tmp_path: Path) -> None:
    source = (
        "import functools\nimport torch\nN = torch.cuda.get_device_properties(\n    0\n).major\n"
        "class A:\n    @property\n    def f(self):\n        return N\n"
    )
    text, fixed, _ = repair(tmp_path, source)
    assert "    return torch.cuda.get_device_properties(\n    0\n).major\n" in text
    assert len(fixed) == 1


def test_a_constant_that_another_module_reads_is_refused(tmp_path: Path) -> None:
    source = "import torch\nN = torch.cuda.device_count()\ndef f():\n    return N\n"
    text, fixed, refused = repair(tmp_path, source, other="from p.m import N\n")
    assert (text, fixed) == (source, ())
    assert "other.py" in refused[0].reason


def test_a_wheel_is_never_changed(tmp_path: Path) -> None:
    import zipfile

    wheel = tmp_path / "p-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("p/__init__.py", SIMPLE)
    before = wheel.read_bytes()
    fixed, refused = fix(lint(wheel, LintOptions(dynamic=False)))
    assert fixed == ()
    assert refused[0].reason == "not your own file"
    assert wheel.read_bytes() == before
