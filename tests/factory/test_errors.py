"""The family of errors: one exit code each, one form of text, many joined into one."""

from __future__ import annotations

from wheelfab import errors
from wheelfab.errors import (
    BuildError,
    FactoryError,
    HarnessError,
    LoopError,
    MatrixError,
    WheelError,
    one_of_many,
)

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FactoryError) and kind is not FactoryError
]


def test_every_kind_has_an_exit_code_of_its_own_that_a_shell_does_not_use() -> None:
    codes = [kind.exit_code for kind in KINDS]
    assert len(set(codes)) == len(KINDS) == 14
    assert all(0 < code < 64 for code in codes)  # 64 and above are sysexits', the shell's, signals'


def test_a_load_that_failed_and_a_loop_that_broke_are_told_apart() -> None:
    assert LoopError.exit_code != HarnessError.exit_code


def test_the_text_says_where_what_and_what_to_do() -> None:
    assert str(BuildError("no disk", where="cpu", next_step="free some")) == (
        "cpu: no disk; free some"
    )
    assert str(BuildError("no disk", where="cpu")) == "cpu: no disk"
    assert str(BuildError("no disk", next_step="free some")) == "no disk; free some"
    assert str(BuildError("no disk")) == "no disk"


def test_many_become_one_of_the_first_ones_kind_a_line_each() -> None:
    first, second = MatrixError("one", where="a", next_step="b"), WheelError("two")
    assert one_of_many([first]) is first
    joined = one_of_many([first, second])
    assert type(joined) is MatrixError
    assert str(joined) == "a: one; b\ntwo"
