"""csrc/module/stable_abi.h says what Python.h says, wherever Python.h is there to be asked."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from .conftest import ROOT

HEADER = ROOT / "csrc/module/stable_abi.h"
RECORDS = {
    "struct _object": ("ob_refcnt", "ob_type"),
    "PyMethodDef": ("ml_name", "ml_meth", "ml_flags", "ml_doc"),
    "PyModuleDef_Base": ("ob_base", "m_init", "m_index", "m_copy"),
    "PyModuleDef_Slot": ("slot", "value"),
    "PyModuleDef": (
        *("m_base", "m_name", "m_doc", "m_size", "m_methods", "m_slots", "m_traverse"),
        *("m_clear", "m_free"),
    ),
}


def compile_c(folder: Path, text: str, *flags: str) -> str:
    """Compile and run a C program; what it printed."""
    source = folder / "x.c"
    source.write_text(text)
    includes = f"-I{ROOT / 'csrc'}"
    command = ("gcc", "-Wall", "-Werror", includes, *flags, "-o", str(folder / "x"), str(source))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return subprocess.run([folder / "x"], capture_output=True, text=True, check=True).stdout


def layout(include: str) -> str:
    """A program that prints size and offsets of the records that ``include`` declares."""
    lines = [f"#include {include}", "#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
    for record, fields in RECORDS.items():
        lines.append(f'printf("{record} %zu\\n", sizeof({record}));')
        lines += [
            f'printf("{record}.{name} %zu\\n", offsetof({record}, {name}));' for name in fields
        ]
    lines += ['printf("METH_NOARGS %d\\n", METH_NOARGS);', "}"]
    return "\n".join(lines)


@pytest.fixture
def python_h() -> str:
    """The flag that finds Python.h."""
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").exists():
        pytest.skip("this Python came without its headers (Debian: python3-dev)")
    return f"-I{folder}"


def test_records_have_the_layout_of_python_h(tmp_path: Path, python_h: str) -> None:
    ours = compile_c(tmp_path, layout('"module/stable_abi.h"'))
    theirs = compile_c(tmp_path, layout("<Python.h>"), "-DPy_LIMITED_API=0x030a0000", python_h)
    assert ours == theirs
    assert ours.count("\n") == sum(1 + len(fields) for fields in RECORDS.values()) + 1


def test_functions_have_the_types_of_python_h(tmp_path: Path, python_h: str) -> None:
    text = HEADER.read_text()
    functions = re.findall(r"^[\w ]+\*? (Py\w+)\([^;]*\);$", text, re.MULTILINE)
    declared = re.findall(r"^((?:const )?\w+[ *]+)(Py\w+)(\([^;]*\));$", text, re.MULTILINE)
    assert len(declared) >= 15
    assert len(declared) == len(functions)
    checks = "\n".join(
        f"static {result.strip()} (*check_{name}){arguments} __attribute__((unused)) = {name};"
        for result, name, arguments in declared
    )
    program = f"#include <Python.h>\n{checks}\nint main(void) {{ return 0; }}"
    object_only = "-Wl,--unresolved-symbols=ignore-all"
    flags = ("-DPy_LIMITED_API=0x030a0000", python_h, object_only)
    compile_c(tmp_path, program, *flags)
