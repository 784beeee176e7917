"""The entries of a row: a wheel on each torch release, Python and GPU, one axis at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from packaging.tags import compatible_tags, cpython_tags
from packaging.version import Version

from wheelfab import facts
from wheelfab.arch import Arch, Code, cubin_runs_on, parse_entry, ptx_runs_on
from wheelfab.compat.evidence import HostSeen, Spoken
from wheelfab.compat.outcomes import Outcome
from wheelfab.compat.record import Answer, By, GpuEntry, PythonEntry, TorchEntry
from wheelfab.errors import FormatError
from wheelfab.versions import allowed_pythons, ranged
from wheelfab.wheel import Wheel

# Tegra: no x86_64 machine has one, and cubins of desktop GPUs are not promised to run there.
# Source: CUDA Programming Guide, binary compatibility.
_TEGRA = frozenset({"5.3", "6.2", "7.2", "8.7", "11.0"})
_FREE_THREADED = "t"


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """All that was said of one wheel on torch, by loops, hosts and the atlas."""

    outcomes: tuple[Outcome, ...]
    hosts: tuple[HostSeen, ...]
    atlas: tuple[Spoken, ...]

    def of(self, release: Version) -> Said:
        """What was said of that release, whatever its build."""
        name = release.public
        return Said(
            outcomes=tuple(item for item in self.outcomes if item.torch.public == name),
            hosts=tuple(item for item in self.hosts if item.torch.public == name),
            atlas=tuple(item for item in self.atlas if item.torch.public == name),
        )

    @property
    def releases(self) -> frozenset[Version]:
        """The releases that anything was said of."""
        found = [item.torch for item in self.outcomes]
        found += [item.torch for item in self.hosts]
        found += [item.torch for item in self.atlas]
        return frozenset(Version(torch.public) for torch in found)


def torch_entry(wheel: Wheel, release: Version, said: Said) -> TorchEntry:
    """METADATA's refusal first, then loads of exactly these bytes, then the atlas."""
    here = said.of(release)
    answer, by, reason = _torch_answer(wheel, release, here)
    known = facts.torch_release(release)
    loops = [item for item in here.outcomes if item.passed]
    glibcs = {item.glibc for item in loops if item.glibc}
    glibcs |= {item.glibc for item in here.hosts if item.passed and item.glibc}
    pythons = {_series(item.python) for item in loops if item.python}
    return TorchEntry(
        torch=str(release),
        answer=answer,
        by=by,
        reason=reason,
        pythons_seen=tuple(sorted(pythons, key=python_order)),
        glibcs_seen=tuple(sorted(glibcs, key=Version)),
        pythons=(*map(str, known.pythons), *known.free_threaded) if known else (),
        glibc=str(known.glibc) if known else None,
        driver=_torch_driver(known) if known else None,
        builds_complete=known is not None and known.cuda_complete,
    )


def python_entry(wheel: Wheel, python: str) -> PythonEntry:
    """Whether METADATA and a tag of the wheel allow that Python."""
    series = Version(python.removesuffix(_FREE_THREADED))
    need = wheel.requires_python
    if need is not None and not allowed_pythons(need, [series]):
        reason = f"requires Python {ranged(need)}"
        return PythonEntry(python=python, answer=Answer.NO, reason=reason)
    mine = {(tag.interpreter, tag.abi) for tag in wheel.tags}
    fitting = sorted("-".join(pair) for pair in mine & _interpreter_tags(python))
    if fitting:
        return PythonEntry(python=python, answer=Answer.WORKS, reason=f"tag {fitting[0]}")
    kind = "the free-threaded build" if python.endswith(_FREE_THREADED) else "Python"
    said = ", ".join(sorted("-".join(pair) for pair in mine))
    reason = f"no tag of the wheel ({said}) is for {kind} {python}"
    return PythonEntry(python=python, answer=Answer.NO, reason=reason)


def gpu_entries(
    archs: Sequence[str], drivers: tuple[str | None, str | None], seen: frozenset[str], where: str
) -> tuple[GpuEntry, ...]:
    """A wheel with ``archs`` on every GPU of the axis; none for a wheel without device code.

    ``drivers`` are the oldest for its cubins and for its PTX, ``seen`` the images that ran.
    """
    if not archs:
        return ()
    images = [arch for text in archs for arch in parse_entry(text, where, FormatError)]
    entries = [_gpu_entry(images, number, drivers, archs) for number in gpus()]
    users: dict[str | None, int] = {}
    for entry in entries:
        users[_image(entry)] = users.get(_image(entry), 0) + 1
    return tuple(
        _measured(entry) if _image(entry) in seen and users[_image(entry)] == 1 else entry
        for entry in entries
    )


def gpus() -> tuple[str, ...]:
    """The capabilities of the axis: every GPU that the facts name but Tegra."""
    return tuple(number for number in facts.gpus() if number not in _TEGRA)


def pythons() -> tuple[str, ...]:
    """The Pythons of the axis: all that some torch release has a wheel for."""
    found = {
        name
        for release in facts.torch_releases()
        for name in (*map(str, release.pythons), *release.free_threaded)
    }
    return tuple(sorted(found, key=python_order))


def python_order(python: str) -> tuple[Version, bool]:
    """3.9 before 3.10, 3.14 before 3.14t."""
    return Version(python.removesuffix(_FREE_THREADED)), python.endswith(_FREE_THREADED)


def _torch_answer(wheel: Wheel, release: Version, here: Said) -> tuple[Answer, By | None, str]:
    need = wheel.requirement("torch")
    if need is not None and not need.specifier.contains(release, prereleases=True):
        return Answer.NO, By.METADATA, f"requires torch {ranged(need.specifier)}"
    for outcome in here.outcomes:
        if outcome.passed is not None:
            answer = Answer.WORKS if outcome.passed else Answer.NO
            return answer, By.LOOP, outcome.text + _on_hosts(here.hosts, also=True)
    if any(host.passed for host in here.hosts):
        return Answer.WORKS, By.LOOP, _on_hosts(here.hosts, also=False)
    for spoken in here.atlas:
        words = f"torch {spoken.build}: {spoken.reason}"
        if spoken.loads is not None:
            return Answer.WORKS if spoken.loads else Answer.NO, By.ATLAS, words
        return Answer.UNTESTED, None, words
    skipped = here.outcomes[0].text if here.outcomes else "no loop of this wheel was run"
    return Answer.UNTESTED, None, skipped


def _on_hosts(hosts: Sequence[HostSeen], *, also: bool) -> str:
    """``; loaded on 73 of 75 hosts, not as expected on bare``."""
    if not hosts:
        return ""
    bad = [item.host for item in hosts if not item.passed]
    text = f"loaded on {len(hosts) - len(bad)} of {len(hosts)} hosts"
    text += f", not as expected on {', '.join(bad)}" if bad else ""
    return f"; {text}" if also else text


def _torch_driver(release: facts.TorchRelease) -> str | None:
    """The oldest driver that runs some CUDA build of a torch release, by its family's floor."""
    builds = [facts.cuda_release(version) for version in release.cuda]
    floors = [build.family_floor for build in builds if build is not None]
    return str(min(floors)) if floors else None


def _series(python: str) -> str:
    """``3.11`` of ``3.11.7``."""
    return ".".join(python.split(".")[:2])


@lru_cache
def _interpreter_tags(python: str) -> frozenset[tuple[str, str]]:
    """Interpreter and ABI of every tag that pip takes on that Python, whatever the platform."""
    free = python.endswith(_FREE_THREADED)
    version = Version(python.removesuffix(_FREE_THREADED))
    pair = (version.major, version.minor)
    abi = f"cp{version.major}{version.minor}{_FREE_THREADED if free else ''}"
    tags = (*cpython_tags(pair, [abi], ["any"]), *compatible_tags(pair, abi, ["any"]))
    return frozenset((tag.interpreter, tag.abi) for tag in tags)


def _gpu_entry(
    images: Iterable[Arch],
    number: str,
    drivers: tuple[str | None, str | None],
    archs: Sequence[str],
) -> GpuEntry:
    """The nearest cubin, else the newest PTX; in a wheel's list ``9.0`` is a cubin, not both."""
    major, _, minor = number.partition(".")
    capability = int(major), int(minor)
    images = tuple(images)
    fitting = [arch for arch in images if not arch.ptx and cubin_runs_on(arch, capability)]
    code, driver = Code.CUBIN, drivers[0]
    if not fitting:
        fitting = [arch for arch in images if arch.ptx and ptx_runs_on(arch, capability)]
        code, driver = Code.PTX, drivers[1]
    if not fitting:
        return GpuEntry(
            capability=number,
            code=None,
            arch=None,
            driver=None,
            reason=f"no image for compute capability {number}, only {', '.join(archs)}",
            measured=False,
        )
    best = max(fitting, key=lambda arch: (arch.capability, arch.suffix))
    words = "machine code for {}" if code is Code.CUBIN else "PTX for {}, compiled by the driver"
    reason = words.format(best.target) + "; computed, not run on a device"
    return GpuEntry(
        capability=number,
        code=code,
        arch=best.target,
        driver=driver,
        reason=reason,
        measured=False,
    )


def _image(entry: GpuEntry) -> str | None:
    """As reports of devices name it."""
    return f"{entry.arch}+PTX" if entry.code is Code.PTX else entry.arch


def _measured(entry: GpuEntry) -> GpuEntry:
    return GpuEntry(
        capability=entry.capability,
        code=entry.code,
        arch=entry.arch,
        driver=entry.driver,
        reason=entry.reason.replace(
            "computed, not run on a device", "an operation ran on a device"
        ),
        measured=True,
    )
