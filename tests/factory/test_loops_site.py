"""What is installed beside torch, and trees made of hard links."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.metadata import Metadata

from wheelfab.errors import ToolchainError
from wheelfab.loops.site import is_nvidia, link_tree, requirements_of, torch_metadata

MARKERS = {
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "python_version": "3.11",
}


def metadata(version: str, *needs: str) -> Metadata:
    """METADATA of a torch with these requirements."""
    lines = ["Metadata-Version: 2.1", "Name: torch", f"Version: {version}"]
    lines += [f"Requires-Dist: {need}" for need in needs]
    return Metadata.from_email("\n".join(lines) + "\n", validate=False)


TORCH = metadata(
    "2.15.0",
    "sympy>=1.13.3",
    "setuptools; python_version >= '3.12'",
    'cuda-toolkit[cublas,cudart]==13.2.2; platform_system == "Linux"',
    'nvidia-cudnn-cu13==9.26; platform_system == "Linux"',
    "triton~=3.9.0",
    "optree>=0.13.0; extra == 'optree'",
)


def test_without_nvidias_wheels() -> None:
    assert requirements_of(TORCH, MARKERS, full=False) == ("sympy>=1.13.3", "numpy")


def test_with_nvidias_wheels() -> None:
    assert requirements_of(TORCH, MARKERS, full=True) == (
        "cuda-toolkit[cublas,cudart]==13.2.2",
        "nvidia-cudnn-cu13==9.26",
        "sympy>=1.13.3",
        "triton~=3.9.0",
        "numpy",
    )


def test_markers_are_those_of_the_loops_python() -> None:
    found = requirements_of(TORCH, {**MARKERS, "python_version": "3.12"}, full=False)
    assert "setuptools" in found


def test_torch_before_2_3_was_built_for_numpy_1() -> None:
    assert requirements_of(metadata("2.2.2"), MARKERS, full=False) == ("numpy<2",)
    assert requirements_of(metadata("2.4.1+cpu"), MARKERS, full=False) == ("numpy",)


@pytest.mark.parametrize(
    ("need", "answer"),
    [("nvidia-nccl-cu12==2.27.5", True), ("cuda-bindings<14", True), ("networkx", False)],
)
def test_nvidias_distributions_are_known_by_name(need: str, answer: bool) -> None:
    assert is_nvidia(need) is answer


def test_a_tree_holds_exactly_one_torch(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="0 torch distributions"):
        torch_metadata(tmp_path)


def test_trees_are_linked_without_copying_and_earlier_files_stay(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "torch" / "lib").mkdir(parents=True)
    (source / "torch" / "a.py").write_text("new")
    (source / "torch" / "lib" / "b.so").write_text("library")
    (source / "torch" / "lib" / "link.so").symlink_to("b.so")
    (target / "torch").mkdir(parents=True)
    (target / "torch" / "a.py").write_text("old")
    link_tree(source, target)
    library = target / "torch" / "lib" / "b.so"
    assert library.stat().st_ino == (source / "torch" / "lib" / "b.so").stat().st_ino
    assert (target / "torch" / "lib" / "link.so").readlink() == Path("b.so")
    assert (target / "torch" / "a.py").read_text() == "old"


def test_across_file_systems_files_are_copied_with_their_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", refuse)
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.py").write_text("x")
    link_tree(source, tmp_path / "target")
    copy = tmp_path / "target" / "a.py"
    assert copy.read_text() == "x"
    assert copy.stat().st_mtime_ns == (source / "a.py").stat().st_mtime_ns
