"""The plan: what is shared, what changes a key, and commands that can be typed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from wheelfab.errors import MatrixError, ToolchainError
from wheelfab.locked import Locked
from wheelfab.matrix import load_matrix
from wheelfab.model import Profile
from wheelfab.plan import ActionKind, Plan, plan
from wheelfab.source import Source
from wheelfab.steps import fill
from wheelfab.toolchain.host import HostCompiler
from wheelfab.variant import expand

from .lockmaker import make_locked
from .matrixmaker import MATRIX

COMPILER = HostCompiler(
    path=Path("/usr/bin/g++"),
    cc=Path("/usr/bin/gcc"),
    version=Version("12.2.0"),
    target="x86_64-linux-gnu",
    driver_sha256="0" * 64,
    cc1plus_sha256="1" * 64,
)
FILES = {
    "pyproject.toml": "",
    "csrc/a.cu": '#include "common.cuh"\n',
    "csrc/b.cu": "#include <cuda_fp16.h>\n",
    "csrc/common.cuh": '#include "deep/size.h"\n',
    "csrc/deep/size.h": "",
    "csrc/cpu/x.cpp": "",
    "csrc/kernels/table.cpp": "",
    "csrc/torch/classic.cpp": "",
}
SIX = (
    "cpu-torch2.4",
    "cpu-torch2.10",
    "cu118-torch2.4",
    "cu118-torch2.10",
    "cu121-torch2.4",
    "cu121-torch2.10",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with two device files, one of which includes headers."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "matrix.toml").write_text(MATRIX)
    return tmp_path


def plan_of(root: Path, *profiles: Profile, **source: object) -> Plan:
    """The plan of the whole matrix in ``root``: the releases unless told otherwise."""
    matrix = load_matrix(root / "matrix.toml")
    tree = Source(root=root, commit="c" * 40, epoch=1_700_000_000)
    wanted = profiles or (Profile.RELEASE,)
    cells = [cell for profile in wanted for cell in expand(matrix, profile).cells]
    return plan(matrix, cells, replace(tree, **source), COMPILER)  # type: ignore[arg-type]


def keys(made: Plan) -> dict[str, str]:
    """The key of each action."""
    return {action.id: action.key for action in made.actions}


def changed(before: Plan, after: Plan) -> set[str]:
    """The actions whose results would be other ones."""
    return {name for name, key in keys(after).items() if keys(before).get(name) != key}


def kinds(names: set[str]) -> set[str]:
    """Names without the digests in them: ``device:12.1``, ``torch``, ``wheel``."""
    return {":".join(part.split("-")[0] for part in name.split(":")[:2]) for name in names}


def test_m_plus_n_compilations_and_a_wheel_a_cell(root: Path) -> None:
    made = plan_of(root)
    by_kind = {kind: [a for a in made.actions if a.kind is kind] for kind in ActionKind}
    assert len(by_kind[ActionKind.DEVICE]) == 2 * 2
    assert [a.id.split("-")[0] for a in by_kind[ActionKind.PART]] == [
        "cpu",
        "kernels:cpu",
        "torch:torch2.4",
        "torch:torch2.10",
        "kernels:cu118",
        "kernels:cu121",
    ]
    assert tuple(a.id.removeprefix("wheel:") for a in by_kind[ActionKind.WHEEL]) == SIX
    assert made.action("cpu").cells == SIX
    (a118,) = [a for a in made.actions if a.id.startswith("device:11.8") and a.id.endswith(":a")]
    assert a118.cells == ("cu118-torch2.4", "cu118-torch2.10")


def test_needs_come_first(root: Path) -> None:
    made = plan_of(root)
    seen: set[str] = set()
    for action in made.actions:
        assert seen.issuperset(action.needs)
        seen.add(action.id)


def test_the_same_tree_has_the_same_plan(root: Path) -> None:
    assert plan_of(root).digest == plan_of(root).digest


def test_a_device_file_changes_its_own_images_and_what_links_them(root: Path) -> None:
    before = plan_of(root)
    (root / "csrc/b.cu").write_text("// other\n")
    names = changed(before, plan_of(root))
    assert {
        name.split(":")[0] + ":" + name.split(":")[2] for name in names if "device" in name
    } == {"device:b"}
    assert kinds(names) == {
        "device:11.8",
        "device:12.1",
        "kernels:cu118",
        "kernels:cu121",
        "wheel:cu118",
        "wheel:cu121",
    }


def test_a_deep_header_changes_the_files_that_include_it(root: Path) -> None:
    before = plan_of(root)
    (root / "csrc/deep/size.h").write_text("// other\n")
    names = changed(before, plan_of(root))
    assert {name.rpartition(":")[2] for name in names if name.startswith("device:")} == {"a"}


def test_a_commit_changes_wheels_only(root: Path) -> None:
    names = changed(plan_of(root), plan_of(root, commit="d" * 40))
    assert names == {f"wheel:{cell}" for cell in SIX}


def test_another_compiler_changes_every_part_and_no_device_image(root: Path) -> None:
    matrix = load_matrix(root / "matrix.toml")
    tree = Source(root=root, commit="c" * 40, epoch=1_700_000_000)
    other = replace(COMPILER, cc1plus_sha256="2" * 64)
    names = changed(plan_of(root), plan(matrix, expand(matrix).cells, tree, other))
    assert not [name for name in names if name.startswith("device:")]
    assert {a.id for a in plan_of(root).actions if a.kind is ActionKind.PART} <= names


def test_the_archs_of_a_device_compile_are_in_its_environment_only(root: Path) -> None:
    device = next(a for a in plan_of(root).actions if a.kind is ActionKind.DEVICE)
    (step,) = device.steps
    assert step.env == (("TORCH_CUDA_ARCH_LIST", "8.0;8.6;8.9;9.0+PTX"),)
    assert not [arg for arg in step.argv if "8.0" in arg or "sm_" in arg]
    typed = step.shell({"python": "python", "out": "o p"})
    assert typed.startswith("TORCH_CUDA_ARCH_LIST='8.0;8.6;8.9;9.0+PTX' python -m wheelfab.")
    assert "--out 'o p/a.fatbin' csrc/a.cu" in typed


def test_the_classic_binding_is_told_its_abi_and_the_stable_one_its_target(root: Path) -> None:
    steps = {a.pin: a.steps[0].argv for a in plan_of(root).actions if a.id.startswith("torch:")}
    assert "-DWHEELFAB_TORCH_ABI=classic" in steps["2.4"]
    assert "-DWHEELFAB_CXX11_ABI=0" in steps["2.4"]
    assert "-DWHEELFAB_TORCH_TARGET=2.10" in steps["stable >= 2.10"]
    assert "-DWHEELFAB_CXX11_ABI=1" in steps["stable >= 2.10"]


@pytest.fixture
def runtime(root: Path) -> Plan:
    """The plan where cu121 links the CUDA runtime."""
    index = 'torch-index = "https://download.pytorch.org/whl/cu121"'
    row = f'cuda = "12.1"\ncuda-api = "runtime"\n{index}\ntorch = ["2.4"]\n'
    (root / "matrix.toml").write_text(MATRIX.replace('cuda = "12.1"\n', row))
    return plan_of(root)


def test_a_row_that_links_the_runtime_is_handed_it(runtime: Plan) -> None:
    given = {
        action.id: action.cells
        for action in runtime.actions
        if "-DWHEELFAB_CUDA_ROOT={cuda}" in action.steps[0].argv
    }
    (binding,) = (action for action in runtime.actions if action.id in given and action.pin)
    assert given == {"kernels:cu121": ("cu121-torch2.4",), binding.id: ("cu121-torch2.4",)}
    assert all("cuda" in runtime.action(name).identity for name in given)


def test_a_row_that_links_the_runtime_shares_no_binding_with_one_that_does_not(root: Path) -> None:
    index = '"9.0+PTX"]\ntorch-index = "https://own.example/simple"\n'
    text = MATRIX.replace('"9.0+PTX"]\n', index)
    row = 'cuda = "12.1"\ncuda-api = "runtime"\ntorch = ["2.4"]\n'
    found = []
    for matrix in (text, text.replace('cuda = "12.1"\n', row)):
        (root / "matrix.toml").write_text(matrix)
        found.append([a.id for a in plan_of(root).actions if a.id.startswith("torch:torch2.4")])
    (before,), (shared, own) = found
    assert (shared, own != shared) == (before, True)


def test_a_row_that_links_the_runtime_is_repaired_without_a_copy_of_it(runtime: Plan) -> None:

    def excluded(name: str) -> list[str]:
        argv = runtime.action(f"wheel:{name}").steps[-1].argv
        return [argv[at + 1] for at, arg in enumerate(argv) if arg == "--exclude"]

    assert excluded("cu121-torch2.4") == ["libtorch*.so", "libc10*.so", "libcudart.so.*"]
    assert excluded("cu118-torch2.4") == ["libtorch*.so", "libc10*.so"]


def test_row_19_release_and_twin_share_their_device_code_and_nothing_else(root: Path) -> None:
    release, twin = plan_of(root), plan_of(root, Profile.DEBUG)
    device = {action.key for action in release.actions if action.kind is ActionKind.DEVICE}
    assert set(keys(release).values()) & set(keys(twin).values()) == device
    both = plan_of(root, *Profile)
    assert keys(both) == {**keys(release), **keys(twin)}
    (cells,) = {a.cells for a in both.actions if a.id.startswith("device:11.8")}
    assert cells == tuple(
        f"cu118-torch{pin}{mark}" for mark in ("", "-debug") for pin in ("2.4", "2.10")
    )


def test_a_twin_is_compiled_by_the_plans_flags_and_names_no_folder(root: Path) -> None:
    parts = [a for a in plan_of(root, Profile.DEBUG).actions if a.kind is ActionKind.PART]
    assert {a.id.rpartition(":")[2] for a in parts} == {"debug"}
    for part in parts:
        configure = part.steps[0].argv
        assert "-DCMAKE_BUILD_TYPE=Debug" in configure
        maps = ['"-ffile-prefix-map={root}/="', '"-ffile-prefix-map={work}/cmake=build"']
        if part.pin is not None:
            maps.append('"-ffile-prefix-map={torch}=torch"')
        flags = " ".join(["-g", "-O1", "-fno-omit-frame-pointer", *maps])
        assert f"-DCMAKE_C_FLAGS_DEBUG={flags}" in configure
        assert f"-DCMAKE_CXX_FLAGS_DEBUG={flags}" in configure
        assert not [arg for arg in configure if "NDEBUG" in arg or str(root) in arg]


def test_the_twins_flags_change_the_twins_alone(root: Path) -> None:
    before = plan_of(root, *Profile)
    table = '[project.debug]\nflags = ["-g3"]\n\n[project.parts.cpu]'
    text = (root / "matrix.toml").read_text().replace("[project.parts.cpu]", table)
    (root / "matrix.toml").write_text(text)
    names = changed(before, plan_of(root, *Profile))
    assert {name.rpartition("-")[2].rpartition(":")[2] for name in names} == {"debug"}
    assert {f"wheel:{cell}-debug" for cell in SIX} < names


def test_a_pattern_without_files_is_an_error_with_its_key(root: Path) -> None:
    (root / "csrc/torch/classic.cpp").unlink()
    with pytest.raises(
        MatrixError, match=r"project\.parts\.torch.*'csrc/torch/\*' matches no file"
    ):
        plan_of(root)


def test_only_known_places_are_filled() -> None:
    assert fill(("{out}/x", "{other}", "a{out}b{work}"), {"out": "O", "work": "W"}) == (
        "O/x",
        "{other}",
        "aObW",
    )


def test_a_locked_tool_or_torch_is_part_of_the_keys(root: Path) -> None:
    matrix = load_matrix(root / "matrix.toml")
    tree = Source(root=root, commit="c" * 40, epoch=1_700_000_000)
    cells = expand(matrix).cells

    def of(lock: Locked | None) -> Plan:
        return plan(matrix, cells, tree, COMPILER, lock)

    lock = make_locked(COMPILER)
    ninja = tuple(
        item.model_copy(update={"sha256": "0" * 64}) if item.package == "ninja" else item
        for item in lock.requirement
    )
    names = changed(of(lock), of(lock.model_copy(update={"requirement": ninja})))
    assert kinds(names) == {"cpu", "kernels:cpu", "kernels:cu118", "kernels:cu121"} | {
        *("torch:torch2.4", "torch:torch2.10"),
        *(f"wheel:{cell.split('-')[0]}" for cell in SIX),
    }
    older = tuple(item.model_copy(update={"sha256": "0" * 64}) for item in lock.torch[:1])
    torches = lock.model_copy(update={"torch": (*older, lock.torch[1])})
    names = changed(of(lock), of(torches))
    assert {name for name in names if name.startswith("torch:")} == {
        action.id for action in of(lock).actions if action.id.startswith("torch:torch2.4")
    }
    assert of(lock).locked == lock


def test_an_input_that_differs_makes_no_plan(root: Path) -> None:
    matrix = load_matrix(root / "matrix.toml")
    tree = Source(root=root, commit=None, epoch=1)
    bare = make_locked(COMPILER).model_copy(update={"toolchain": ()})
    with pytest.raises(ToolchainError, match=r"^matrix\.lock: toolchain pypi-nvrtc 11\.8: not in"):
        plan(matrix, expand(matrix).cells, tree, COMPILER, bare)
