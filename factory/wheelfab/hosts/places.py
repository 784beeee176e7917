"""Where a host is made: in a container, in a mount namespace, or as plain processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from wheelfab.errors import UsageError
from wheelfab.host import Host, HostImage, HostOption, Reach
from wheelfab.hosts.arrange import Arrangement
from wheelfab.hosts.sites import Site
from wheelfab.records import write_json
from wheelfab.run import Completed, run

if TYPE_CHECKING:
    from wheelfab.containers import Container, Engine

DIAGNOSIS = {  # the image with gdb and strace for a host of each
    HostImage.CPU: "diagnosis",
    HostImage.DRIVER: "driver-diagnosis",
    HostImage.GPU: "diagnosis",
}
USER = 10001  # of the images, and of loads in a namespace
_SMALL = 1280 << 20  # bytes of memory of a small machine
_PROC, _PROC_DRIVER = "/proc/", "/proc/driver/"
_MOUNTS = ("SYS_ADMIN",)  # what a container's root needs to give /proc other files
_UNCONFINED = ("seccomp=unconfined", "apparmor=unconfined")
# Bind-mounts pairs of paths up to a "--", then becomes the command after it.
_BINDING = 'set -e; while [ "$1" != -- ]; do mount --bind "$1" "$2"; shift 2; done; shift; '


class Harness(StrEnum):
    """What a result was got in."""

    CONTAINER = "container"
    NAMESPACE = "namespace"
    PROCESS = "process"


class Place(Protocol):
    """A host that is up."""

    @property
    def harness(self) -> Harness:
        """What it is made of."""

    def run(self, argv: Sequence[str], environment: Mapping[str, str], timeout: float) -> Completed:
        """Run a command there to its end; safe from several threads."""

    def python(self, site: Site) -> str:
        """The interpreter of an environment, by its path there."""


@dataclass(frozen=True, slots=True)
class ProcessPlace:
    """This machine itself, with another environment."""

    harness: Harness = Harness.PROCESS

    def run(self, argv: Sequence[str], environment: Mapping[str, str], timeout: float) -> Completed:
        """Run a command here."""
        return run(argv, env=environment, timeout=timeout)

    def python(self, site: Site) -> str:
        """The environment's own interpreter."""
        return str(site.python)


@dataclass(frozen=True, slots=True)
class NamespacePlace:
    """This machine with other files in ``/proc``, and without a network, for one process tree."""

    binds: tuple[str, ...]
    without_proc: bool
    harness: Harness = Harness.NAMESPACE

    def run(self, argv: Sequence[str], environment: Mapping[str, str], timeout: float) -> Completed:
        """Run a command in namespaces of its own, made anew each time."""
        leave = "umount -l /proc; " if self.without_proc else ""
        shell = ("sh", "-c", f'{_BINDING}{leave}exec "$@"', "sh", *self.binds, "--")
        entered = ("unshare", "--mount", "--net", "--", *shell, *argv)
        return run(entered, env=environment, timeout=timeout)

    def python(self, site: Site) -> str:
        """The environment's own interpreter."""
        return str(site.python)


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """A container; each command is an exec in it, as a user that is not root."""

    container: Container
    user: str
    prefix: tuple[str, ...]
    harness: Harness = Harness.CONTAINER

    def run(self, argv: Sequence[str], environment: Mapping[str, str], timeout: float) -> Completed:
        """Run a command in the container."""
        return self.container.run(
            (*self.prefix, *argv), env=environment, timeout=timeout, user=self.user
        )

    def python(self, site: Site) -> str:
        """The environment's interpreter, which is the image's there."""
        return str(site.root / "bin" / "python")


def possible(host: Host, engine: Engine | None) -> str:
    """Why ``host`` cannot be made here, or ``""``."""
    if engine is not None:
        return ""
    if host.reach is Reach.CONTAINER:
        return "needs a container, and no engine is used"
    if host.reach is Reach.NAMESPACE and os.geteuid() != 0:
        return "needs a container or root, for a mount namespace"
    return ""


@contextmanager
def open_place(
    host: Host,
    things: Arrangement,
    sites: Sequence[Site],
    engine: Engine | None,
    folder: Path,
    *,
    image: str | None = None,
) -> Iterator[Place]:
    """Bring ``host`` up, with the environments ``sites`` in it; it is gone at the end.

    ``image`` is a target to start from instead of the host's own. Raises ``UsageError`` when it
    is not possible here, ``ToolchainError`` when its image cannot be built.
    """
    reason = possible(host, engine)
    if reason:
        raise UsageError(reason, where=f"host {host.name}")
    if engine is not None:
        target = image or str(host.image)
        with _container(host, things, sites, engine, folder, target) as place:
            yield place
    elif host.reach is Reach.NAMESPACE:
        yield NamespacePlace(_binds(things), HostOption.NO_PROC in host.options)
    else:
        yield ProcessPlace()


@contextmanager
def _container(  # noqa: PLR0917 (what open_place got)
    host: Host,
    things: Arrangement,
    sites: Sequence[Site],
    engine: Engine,
    folder: Path,
    target: str,
) -> Iterator[ContainerPlace]:
    from wheelfab.containers import ContainerOptions, Mount

    binds = _binds(things)
    seen = (*things.folders, folder, *(site.root for site in sites))
    mounts = [Mount(source=path, target=str(path)) for path in dict.fromkeys(seen)]
    for site in sites:
        mounts += [Mount(source=path, target=where) for where, path in site.overlays.items()]
    mounts += [
        Mount(source=path, target=where)
        for where, path in things.mounts.items()
        if not where.startswith(_PROC)
    ]
    without_proc = HostOption.NO_PROC in host.options
    mounting = bool(binds) or without_proc
    options = ContainerOptions(
        image=engine.image(target, host.base),
        mounts=tuple(mounts),
        read_only=HostOption.READ_ONLY in host.options,
        tmpfs=_tmpfs(host),
        memory=_SMALL if HostOption.SMALL_MEMORY in host.options else None,
        capabilities=_MOUNTS if mounting else (),
        security=(*_seccomp(host, folder), *(_UNCONFINED if mounting else ())),
        gpus=host.image is HostImage.GPU,
        user="root" if things.setup or mounting else _user(host),
    )
    with engine.start(options) as container:
        for argv in things.setup:
            _must(container.run(argv, user="root"))
        for source, where in zip(binds[::2], binds[1::2], strict=True):
            _must(container.run(("mount", "--bind", source, where), user="root"))
        if without_proc:
            yield ContainerPlace(container, "root", _without_proc())
        else:
            yield ContainerPlace(container, _user(host), ())


def _without_proc() -> tuple[str, ...]:
    """Takes /proc away from one process tree, then root's rights."""
    drop = f"setpriv --reuid {USER} --regid {USER} --clear-groups --bounding-set=-all"
    script = f'umount -l /proc && exec {drop} -- "$@"'
    return ("unshare", "--mount", "--", "sh", "-c", script, "sh")


def _binds(things: Arrangement) -> tuple[str, ...]:
    """Source and target of each file under /proc; of /proc/driver, which has no such folders."""
    pairs = {}
    for target, source in things.mounts.items():
        if target.startswith(_PROC_DRIVER):
            depth = target.removeprefix(_PROC_DRIVER).count("/")
            pairs["/proc/driver"] = source.parents[depth]
        elif target.startswith(_PROC):
            pairs[target] = source
    return tuple(str(path) for target, source in pairs.items() for path in (source, target))


def _user(host: Host) -> str:
    if HostOption.ROOT in host.options:
        return "root"
    return "54321:54321" if HostOption.NO_HOME in host.options else "wheel"


def _tmpfs(host: Host) -> dict[str, str]:
    if HostOption.NOEXEC_TMP in host.options:
        return {"/tmp": "rw,noexec,nosuid,nodev,size=64m"}  # noqa: S108 (the container's)
    if HostOption.READ_ONLY in host.options:
        return {"/tmp": "rw,size=64m"}  # noqa: S108
    return {}


_REFUSED = (
    *("ptrace", "process_vm_readv", "perf_event_open", "userfaultfd", "memfd_create"),
    *("pidfd_open", "pidfd_send_signal", "io_uring_setup", "set_mempolicy", "mbind", "keyctl"),
    *("sched_setaffinity", "sched_setscheduler", "unshare", "setns", "mount", "bpf", "rseq"),
)


def _seccomp(host: Host, folder: Path) -> tuple[str, ...]:
    """A profile that refuses what a hardened host refuses; vfork and exec stay."""
    if HostOption.SECCOMP not in host.options:
        return ()
    path = folder / "seccomp.json"
    refuse = {"names": list(_REFUSED), "action": "SCMP_ACT_ERRNO", "errnoRet": 1}
    write_json(path, {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [refuse]})
    return (f"seccomp={path.read_text(encoding='utf-8')}",)


def _must(done: Completed) -> None:
    if not done.ok:
        raise UsageError(
            f"setting the host up failed ({done.ending}): {done.stderr.strip()[-400:]}",
            next_step="see docs/hosts.md",
        )
