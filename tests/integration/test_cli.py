"""Mistakes on the command line: an exit code and a sentence each, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wheelfab.errors import (
    BuildError,
    FactoryError,
    MatrixError,
    PublishError,
    ToolchainError,
    UsageError,
)

from .conftest import Wheelfab

KNOWN = "variants: cu118, cu121; or a cell such as cu118-torch2.4"


@pytest.mark.parametrize(
    ("argv", "kind", "says"),
    [
        (
            ["build", "cu128"],
            UsageError,
            "error: unknown variant or cell 'cu128'; did you mean 'cu121'?",
        ),
        (
            ["plan", "cu121-torch2.5"],
            UsageError,
            "error: unknown variant or cell 'cu121-torch2.5'; did you mean 'cu121-torch2.4'?",
        ),
        (
            ["loop", "--variant", "everything"],
            UsageError,
            f"error: unknown variant or cell 'everything'; {KNOWN}",
        ),
        (
            ["loop", "--variant", "cu121-torch2.4"],
            UsageError,
            (
                "error: cu121-torch2.4: was not built, or its record cannot be read; "
                "run `wheelfab build cu121-torch2.4`"
            ),
        ),
        (
            ["loop", "--variant", "cu121-torch2.4", "--torch", "2.4.1", "2.5.0"],
            UsageError,
            "error: --torch: no cell takes 2.5.0; cu121-torch2.4 takes torch<2.5,>=2.4.1\n",
        ),
        (
            ["--matrix", "other.toml", "build"],
            MatrixError,
            (
                "error: other.toml: cannot be read: No such file or directory; "
                "run in the folder of matrix.toml, or name the file"
            ),
        ),
        (["index"], PublishError, "there is no wheel to list; build first"),
        (["publish", "served"], PublishError, "cu118-torch2.4: missing (it was not built)"),
        (["lint-import", "nowhere"], UsageError, "nor an installed package: 'nowhere'; "),
        (["docs", "--check"], UsageError, "error: out of date: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_mistake_is_an_exit_code_and_a_sentence(
    tiny: Wheelfab, argv: list[str], kind: type[FactoryError], says: str, form: list[str]
) -> None:
    done = tiny.run(*argv, *form)
    assert done.returncode == kind.exit_code
    assert says in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert not (tiny.root / "dist").exists()


def test_an_unknown_session_is_a_sentence(tiny: Wheelfab) -> None:
    done = tiny.run("session", "lnit")
    assert done.returncode == UsageError.exit_code
    assert done.stderr == "error: no session 'lnit'; matrix.toml has: none\n"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["frobnicate"], "invalid choice: 'frobnicate' (choose from "),
        ([], "the following arguments are required: COMMAND"),
        (["loop", "--count", "many"], "argument --count: "),
        (["loop", "--count", "-1"], "argument --count: -1 is not between 0 and 1,000,000"),
        (["container"], "the following arguments are required: target"),
    ],
)
def test_a_command_line_that_is_none_is_a_usage_error(
    tiny: Wheelfab, argv: list[str], says: str
) -> None:
    done = tiny.run(*argv)
    assert done.returncode == UsageError.exit_code
    assert says.replace("'", "") in done.stderr.replace("'", "")
    assert done.stderr.startswith("usage: wheelfab ")
    assert "Traceback" not in done.stderr


def test_a_publish_without_a_place_is_a_sentence(tiny: Wheelfab) -> None:
    done = tiny.run("publish")
    assert done.returncode == UsageError.exit_code
    assert done.stderr == "error: nothing to do; name a folder, or --verify URL\n"


def test_every_error_of_a_matrix_is_told_and_nothing_is_done(tiny: Wheelfab) -> None:
    path = tiny.root / "matrix.toml"
    text = path.read_text().replace('arch = ["8.0", "9.0+PTX"]', 'arch = ["8.0", "9.0q"]')
    path.write_text(text.replace("size-budget", "size-budgt"))
    done = tiny.run("build")
    assert done.returncode == MatrixError.exit_code
    lines = done.stderr.splitlines()
    assert any("defaults.arch[1]" in line for line in lines), done.stderr
    assert any("size-budgt" in line and "size-budget" in line for line in lines), done.stderr
    assert "Traceback" not in done.stderr
    assert not (tiny.root / "build").exists()


@pytest.mark.parametrize("content", [b"[project\n", b"\xff\xfe", b""])
def test_a_matrix_that_cannot_be_read_is_a_sentence(tiny: Wheelfab, content: bytes) -> None:
    (tiny.root / "matrix.toml").write_bytes(content)
    done = tiny.run("plan")
    assert done.returncode == MatrixError.exit_code
    assert "matrix.toml" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_source_that_is_gone_is_a_sentence(tiny: Wheelfab) -> None:
    (tiny.root / "csrc/base.c").unlink()
    done = tiny.run("build", "cu121")
    assert done.returncode == MatrixError.exit_code
    assert "'csrc/base.c' matches no file" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_compiler_there_is_a_sentence(tiny: Wheelfab, tmp_path: Path) -> None:
    done = tiny.run("build", "cu121", PATH=str(tmp_path))
    assert done.returncode == ToolchainError.exit_code
    assert "error: no C++ compiler on the PATH; install g++" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_json_of_each_command_is_one_document(tiny: Wheelfab) -> None:
    """Progress is on stderr: a pipe into a JSON reader works whatever the command."""
    assert {item["id"] for item in tiny.json("plan")["cells"]} >= {"cu118-torch2.4"}
    wheels = [Path(item["wheel"]).name for item in tiny.json("build")]
    assert tiny.json("index")["index"] == str(tiny.root / "build" / "index")
    assert tiny.json("compat")["absent"] == []
    assert sorted(tiny.json("publish", "served")["wheels"]) == sorted(wheels)
    assert "matrix.md" in tiny.json("docs")["stale"]
    assert tiny.json("docs") == {"stale": []}


def test_a_failed_build_is_one_json_document_too(tiny: Wheelfab) -> None:
    (tiny.root / "csrc/base.c").write_text("int tiny_answer(void) { return nothing; }\n")
    done = tiny.run("build", "cu121-torch2.10", "--json")
    assert done.returncode == BuildError.exit_code
    (failed,) = json.loads(done.stdout)
    assert (failed["state"], failed["wheel"]) == ("failed", None)
    assert "error: " in failed["reason"]
    assert "undeclared" in failed["reason"]
