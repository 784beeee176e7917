"""Which lines an import runs, by small packages written for each question."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from wheelfab.imports.package import Package
from wheelfab.imports.reach import Reach
from wheelfab.imports.releases import Releases, read_releases
from wheelfab.imports.why import explain

if TYPE_CHECKING:
    from pathlib import Path

    from wheelfab.imports.record import Finding

ASK = "import torch\nX = torch.cuda.is_available()\n"


def read(root: Path, sources: dict[str, str]) -> Package:
    """A package ``p`` with these modules, by file name."""
    package = Package(root=root, tops=frozenset({"p"}))
    for file, source in {"__init__.py": "", **sources}.items():
        path = root / "p" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        parts = ("p", *file.removesuffix(".py").split("/"))
        package.add(path, ".".join(part for part in parts if part != "__init__"))
    return package


def find(
    root: Path, sources: dict[str, str], depth: int = 10, releases: Releases | None = None
) -> list[Finding]:
    return list(Reach(read(root, sources), depth, releases).findings())


def lines(found: list[Finding]) -> list[tuple[str, int]]:
    return [(one.place.file.removeprefix("p/"), one.place.line) for one in found]


def test_a_line_reached_from_many_modules_is_one_finding_with_their_number(tmp_path: Path) -> None:
    sources = {
        "ask.py": "import torch\ndef ask():\n    return torch.cuda.is_available()\n",
        "a.py": "from p.ask import ask\nA = ask()\n",
        "b.py": "from . import ask\nB = ask.ask()\n",
    }
    (finding,) = find(tmp_path, sources)
    assert finding.reached_from == 2
    assert finding.chain[0].place.file == "p/a.py"


def test_calls_are_followed_to_the_depth_asked_for(tmp_path: Path) -> None:
    steps = "".join(f"def f{i}():\n    return f{i + 1}()\n" for i in range(5))
    source = f"import torch\n{steps}def f5():\n    return torch.cuda.is_available()\nf0()\n"
    assert find(tmp_path, {"m.py": source}, depth=6)
    assert not find(tmp_path, {"m.py": source}, depth=5)


def test_functions_that_call_each_other_end(tmp_path: Path) -> None:
    source = "def a():\n    b()\ndef b():\n    a()\na()\n"
    assert find(tmp_path, {"m.py": source}) == []


def test_imports_in_a_circle_end(tmp_path: Path) -> None:
    sources = {"a.py": "from p.b import f\nf()\n", "b.py": "from p.a import f\nf()\n"}
    assert find(tmp_path, sources) == []


def test_a_local_name_hides_the_import(tmp_path: Path) -> None:
    source = "import torch\ndef f(torch):\n    torch.cuda.is_available()\nf(None)\n"
    assert find(tmp_path, {"m.py": source}) == []


def test_an_import_inside_a_called_function_is_seen(tmp_path: Path) -> None:
    source = "def f():\n    from torch import cuda as c\n    c.init()\nf()\n"
    assert lines(find(tmp_path, {"m.py": source})) == [("m.py", 3)]


def test_a_torch_handed_on_by_another_module_is_torch(tmp_path: Path) -> None:
    sources = {"compat.py": "import torch\n", "m.py": "from .compat import torch\n" + ASK[13:]}
    assert lines(find(tmp_path, sources)) == [("m.py", 2)]


def test_statements_after_a_return_do_not_run(tmp_path: Path) -> None:
    source = "import torch\ndef f():\n    return 1\n    torch.cuda.init()\nf()\n"
    assert find(tmp_path, {"m.py": source}) == []


@pytest.mark.parametrize(
    "guard",
    [
        "if is_hip():",
        "if HIP and other():",
        "if not (not HIP):",
        "if HIP is True and torch.version.hip:",
    ],
)
def test_a_branch_for_rocm_does_not_run_on_cuda(tmp_path: Path, guard: str) -> None:
    sources = {
        "util.py": "import torch\ndef is_hip():\n    return torch.version.hip is not None\n",
        "m.py": "import torch\nfrom p.util import is_hip\n"
        f"HIP = is_hip()\n{guard}\n    torch.cuda.get_device_name()\n",
    }
    assert find(tmp_path, sources) == []


def test_a_flag_that_may_be_either_keeps_its_branch(tmp_path: Path) -> None:
    source = (
        "import torch\nimport os\nFLAG = torch.version.hip\n"
        "if os.environ.get('X'):\n    FLAG = True\nif FLAG:\n    torch.cuda.init()\n"
    )
    assert lines(find(tmp_path, {"m.py": source})) == [("m.py", 7)]


def test_a_program_is_not_imported(tmp_path: Path) -> None:
    assert find(tmp_path, {"__main__.py": ASK}) == []


def test_autotune_counts_only_where_an_eager_triton_can_be_met(tmp_path: Path) -> None:
    source = "import triton\n@triton.autotune(configs=[], key=[])\ndef f():\n    pass\n"
    met = read_releases(["triton>=3.1"])
    missed = read_releases(["triton>=3.4,<4", "numpy"])
    other = read_releases(["torch==2.14.0"])
    extra = read_releases(["triton>=3.4; extra == 'all'"])
    assert len(find(tmp_path, {"m.py": source}, releases=met)) == 1
    assert find(tmp_path, {"m.py": source}, releases=missed) == []
    assert find(tmp_path, {"m.py": source}, releases=other) == []
    assert len(find(tmp_path, {"m.py": source}, releases=extra)) == 1


def test_files_that_cannot_be_read_are_said_and_stop_nothing(tmp_path: Path) -> None:
    sources = {"bad.py": "print 'old'\n", "deep.py": "(" * 9000 + ")" * 9000, "m.py": ASK}
    package = read(tmp_path, sources)
    assert [one.what for one in package.unreadable] == ["p/bad.py", "p/deep.py"]
    assert len(Reach(package, 10).findings()) == 1


def test_a_source_with_a_null_byte_is_unreadable(tmp_path: Path) -> None:
    package = read(tmp_path, {"m.py": "x = 1\0"})
    assert [one.what for one in package.unreadable] == ["p/m.py"]


def why(root: Path, sources: dict[str, str], wanted: str = "torch.cuda") -> tuple[list[str], str]:
    package = read(root, sources)
    told = explain(package, Reach(package, 10), "p", wanted)
    return [re.sub(r"\bp/", "", step) for step in told.steps], told.answer


def test_row_58_why_follows_imports_in_the_order_of_execution(tmp_path: Path) -> None:
    sources = {
        "__init__.py": "from . import first\nfrom . import second\n",
        "first.py": "from p.deep import thing\n",
        "deep/__init__.py": "from .inner import f\nthing = f()\n",
        "deep/inner.py": "import torch\ndef f():\n    return torch.cuda.device_count()\n",
        "second.py": ASK,
    }
    steps, answer = why(tmp_path, sources)
    assert steps == [
        "import p",
        "__init__.py:1: from . import first",
        "first.py:1: from p.deep import thing",
        "deep/__init__.py:2:9 in <module>: f()",
        "deep/inner.py:3:12 in f: torch.cuda.device_count()",
    ]
    assert answer == "p/deep/inner.py:3:12: torch.cuda.device_count()"


def test_why_tells_an_import_without_a_call(tmp_path: Path) -> None:
    steps, answer = why(tmp_path, {"__init__.py": "import p.m\n", "m.py": "import torch\n"})
    assert steps == ["import p", "__init__.py:1: import p.m", "m.py:1: import torch"]
    assert answer == "importing p imports it and calls nothing in torch.cuda"


def test_why_says_when_a_module_is_never_reached(tmp_path: Path) -> None:
    assert why(tmp_path, {"m.py": ASK}) == ([], "importing p never reaches torch.cuda")


def test_why_takes_another_module_than_torch_cuda(tmp_path: Path) -> None:
    sources = {"__init__.py": "import pynvml\npynvml.nvmlInit()\n"}
    steps, _ = why(tmp_path, sources, "pynvml")
    assert steps[-1] == "__init__.py:2:1 in <module>: pynvml.nvmlInit()"
