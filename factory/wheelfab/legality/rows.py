"""Rules for the rows of the matrix, each by itself and with each of its torch pins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from packaging.version import Version

from wheelfab import facts
from wheelfab.arch import Arch, alternative
from wheelfab.facts import CudaRelease, TorchRelease
from wheelfab.legality.draft import Flaw, Row
from wheelfab.model import CudaApi, Pin
from wheelfab.suggest import did_you_mean, joined
from wheelfab.versions import allowed_pythons, ranged

_NAME = re.compile(r"[a-z][a-z0-9]{0,39}", re.ASCII)
_TAG = re.compile(r"cp3(\d{1,2})-", re.ASCII)
_CUDA_KEYS = ("arch", "cuda-api", "toolchain")
_PYTHONS = tuple(Version(f"3.{minor}") for minor in range(6, 31))


def variant_name(row: Row) -> Iterator[Flaw]:
    """Rule ``variant-name``."""
    if not _NAME.fullmatch(row.name):
        better = re.sub(r"[^a-z0-9]", "", row.name.casefold())[:40]
        yield Flaw(
            where=row.place,
            what=f"the name {row.name[:60]!r} is not a letter and then letters or digits, in lower "
            "case",
            next_step=f"use {better}" if _NAME.fullmatch(better) else "use a name such as cu121",
        )


def platform(row: Row) -> Iterator[Flaw]:
    """Rule ``platform``."""
    wanted, known = row.variant.platform, facts.platforms()
    built = joined(name for name, here in known.items() if here)
    if wanted not in known:
        yield Flaw(
            where=row.origin("platform"),
            what=f"unknown platform {wanted[:60]!r}",
            next_step=did_you_mean(wanted, known),
        )
    elif not known[wanted]:
        yield Flaw(
            where=row.origin("platform"),
            what=f"wheels for {wanted} are not built here",
            next_step=f"use {built}",
        )


def torch_listed(row: Row) -> Iterator[Flaw]:
    """Rule ``torch-listed``."""
    if not row.variant.torch and "torch" not in row.doubtful:
        yield Flaw(
            where=row.at("torch"),
            what="is missing",
            next_step='name the torch pins of the row, such as ["2.4"]',
        )


def cell_once(row: Row) -> Iterator[Flaw]:
    """Rule ``cell-once``, for pins that a row names twice."""
    seen: set[str] = set()
    for at, pin in row.pins:
        if pin.key in seen:
            yield Flaw(
                where=row.origin("torch", at),
                what=f"{pin.key!r} is there twice",
                next_step="take one of them out",
            )
        seen.add(pin.key)


def cpu_row(row: Row) -> Iterator[Flaw]:
    """Rule ``cpu-row``."""
    for key in _CUDA_KEYS:
        if key in row.own:
            yield Flaw(
                where=row.at(key),
                what=f"a row without cuda has no {key}",
                next_step="take it out, or add cuda",
            )


def cuda_known(row: Row) -> Iterator[Flaw]:
    """Rule ``cuda-known``."""
    if row.variant.cuda and facts.cuda_release(row.variant.cuda) is None:
        wanted = str(row.variant.cuda)
        known = [str(release.version) for release in facts.cuda_releases()]
        yield Flaw(
            where=row.at("cuda"),
            what=f"unknown toolkit {wanted!r}",
            next_step=did_you_mean(wanted, known),
            source=f"CUDA releases known in {facts.as_of('cuda')}",
        )


def arch_listed(row: Row) -> Iterator[Flaw]:
    """Rule ``arch-listed``."""
    if not row.archs and "arch" not in row.doubtful:
        yield Flaw(
            where=row.at("arch"),
            what="is empty" if {"arch"} & (row.own | row.inherited) else "is missing",
            next_step='list the archs to compile for, such as ["8.0", "9.0+PTX"]',
        )


def cuda_knows_arch(row: Row) -> Iterator[Flaw]:
    """Rule ``cuda-knows-arch``."""
    release = _release(row)
    for where, arch in row.archs if release else ():
        if release and arch.target not in release.archs:
            yield Flaw(
                where=where,
                what=f"CUDA {release.version} does not know {arch.target}{_when(arch, release)}",
                next_step=_instead(arch, release),
                source=release.archs_source,
            )


def toolchain_gives_cuda(row: Row) -> Iterator[Flaw]:
    """Rule ``toolchain-gives-cuda``."""
    cuda, wanted = row.variant.cuda, row.variant.toolchain
    if cuda is None or _release(row) is None or "toolchain" in row.doubtful:
        return
    gives = facts.toolchain_cuda()
    if cuda in gives[wanted]:
        return
    others = [name for name, range_ in gives.items() if cuda in range_]
    yield Flaw(
        where=row.at("toolchain"),
        what=f"{wanted} does not give CUDA {cuda}",
        next_step=f"use {others[0]}" if others else "use another CUDA release",
        source=facts.toolchain_source(wanted),
    )


def torch_built_for_cuda(row: Row, at: int, pin: Pin) -> Iterator[Flaw]:
    """Rule ``torch-built-for-cuda``."""
    cuda = row.variant.cuda
    if cuda is None or _release(row) is None or "cuda-api" in row.doubtful:
        return
    releases = _releases(pin)
    lacking = [release for release in releases if cuda not in release.cuda]
    if not lacking:
        return
    first = lacking[0]
    builds = joined(map(str, first.cuda)) + ("" if first.cuda_complete else " known")
    shared = [
        version
        for version in first.cuda
        if all(version in release.cuda for release in releases)
        and version in facts.toolchain_cuda()[row.variant.toolchain]
    ]
    close = f'cuda = "{min(shared, key=lambda v: _distance(v, cuda))}" or ' if shared else ""
    yield Flaw(
        where=row.at("torch", at),
        what=f"torch {first.version} was not built for CUDA {cuda} (its builds: {builds})",
        next_step=f'use {close}cuda-api = "{CudaApi.DRIVER}", or exclude the cell',
        source=first.cuda_source,
    )


def index_serves_cuda(row: Row) -> Iterator[Flaw]:
    """Rule ``index-serves-cuda``."""
    cuda, builds = row.variant.cuda, facts.index_builds()
    index = row.variant.torch_index.rstrip("/")
    if _release(row) is None or index not in builds or builds[index] == cuda:
        return
    if {"torch-index", "cuda-api"} & row.doubtful:
        return
    serves = f"CUDA {builds[index]}" if builds[index] else "the CPU"
    better = [url for url, version in builds.items() if version == cuda]
    yield Flaw(
        where=row.at("torch-index"),
        what=f"that index serves torch for {serves}, and the row links CUDA {cuda}",
        next_step=f"use {better[0]}" if better else "use another CUDA release",
    )


def python_tag(row: Row) -> Iterator[Flaw]:
    """Rule ``python``, for the tag of the wheels."""
    found = _TAG.match(row.project.python_tag)
    if found is None:
        return
    oldest = Version(f"3.{found[1]}")
    allowed = allowed_pythons(row.variant.python, _PYTHONS)
    if allowed and allowed[0] < oldest:
        yield Flaw(
            where=row.origin("python"),
            what=f"{ranged(row.variant.python)} allows Python {allowed[0]}, and wheels tagged "
            f"{row.project.python_tag} begin with {oldest}",
            next_step=f"use >={oldest}",
            source="PEP 425, compatibility tags",
        )


def python_torch(row: Row, _at: int, pin: Pin) -> Iterator[Flaw]:
    """Rule ``python``, for the torch releases of a pin."""
    for release in _loaded(pin):
        if allowed_pythons(row.variant.python, release.pythons):
            continue
        first, last = release.pythons[0], release.pythons[-1]
        yield Flaw(
            where=row.origin("python"),
            what=f"{ranged(row.variant.python)} has none of the Pythons of torch {release.version} "
            f"({first} to {last})",
            next_step=f"use a range that has {last}, or exclude the cell",
            source=f"torch {release.version}, {release.python_source}",
        )


def glibc_level(row: Row) -> Iterator[Flaw]:
    """Rule ``glibc``, for the levels that exist."""
    wanted, levels = row.variant.glibc, facts.glibc_levels()
    if wanted not in levels:
        above = [level for level in levels if level > wanted]
        yield Flaw(
            where=row.origin("glibc"),
            what=f"{wanted} is no manylinux level",
            next_step=f"use {above[0] if above else levels[-1]}",
            source=facts.glibc_source(),
        )


def glibc_torch(row: Row, _at: int, pin: Pin) -> Iterator[Flaw]:
    """Rule ``glibc``, for the torch releases of a pin."""
    for release in _loaded(pin):
        if row.variant.glibc < release.glibc:
            yield Flaw(
                where=row.origin("glibc"),
                what=f"{row.variant.glibc} is below {release.glibc}, which the wheels of torch "
                f"{release.version} ask for ({release.manylinux})",
                next_step=f"use {release.glibc}",
                source=release.glibc_source,
            )
            return


def _release(row: Row) -> CudaRelease | None:
    return facts.cuda_release(row.variant.cuda) if row.variant.cuda else None


def _releases(pin: Pin) -> tuple[TorchRelease, ...]:
    """The known releases that a pin is built against or loaded with, oldest first."""
    return _known({pin.headers, *pin.run_on})


def _loaded(pin: Pin) -> tuple[TorchRelease, ...]:
    """The known releases that a pin is loaded with, and the lowest that it allows, oldest first."""
    return _known({pin.lowest, *pin.run_on})


def _known(versions: Iterable[Version]) -> tuple[TorchRelease, ...]:
    found = (facts.torch_release(version) for version in sorted(versions))
    return tuple(release for release in found if release is not None)


def _distance(one: Version, other: Version) -> tuple[int, int]:
    return abs(one.major - other.major), abs(one.minor - other.minor)


def _when(arch: Arch, release: CudaRelease) -> str:
    """Where another CUDA release knows ``arch``: `` (first in 12.0)`` or `` (last in 12.9)``."""
    versions = [other.version for other in facts.cuda_with(arch.target)]
    if not versions:
        return ""
    if versions[0] > release.version:
        return f" (first in {versions[0]})"
    return f" (last in {versions[-1]})"


def _instead(arch: Arch, release: CudaRelease) -> str:
    """The nearest legal choice for an arch that ``release`` does not know."""
    renamed = facts.renamed_archs().get(f"{arch.major}.{arch.minor}")
    if renamed is not None and f"{renamed}{arch.suffix}" in release.archs:
        return f"use {renamed}{arch.suffix}{'+PTX' if arch.ptx else ''}, its name since then"
    other = alternative(arch, release.archs)
    if other is not None:
        return f"use {other}"
    last = facts.cuda_with(arch.target)[-1].version
    return f"take it out, or use CUDA {last}"
