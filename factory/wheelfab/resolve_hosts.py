"""Makes the hosts of ``matrix.toml``: a table with cases becomes a host a case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wheelfab.host import (
    DRIVER_SETTINGS,
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
_OF_FAKES = ("FAKECUDA_", "FAKENVML_")


def resolve_hosts(file: MatrixFile) -> tuple[tuple[Host, ...], tuple[Flaw, ...]]:
    """The hosts in the order of the file, and what is wrong with them."""
    hosts: list[Host] = []
    flaws: list[Flaw] = []
    for name, table in file.hosts.items():
        if name in _NAMES_TAKEN:
            what, where = f"{name!r} has a meaning of its own", key_path(("hosts", name))
            flaws.append(Flaw(where=where, what=what, next_step="choose another name"))
        for case, keys in (table.cases or {"": HostKeys()}).items():
            host = _host(name, table, case, keys, file.project.state_limit)
            place = key_path(("hosts", name, *(("cases", case) if case else ())))
            flaws += _flaws(host, file, place)
            hosts.append(host)
    return tuple(hosts), tuple(flaws)


def _host(group: str, table: HostTable, case: str, keys: HostKeys, limit: float) -> Host:
    values = _merged(table, keys)
    status = values["status"] or ""
    kind = values["error_for"]
    return Host(
        name=f"{group}-{case}" if case else group,
        group=group,
        help=values["help"] or "",
        state_limit=values["state_limit"] or limit,
        expect=Expectation(
            status=status,
            without_code=values["status_without_code"] or status,
            without_ptx=values["status_without_ptx"] or status,
            forked=values["status_forked"] or "",
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
    for name in host.variants:
        if name not in file.variants:
            known = did_you_mean(name, file.variants) or "name variants of the matrix"
            yield Flaw(where=f"{place}.variants", what=f"no variant {name!r}", next_step=known)
    yield from _unread(host, place)
    device_run = file.project.device_run
    for wrong, key, what, next_step in (
        (not host.help, ".help", "is missing", "say what is wrong with it"),
        (
            bool(host.expect.status) and file.project.state is None,
            ".status",
            "nothing gives a status",
            "add project.state, the code that asks the extension for its state",
        ),
        (
            not host.expect.status and file.project.state is not None,
            "",
            "has no expected answer",
            "add status, what project.state must answer there",
        ),
        (
            host.driver is HostDriver.REAL and host.image is not HostImage.DRIVER,
            ".driver",
            "the image has no driver",
            'add image = "driver-host"',
        ),
        (
            host.driver is HostDriver.NONE and host.driver_place is not DriverPlace.PATH,
            ".driver-place",
            "there is no driver",
            'add driver = "fake"',
        ),
        (
            host.torch is TorchChoice.OTHER and len(file.torch) < 2,
            ".torch",
            "the matrix has one torch pin only",
            "add another pin, or leave the host out",
        ),
        (
            host.emulated and (device_run is None or not device_run.emulation),
            ".emulated",
            "nothing emulates",
            "add project.device-run.emulation",
        ),
        (
            HostOption.NO_PROC in host.options and host.cpu is not None,
            ".cpu",
            "qemu wants /proc",
            "take one of them out",
        ),
    ):
        if wrong:
            yield Flaw(where=f"{place}{key}", what=what, next_step=next_step)


def _unread(host: Host, place: str) -> Iterator[Flaw]:
    """Variables that are named like the fake driver's own, and that it does not read."""
    for key, variables in (
        ("environment", host.environment),
        *((f"environment-after[{at}]", each) for at, each in enumerate(host.environment_after)),
    ):
        for name in variables:
            if name.startswith(_OF_FAKES) and name not in DRIVER_SETTINGS:
                other = [each for each in DRIVER_SETTINGS if _setting(each) == _setting(name)]
                yield Flaw(
                    where=f"{place}.{key}.{name}",
                    what="the fake driver reads no such variable",
                    next_step=did_you_mean(name, other or DRIVER_SETTINGS),
                )


def _setting(variable: str) -> str:
    return variable.partition("_")[2]
