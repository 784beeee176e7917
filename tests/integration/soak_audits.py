"""The audit's facts against other tools, on wheels from PyPI: readelf, auditwheel, cuobjdump 12.4.

Fetches 2 GB by version and hash, once; ``WHEELFAB_AUDITS`` names the wheels to look at, all of them
where it is not set.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from wheelfab.audit.facts import WheelFacts, read_facts
from wheelfab.audit.library import LibraryFacts
from wheelfab.audit.manylinux import kept
from wheelfab.fatbin import RELOCATABLE_SECTION, ImageKind
from wheelfab.store import Store, default_root
from wheelfab.toolchain import pip

WHEELS = {
    "bitsandbytes==0.43.3": "cc99507c352be0715098b2c7577b690dd158972dc4ea10c7495bac104c7c79f0",
    "bitsandbytes==0.50.2": "55348a9a4a21bfd99cf8c7b32fe67b4030ae5c2a05738e03c1747f65fa6ec283",
    "flashinfer-cubin==0.6.13": "41e4848c2d09d220e8394489b2fb6cfec6b6ad09f897b5ab8b39fc23055f6c24",
    "sglang-kernel==0.4.10": "043cbe4a10e7887ea1b25599b729ff1ce115a0d5217b2c177aff9f9ae5327724",
    "torch==2.4.1": "0b5f88afdfa05a335d80351e3cea57d38e578c8689f751d35e0ff36bce872113",
    "torchao==0.18.0": "6540b148e40ba81cbd4de86392225a076a1591146e9cebb099b3b234ba9feebe",
    "xformers==0.0.27.post2": "373a1c5d65dab89ea058d17a37c07e5da5ff3b9bebf61425e26a0a5293b0d4a9",
    "xformers==0.0.35": "ccc73c7db9890224ab05f5fb60e2034f9e6c8672a10be0cf00e95cbbae3eda7c",
}
CUOBJDUMP = (  # of CUDA 12.4
    "triton==3.0.0",
    "5ce8520437c602fb633f1324cc3871c47bee3b67acf9756c1a66309b60e3216c",
    "triton/backends/nvidia/bin/cuobjdump",
)
BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "audit.py"
NAMES = os.environ.get("WHEELFAB_AUDITS", "").split() or [*WHEELS]
CUBINS = 200  # of flashinfer-cubin every how-manieth
PLATFORMS = ("manylinux_2_24_x86_64", "manylinux1_x86_64")
NEEDED = re.compile(r"\(NEEDED\)\s+Shared library: \[(.*)\]")
IMAGE = re.compile(r"\.sm_(\d+)[a-z]?\.(cubin|ptx)$", re.MULTILINE)
USAGE = re.compile(r"^ Function (\S+):\n  REG:(\d+) STACK:(\d+) .* LOCAL:(\d+)", re.MULTILINE)


def fetch(requirement: str, sha256: str) -> Path:
    """The wheel in the store, fetched now unless it is there."""

    def make(content: Path) -> None:
        line = content.parent / "requirement.txt"
        line.write_text(f"{requirement} --hash=sha256:{sha256}\n")
        platforms = (argument for name in PLATFORMS for argument in ("--platform", name))
        arguments = (*pip.target("3.11"), *platforms, "--require-hashes", "-r", str(line))
        done = pip.download(arguments, into=content, env=pip.user_environment(content.parent))
        line.unlink()
        assert done.ok, pip.why(done)

    (wheel,) = Store(default_root()).entry("wheel", sha256[:16], make).glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def cuobjdump(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The cuobjdump of CUDA 12.4, out of the triton that torch 2.4.1 came with."""
    requirement, sha256, member = CUOBJDUMP
    with zipfile.ZipFile(fetch(requirement, sha256)) as archive:
        program = Path(archive.extract(member, tmp_path_factory.mktemp("triton")))
    program.chmod(0o755)
    assert "release 12.4" in said(str(program), "--version")
    return str(program)


def said(*argv: str) -> str:
    """What a program prints; it must end well."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, (argv, done.stdout[-500:], done.stderr[-500:])
    return done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_the_facts_are_those_of_other_tools(name: str, tmp_path: Path, cuobjdump: str) -> None:
    wheel = fetch(name, WHEELS[name])
    facts = read_facts(wheel)
    assert facts.sound
    assert facts.sha256 == WHEELS[name]
    libraries = [one for one in facts.libraries if one.host is not None]
    looked = {"libraries": 0, "images": 0, "kernels": 0}
    with zipfile.ZipFile(wheel) as archive:
        for library in libraries:
            path = Path(archive.extract(library.name, tmp_path))
            compare_needed(library, path)
            looked["images"] += compare_images(library, path, cuobjdump)
            looked["libraries"] += 1
            path.unlink()
        cubins = [one for one in facts.libraries if one.elf is not None and one.host is None]
        for cubin in cubins[::CUBINS]:
            path = Path(archive.extract(cubin.name, tmp_path))
            looked["kernels"] += compare_kernels(cubin, path, cuobjdump)
    if libraries:
        compare_platform(facts, libraries)
    print(name, looked)
    assert looked["libraries"] + looked["kernels"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_an_audit_keeps_its_budget(name: str) -> None:
    said(sys.executable, str(BENCHMARK), "--check", str(fetch(name, WHEELS[name])))


def compare_needed(library: LibraryFacts, path: Path) -> None:
    """NEEDED in its order, by readelf."""
    assert library.host is not None
    assert shutil.which("readelf")
    found = NEEDED.findall(said("readelf", "-dW", str(path)))
    assert list(library.host.needed) == found, library.name


def compare_images(library: LibraryFacts, path: Path, cuobjdump: str) -> int:
    """How many images of each arch and kind a driver would see, by cuobjdump; gives their number.

    It lists the images of 9.0a as those of sm_90.
    """
    listed = Counter[tuple[str, str]]()
    for option in ("-lelf", "-lptx"):
        done = subprocess.run(
            (cuobjdump, option, str(path)), capture_output=True, text=True, check=False
        )
        listed.update((arch, kind) for arch, kind in IMAGE.findall(done.stdout))
    ours = Counter(
        ("".join(character for character in one.entry.arch if character.isdigit()), str(kind))
        for one in library.device.images
        if (kind := one.entry.kind) in (ImageKind.CUBIN, ImageKind.PTX)
        and one.entry.section != RELOCATABLE_SECTION
    )
    assert ours == listed, library.name
    return ours.total()


def compare_kernels(cubin: LibraryFacts, path: Path, cuobjdump: str) -> int:
    """Registers, stack and local bytes of each kernel of a cubin file; gives their number.

    cuobjdump lists functions that kernels call among them.
    """
    listed = {
        name: (int(registers), int(stack), int(local))
        for name, registers, stack, local in USAGE.findall(said(cuobjdump, "-res-usage", str(path)))
    }
    (image,) = cubin.device.images
    for name, kernel in image.kernels.items():
        assert kernel is not None
        assert (kernel.registers, kernel.stack, kernel.local) == listed[name], (cubin.name, name)
    return len(image.kernels)


def compare_platform(facts: WheelFacts, libraries: list[LibraryFacts]) -> None:
    """The manylinux policy that the symbol versions keep to, by auditwheel."""
    shown = json.loads(said(sys.executable, "-m", "auditwheel", "show", "--json", str(facts.path)))
    level = kept((one.host for one in libraries if one.host is not None), "x86_64")
    assert level is not None
    assert level.name == shown["sym_tag"]
