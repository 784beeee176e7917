"""Makes the hosts of ``matrix.toml``: a table with cases becomes a host a case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wheelfab.host import (
    HERE,
    DriverPlace,
    Expectation,
    Host,
    HostDriver,
    HostImage,
    HostOption,
    TorchChoice,
)
from wheelfab.legality.draft import Flaw
from wheelfab.matrix_file import HostKeys, HostTable, MatrixFile
from wheelfab.matrix_reader import key_path
from wheelfab.suggest import did_you_mean

_ADDED = ("environment", "files", "programs")  # a case adds to these of its table
_NAMES_TAKEN = (HERE, "all")


def resolve_hosts(file: MatrixFile) -> tuple[tuple[Host, ...], tuple[Flaw, ...]]:
    """The hosts in the order of the file, and what is wrong with them."""
    hosts: list[Host] = []
    flaws: list[Flaw] = []
    for name, table in file.hosts.items():
        if name in _NAMES_TAKEN:
            what, where = f"{name!r} has a meaning of its own", key_path(("hosts", name))
            flaws.append(Flaw(where=where, what=what, next_step="choose another name"))
        for case, keys in (table.cases or {"": HostKeys()}).items():
            host = _host(name, table, case, keys)
            place = key_path(("hosts", name, *(("cases", case) if case else ())))
            flaws += _flaws(host, file, place)
            hosts.append(host)
    return tuple(hosts), tuple(flaws)


def _host(group: str, table: HostTable, case: str, keys: HostKeys) -> Host:
    values = _merged(table, keys)
    status = values["status"] or ""
    kind = values["error_for"]
    return Host(
        name=f"{group}-{case}" if case else group,
        group=group,
        help=values["help"] or "",
        expect=Expectation(
            status=status,
            without_code=values["status_without_code"] or status,
            without_ptx=values["status_without_ptx"] or status,
            says=values["says"],
            images=values["images"],
            error=values["error"],
            error_for=str(kind) if kind else None,
        ),
        **{name: values[name] for name in _PLAIN},
    )


_PLAIN = (
    *("base", "image", "driver", "driver_place", "driver_release", "nvml", "pollution"),
    *("environment", "environment_after", "files", "programs", "options", "python", "way"),
    *("torch", "cpu", "emulated", "variants", "count", "at_once"),
)


def _merged(table: HostTable, keys: HostKeys) -> Mapping[str, Any]:
    """What a case says, else what its table says, else the default."""
    values: dict[str, Any] = {}
    for name in HostKeys.model_fields:
        own = getattr(keys, name)
        if name in _ADDED:
            values[name] = {**getattr(table, name), **own}
        else:
            values[name] = own if name in keys.model_fields_set else getattr(table, name)
    return values


def _flaws(host: Host, file: MatrixFile, place: str) -> Iterator[Flaw]:
    """Keys that make no sense together, or prove nothing."""
    if not host.help:
        yield Flaw(where=f"{place}.help", what="is missing", next_step="say what is wrong with it")
    if host.expect.status and file.project.state is None:
        next_step = "add project.state, the code that asks the extension for its state"
        yield Flaw(where=f"{place}.status", what="nothing gives a status", next_step=next_step)
    if not host.expect.status and file.project.state is not None and not host.expect.error:
        next_step = "add status, what project.state must answer there"
        yield Flaw(where=place, what="has no expected answer", next_step=next_step)
    if host.driver is HostDriver.REAL and host.image is not HostImage.DRIVER:
        next_step = 'add image = "driver-host"'
        yield Flaw(where=f"{place}.driver", what="the image has no driver", next_step=next_step)
    if host.driver is HostDriver.NONE and host.driver_place is not DriverPlace.PATH:
        next_step = 'add driver = "fake"'
        yield Flaw(where=f"{place}.driver-place", what="there is no driver", next_step=next_step)
    if host.torch is TorchChoice.OTHER and len(file.torch) < 2:
        yield Flaw(
            where=f"{place}.torch",
            what="the matrix has one torch pin only",
            next_step="add another pin, or leave the host out",
        )
    for name in host.variants:
        if name not in file.variants:
            known = did_you_mean(name, file.variants) or "name variants of the matrix"
            yield Flaw(where=f"{place}.variants", what=f"no variant {name!r}", next_step=known)
    if host.emulated and (file.project.device_run is None or not file.project.device_run.emulation):
        next_step = "add project.device-run.emulation"
        yield Flaw(where=f"{place}.emulated", what="nothing emulates", next_step=next_step)
    if HostOption.NO_PROC in host.options and host.cpu:
        next_step = "take one of them out"
        yield Flaw(where=f"{place}.cpu", what="qemu wants /proc", next_step=next_step)
