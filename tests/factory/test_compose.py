"""A wheel is composed: its staged sources, their rewritten metadata, and its build record."""

from __future__ import annotations

import json
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from tests.drivers.cubin import ARCHS
from wheelfab.compose import Parts, make_wheel
from wheelfab.errors import BuildError, MatrixError, WheelError
from wheelfab.matrix import load_matrix
from wheelfab.model import Profile
from wheelfab.plan import Plan, plan
from wheelfab.records import file_digest, read_json
from wheelfab.sbom import make_sbom
from wheelfab.source import Source
from wheelfab.toolchain.torch import TorchTree
from wheelfab.variant import Cell, expand, select
from wheelfab.wheel import read_wheel

from .elfmaker import make_library
from .imagemaker import with_images
from .matrixmaker import MATRIX
from .test_plan import COMPILER, FILES
from .wheelmaker import make_wheel as pack

PYPROJECT = """\
[build-system]
requires = ["scikit-build-core>=1.1"]

[project]
name = "demo"
version = "0.1.0"
requires-python = ">=3.8"
dependencies = ["numpy>=1.26", "Torch>=2; python_version >= '3.10'"]  # as a plain build wants it

[tool.scikit-build]
minimum-version = "1.1"
"""
DYNAMIC = """\
[project]
name = "demo"
version = "0.1.0"
dynamic = ["dependencies"]

[[tool.dynamic-metadata]]
provider = { path = "engine", module = "torch_of_this_machine" }

[tool.scikit-build]
minimum-version = "1.1"

[tool.scikit-build.metadata.readme]
provider = "something.that.runs"
"""
TORCH = TorchTree(
    root=Path("/store/torch"),
    release="2.4.1",
    version="2.4.1+cpu",
    python="3.11",
    file="torch-2.4.1+cpu-cp311-cp311-linux_x86_64.whl",
    sha256="a" * 64,
    source="pypi fallback: the index did not answer",
    cuda=None,
    cxx11_abi=False,
)


@dataclass
class Workplace:
    """One composition: a project, its compiled parts, and what the pack step saw and made."""

    root: Path
    staged: Mapping[str, Any] | None = None
    prebuilt: tuple[str, ...] = ()
    wheels: int = 1
    version: str | None = None
    others: tuple[str, ...] = ()
    program: bool = False
    profile: Profile = Profile.RELEASE

    def plan(self, cell: str) -> tuple[Plan, Cell]:
        """The plan of one cell."""
        matrix = load_matrix(self.root / "matrix.toml")
        (chosen,) = select(expand(matrix, self.profile), [cell])
        tree = Source(root=self.root, commit="c" * 40, epoch=1_700_000_000)
        return plan(matrix, [chosen], tree, COMPILER), chosen

    def parts(self, archs: tuple[str, ...]) -> tuple[Path, ...]:
        """The results of two parts: a library and its archive, and a binding."""
        kernels, torch = self.root / "parts/kernels", self.root / "parts/torch"
        for folder in (kernels / "demo", kernels / "lib", torch / "demo"):
            folder.mkdir(parents=True)
        symbols = () if self.profile is Profile.RELEASE else (".debug_info", ".symtab")
        library = make_library(needed=("libc.so.6",), sections=symbols)
        content = with_images(library, archs) if archs else library
        (kernels / "demo/_kernels.so").write_bytes(content)
        (kernels / "lib/libdemo.a").write_bytes(b"!<arch>\n")
        if self.program:
            (kernels / "demo/_ask").write_bytes(make_library(needed=("libc.so.6",)))
            (kernels / "demo/notes").write_bytes(b"no ELF file")
        binding = make_library(needed=("libtorch_cpu.so",), sections=symbols)
        (torch / "demo/_torch.so").write_bytes(binding)
        return kernels, torch

    def compose(self, cell: str = "cpu-torch2.4", archs: tuple[str, ...] = ()) -> Path:
        """Make the wheel of ``cell``; gives the folder that it lies in."""
        made, chosen = self.plan(cell)
        out = self.root / "out"
        out.mkdir()
        parts = Parts(results=self.parts(archs), torch=TORCH, key="k" * 64)

        def steps(places: Mapping[str, str]) -> None:
            self._pack(chosen, places)

        make_wheel(made, chosen, parts, out, self.root / "work", run_steps=steps)
        return out

    def _pack(self, cell: Cell, places: Mapping[str, str]) -> None:
        work = Path(places["work"])
        self.staged = tomllib.loads((work / "stage/pyproject.toml").read_text())
        self.others = tuple(
            str(path.relative_to(work / "stage")) for path in sorted((work / "stage").rglob("*"))
        )
        prebuilt = work / "prebuilt"
        self.prebuilt = tuple(
            str(path.relative_to(prebuilt)) for path in sorted(prebuilt.rglob("*"))
        )
        version = self.staged["project"]["version"]
        assert Path(places["wheel"]).name == f"demo-{version}-cp310-abi3-linux_x86_64.whl"
        for number in range(self.wheels):
            pack(
                Path(places["out"]),
                name="demo" if number == 0 else f"demo{number}",
                version=self.version or version,
                requires_dist=tuple(self.staged["project"]["dependencies"]),
                requires_python=str(cell.requires_python),
                files={
                    f"demo/{file.name}": file.read_bytes() for file in (prebuilt / "demo").iterdir()
                },
                programs=("demo/_ask",),
            )


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    """A project with a static pyproject.toml."""
    root = tmp_path / "project"
    for name, text in {**FILES, "pyproject.toml": PYPROJECT, "matrix.toml": MATRIX}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Workplace(root)


def project(place: Workplace) -> Mapping[str, Any]:
    """The ``[project]`` that the pack step saw."""
    assert place.staged is not None
    table: Mapping[str, Any] = place.staged["project"]
    return table


@pytest.mark.parametrize(
    ("cell", "archs", "local", "bounds"),
    [
        ("cpu-torch2.4", (), "cpu.torch2.4", {">=2.4.1", "<2.5"}),
        ("cpu-torch2.10", (), "cpu.torch2.10", {">=2.10"}),
        ("cu121-torch2.10", ARCHS, "cu121.torch2.10", {">=2.10"}),
    ],
)
def test_version_torch_and_pythons_are_the_cells_and_the_rest_stays(
    place: Workplace, cell: str, archs: tuple[str, ...], local: str, bounds: set[str]
) -> None:
    place.compose(cell, archs)
    table = project(place)
    assert table["version"] == f"0.1.0+{local}"
    torch, numpy = table["dependencies"]
    assert set(torch.removeprefix("torch").split(",")) == bounds
    assert numpy == "numpy>=1.26"
    assert ">=3.10" in table["requires-python"]
    assert place.staged is not None
    assert place.staged["build-system"] == {"requires": ["scikit-build-core>=1.1"]}


def test_the_projects_own_file_is_left_as_it_was(place: Workplace) -> None:
    place.compose()
    assert (place.root / "pyproject.toml").read_text() == PYPROJECT


def test_what_would_ask_this_machine_is_dropped(place: Workplace) -> None:
    (place.root / "pyproject.toml").write_text(DYNAMIC)
    place.compose()
    table = project(place)
    assert "dynamic" not in table
    assert len(table["dependencies"]) == 1
    assert place.staged is not None
    assert place.staged["tool"] == {"scikit-build": {"minimum-version": "1.1"}}


def test_a_pyproject_that_is_no_toml_is_named(place: Workplace) -> None:
    (place.root / "pyproject.toml").write_text("[project\n")
    with pytest.raises(MatrixError, match=r"^pyproject\.toml: not TOML: .* line 1 "):
        place.compose()


@pytest.mark.parametrize("text", ["", '[project]\nname = "demo"\ndynamic = ["version"]\n'])
def test_without_a_static_version_there_is_nothing_to_add_the_local_part_to(
    place: Workplace, text: str
) -> None:
    (place.root / "pyproject.toml").write_text(text)
    with pytest.raises(MatrixError) as caught:
        place.compose()
    assert str(caught.value) == (
        "pyproject.toml: no static project.version; "
        "write the public version there; the local part comes from the cell"
    )


def test_only_the_sources_of_the_matrix_are_staged_with_fixed_modes(place: Workplace) -> None:
    (place.root / "pyproject.toml").chmod(0o600)
    (place.root / "stray.py").touch()
    place.compose()
    assert place.others == ("pyproject.toml",)
    assert (place.root / "work/stage/pyproject.toml").stat().st_mode & 0o777 == 0o644


def test_shared_libraries_and_the_record_are_laid_down_archives_are_not(place: Workplace) -> None:
    place.compose()
    assert place.prebuilt == ("demo", "demo/_build.json", "demo/_kernels.so", "demo/_torch.so")
    assert (place.root / "work/prebuilt/demo/_torch.so").stat().st_mode & 0o777 == 0o755


def test_a_program_is_laid_down_with_its_exec_bit(place: Workplace) -> None:
    place.program = True
    out = place.compose()
    assert "demo/_ask" in place.prebuilt
    assert "demo/notes" not in place.prebuilt
    assert (place.root / "work/prebuilt/demo/_ask").stat().st_mode & 0o777 == 0o755
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.getinfo("demo/_ask").external_attr >> 16 & 0o777 == 0o755
    assert "_ask" in read_json(out / "_build.json")["libraries"]


@pytest.mark.parametrize(
    ("cell", "archs", "driver"),
    [
        ("cpu-torch2.4", (), None),
        (
            "cu121-torch2.4",
            ARCHS,
            {
                "cubin": 12000,
                "ptx": 12010,
                "cubin_release": "525.60.13",
                "ptx_release": "530.30.02",
            },
        ),
    ],
)
def test_the_record_holds_the_driver_floors(
    place: Workplace, cell: str, archs: tuple[str, ...], driver: Mapping[str, Any] | None
) -> None:
    assert read_json(place.compose(cell, archs) / "_build.json")["driver"] == driver


def test_the_record_holds_the_row_of_the_wheel(place: Workplace) -> None:
    """All that a compatibility table says of it and that is known before anything is loaded."""
    out = place.compose("cu121-torch2.4", ARCHS)
    record = read_json(out / "_build.json")
    (wheel,) = out.glob("*.whl")
    found = read_wheel(wheel)
    assert SpecifierSet(record["python"]) == found.requires_python
    assert SpecifierSet(record["torch"]["requirement"]) == found.requires_dist[0].specifier
    (tag,) = found.tags
    assert (record["python_tag"], record["glibc"], record["platform"]) == (
        f"{tag.interpreter}-{tag.abi}",
        "2.28",
        "linux-x86_64",
    )


def test_the_record_says_what_is_really_inside_and_what_it_was_made_of(place: Workplace) -> None:
    out = place.compose("cu121-torch2.4", ARCHS)
    record = read_json(out / "_build.json")
    (wheel,) = out.glob("*.whl")
    assert read_wheel(wheel).build == record
    libraries = {path.name: file_digest(path) for path in (place.root / "parts").rglob("*.so")}
    assert record["libraries"] == libraries
    assert record["archs"] == ["8.0", "8.6", "8.9", "9.0", "9.0+PTX"]
    assert (record["version"], record["profile"]) == ("0.1.0+cu121.torch2.4", "release")
    assert (record["cell"], record["variant"], record["cuda"]) == (
        "cu121-torch2.4",
        "cu121",
        "12.1",
    )
    torch = dict(record["torch"])
    assert set(torch.pop("requirement").split(",")) == {">=2.4.1", "<2.5"}
    assert torch == {
        "pin": "2.4",
        "abi": "classic",
        "headers": "2.4.1+cpu",
        "target": None,
        "cxx11_abi": False,
        "cuda": None,
        "source": "pypi fallback: the index did not answer",
        "sha256": "a" * 64,
    }
    assert record["compilers"]["host"]["version"] == "12.2.0"
    assert record["compilers"]["host"]["cc1plus_sha256"] == "1" * 64
    device = record["compilers"]["device"]
    assert (device["route"], device["cuda"]) == ("pypi-nvrtc", "12.1")
    assert all(len(digest) == 64 for digest in device["wheels"].values())
    assert (record["commit"], record["epoch"]) == ("c" * 40, 1_700_000_000)
    assert record["plan"] == "k" * 64


def test_the_bill_of_materials_lies_in_dist_info_and_names_all_inputs(place: Workplace) -> None:
    out = place.compose("cu121-torch2.4", ARCHS)
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        folder = "demo-0.1.0+cu121.torch2.4.dist-info"
        data = archive.read(f"{folder}/sboms/wheelfab.cdx.json")
        assert f"{folder}/sboms/wheelfab.cdx.json," in archive.read(f"{folder}/RECORD").decode()
    assert data == make_sbom(read_json(out / "_build.json"))
    names = {part["bom-ref"].partition(":")[0] for part in json.loads(data)["components"]}
    assert names == {
        *("bundled", "compiled-against", "device-toolchain", "host-compiler", "build-tool"),
    }


def test_a_cpu_wheel_has_no_archs_and_a_stable_one_its_target(place: Workplace) -> None:
    record = read_json(place.compose("cpu-torch2.10") / "_build.json")
    assert (record["cuda"], record["archs"], record["compilers"]["device"]) == (None, [], None)
    assert (record["torch"]["abi"], record["torch"]["target"]) == ("stable", "2.10")


def test_row_19_a_twins_wheel_says_what_it_is(place: Workplace) -> None:
    place.profile = Profile.DEBUG
    out = place.compose("cu121-torch2.4", ARCHS)
    (wheel,) = map(read_wheel, out.glob("*.whl"))
    assert (str(wheel.version), wheel.local) == (
        "0.1.0+cu121.torch2.4.debug",
        "cu121.torch2.4.debug",
    )
    assert wheel.build is not None
    assert (wheel.build["cell"], wheel.build["profile"]) == ("cu121-torch2.4-debug", "debug")
    assert set(project(place)["dependencies"][0].removeprefix("torch").split(",")) == {
        ">=2.4.1",
        "<2.5",
    }


def test_a_wheel_that_is_not_the_cells_is_refused(place: Workplace) -> None:
    """B20: a CUDA cell whose libraries came out without device code is a failure."""
    with pytest.raises(
        WheelError, match=r"device code for nothing, not 8\.0 8\.6 8\.9 9\.0 9\.0\+PTX"
    ):
        place.compose("cu121-torch2.4", ())


@pytest.mark.parametrize("count", [0, 2])
def test_one_wheel_comes_out_or_it_is_an_error(place: Workplace, count: int) -> None:
    place.wheels = count
    with pytest.raises(BuildError, match=f"^cpu-torch2.4: {count} wheels where one was due$"):
        place.compose()
