"""Facts: complete, consistent, each with a source, and equal to what is known from elsewhere."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

import wheelfab.facts
from wheelfab import facts
from wheelfab.arch import parse_arch_list
from wheelfab.facts import AbiKind, RowKind
from wheelfab.versions import series

FILES = ("cuda", "torch", "gpus", "rules")


def read(name: str) -> dict[str, Any]:
    path = Path(wheelfab.facts.__file__).parent / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FILES)
def test_facts_are_dated(name: str) -> None:
    assert re.fullmatch(r"20\d\d-(0\d|1[0-2])", facts.as_of(name))


def test_every_entry_names_its_source() -> None:
    for version, entry in read("cuda")["releases"].items():
        assert entry["archs-source"], version
        assert entry["gcc-source"], version
        assert ("driver" in entry) == ("driver-source" in entry), version
    for version, entry in read("torch")["releases"].items():
        sources = ("cuda", "python", "cxx11-abi", "glibc", "cxx")
        assert all(entry[f"{kind}-source"] for kind in sources), version
    for name in FILES:
        for table in read(name).values():
            if isinstance(table, dict) and "source" in table:
                assert table["source"].strip()
    assert all(rule.source.strip() for rule in facts.rules().values())


@pytest.mark.parametrize(
    ("cuda", "archs", "gcc", "family", "toolkit"),
    [
        (
            "11.8",
            "3.5 3.7 5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0",
            (6, 11),
            "450.80.02",
            "520.61.05",
        ),
        (
            "12.1",
            "5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 9.0a",
            (6, 12),
            "525.60.13",
            "530.30.02",
        ),
        (
            "13.0",
            (
                "7.5 8.0 8.6 8.7 8.8 8.9 9.0 9.0a 10.0 10.0a 10.0f 10.3 10.3a 10.3f 11.0 11.0a "
                "11.0f 12.0 12.0a 12.0f 12.1 12.1a 12.1f"
            ),
            (6, 15),
            "580.65.06",
            "580.65.06",
        ),
    ],
)
def test_cuda_releases(
    cuda: str, archs: str, gcc: tuple[int, int], family: str, toolkit: str
) -> None:
    release = facts.cuda_release(Version(cuda))
    assert release is not None
    assert release.archs == tuple(archs.split())
    assert (release.gcc_min, release.gcc_max) == gcc
    assert (str(release.family_floor), str(release.toolkit_floor)) == (family, toolkit)


def test_what_is_not_known_of_a_cuda_release_is_none() -> None:
    release = facts.cuda_release(Version("13.5"))
    assert release is not None
    assert release.toolkit_floor is None
    assert facts.cuda_release(Version("12.10")) is None


def test_cuda_releases_grow_within_a_major_and_floors_rise() -> None:
    releases = facts.cuda_releases()
    for older, newer in pairwise(releases):
        assert older.version < newer.version
        assert older.gcc_max <= newer.gcc_max
        assert older.family_floor <= newer.family_floor
        if older.version.major == newer.version.major:
            assert set(older.archs) <= set(newer.archs)
        if older.toolkit_floor and newer.toolkit_floor:
            assert older.family_floor <= older.toolkit_floor < newer.toolkit_floor


def test_the_first_cuda_release_of_an_arch() -> None:
    first = {arch: str(facts.cuda_with(arch)[0].version) for arch in facts.known_archs()}
    assert first["9.0a"] == "12.0"
    assert first["12.0"] == "12.8"
    assert first["10.0f"] == "12.9"
    assert first["8.8"] == "13.0"


@pytest.mark.parametrize(
    ("torch", "cuda", "pythons", "abi", "manylinux"),
    [
        ("2.4.1", "11.8 12.1 12.4", ("3.8", "3.12"), False, "manylinux_2_5"),
        ("2.10.0", "12.6 12.8 13.0", ("3.10", "3.14"), True, "manylinux_2_28"),
        ("2.13.0", "12.6 13.0 13.2", ("3.10", "3.14"), True, "manylinux_2_28"),
    ],
)
def test_torch_releases(
    torch: str, cuda: str, pythons: tuple[str, str], abi: bool, manylinux: str
) -> None:
    release = facts.torch_release(Version(torch + "+cpu"))
    assert release is not None
    assert " ".join(map(str, release.cuda)) == cuda
    assert (str(release.pythons[0]), str(release.pythons[-1])) == pythons
    assert (release.cxx11_abi, release.manylinux) == (abi, manylinux)


def test_the_abi_of_torch_2_6_depends_on_the_build() -> None:
    release = facts.torch_release(Version("2.6.0"))
    assert release is not None
    assert release.cxx11_abi_for(Version("12.6")) is True
    assert release.cxx11_abi_for(Version("12.4")) is False
    assert release.cxx11_abi_for(None) is False


def test_torch_releases_are_consistent() -> None:
    releases = facts.torch_releases()
    for release in releases:
        assert release.pypi_cuda in release.cuda
        assert list(release.pythons) == sorted(release.pythons)
        assert release.glibc in facts.glibc_levels()
        assert release.series == series(release.version)
        for cuda in release.cuda:
            assert facts.cuda_release(cuda) is not None
    assert [str(entry.version) for entry in facts.torch_series(Version("2.4"))] == [
        "2.4.0",
        "2.4.1",
    ]
    assert facts.torch_release(Version("2.4.7")) is None


def test_arch_names_stand_for_known_archs() -> None:
    for name in facts.arch_names():
        assert parse_arch_list(name)


def test_families_hold_their_own_target_and_only_known_capabilities() -> None:
    plain = {arch for arch in facts.known_archs() if arch[-1] not in "af"}
    families = facts.arch_families()
    for target, runs in families.items():
        assert runs[0] == target
        assert set(runs) <= plain
    assert {arch[:-1] for arch in facts.known_archs() if arch.endswith("f")} == set(families)


def test_gpus_are_known_capabilities() -> None:
    assert set(facts.gpus()) <= set(facts.known_archs())
    assert facts.gpus()["9.0"].architecture == "Hopper"
    assert all(gpu.examples for gpu in facts.gpus().values())


def test_renamed_archs_are_known_under_both_names() -> None:
    for old, new in facts.renamed_archs().items():
        assert {old, new} <= set(facts.known_archs())


def test_indexes_serve_known_cuda_releases() -> None:
    builds = {build for build in facts.index_builds().values() if build is not None}
    offered = {cuda for release in facts.torch_releases() for cuda in release.cuda}
    assert builds == offered
    assert facts.index_builds()["https://download.pytorch.org/whl/cpu"] is None


def test_rules_hold_for_some_kind_of_row_and_pin() -> None:
    for rule in facts.rules().values():
        assert rule.rows <= set(RowKind)
        assert rule.pins <= set(AbiKind)
        assert rule.rows
        assert rule.pins
