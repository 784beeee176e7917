"""The command line: parses, calls one command, turns its error into a sentence and an exit code."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from wheelfab import commands, console
from wheelfab.errors import FactoryError

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, an error's own, or 130 after an interrupt."""
    options = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        options.command(options)
    except FactoryError as error:
        console.error(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        console.error("interrupted; what was finished is kept")
        return _INTERRUPTED
    return 0


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(prog="wheelfab", description=__doc__)
    top.add_argument("--matrix", default="matrix.toml", help="the matrix file")
    sub = top.add_subparsers(required=True, metavar="COMMAND")

    _add_building(sub)
    _add_loops(sub)
    _add_audit(_add(sub, "audit", commands.audit_command))
    _add_atlas(sub)
    index = _add(sub, "index", commands.index_command)
    index.add_argument("target", nargs="?", help="the folder; build/index by default")
    publish = _add(sub, "publish", commands.publish_command)
    publish.add_argument("target", nargs="?", help="the folder that is served")
    text = "download the whole index from where it is served, and compare it"
    publish.add_argument("--verify", metavar="URL", help=text)
    lint = _add(sub, "lint-import", commands.lint_import_command)
    lint.add_argument("target", help="a file, a folder, a wheel, an sdist or an installed package")
    lint.add_argument("--fix", action="store_true", help="mend the simple pattern in place")
    lint.add_argument("--why", help="the chain of imports to a module, such as torch.cuda")
    lint.add_argument("--static", action="store_true", help="import nothing, read the sources only")
    lint.add_argument("--budget", help="a TOML file: module = milliseconds")
    lint.add_argument("--python", help="the interpreter that imports it; this one by default")
    lint.add_argument("--tests", action="store_true", help="the package's own tests too")
    container = _add(sub, "container", commands.container_command)
    text = "builder, cpu-host, driver-host, gpu-host, diagnosis, driver-diagnosis or wheel-builder"
    container.add_argument("target", help=text)
    container.add_argument("--base", default="debian-12", help="a base of docker/bootstrap")
    container.add_argument("arguments", nargs="*", help="after --: a command instead of a shell")
    session = _add(sub, "session", commands.session_command)
    session.add_argument("name", help="a [sessions.NAME] of the matrix")
    session.add_argument("arguments", nargs=argparse.REMAINDER, help="added to the last command")
    docs = _add(sub, "docs", commands.docs_command)
    docs.add_argument(
        "--hosts", action="store_true", help="the pages of hosts, from the last run's report"
    )
    docs.add_argument("--check", action="store_true", help="change nothing, fail when stale")
    return top


def _add_building(sub: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What plans, builds and locks."""
    plan = _add(sub, "plan", commands.plan_command)
    build = _add(sub, "build", commands.build_command)
    for command in (plan, build):
        command.add_argument("names", nargs="*", help="variants or cells; all by default")
        _add_debug(command)
        text = "fail where host compiler or base image is not in the lock, instead of warning"
        command.add_argument("--locked", action="store_true", help=text)

    text = "in the builder's container, by cibuildwheel"
    build.add_argument("--container", action="store_true", help=text)
    shell = _add(sub, "shell", commands.shell_command)
    shell.add_argument("names", nargs="+", help="a variant or cell, for the builder's container")
    shell.set_defaults(debug=False, locked=False)

    again = _add(sub, "reproduce", commands.reproduce_command)
    again.add_argument("--cell", dest="names", nargs="*", default=[], help="variants or cells")
    text = "only here, not in the builder's container"
    again.add_argument("--no-container", action="store_true", help=text)
    again.add_argument("--against", help="a finished wheel, such as a published one")
    again.set_defaults(debug=False, locked=False)

    lock = _add(sub, "lock", commands.lock_command)
    lock.add_argument("--upgrade", action="store_true", help="look everything up anew")


def _add_loops(sub: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    loop = _add(sub, "loop", commands.loop_command)
    loop.add_argument("--variant", nargs="*", default=[], help="variants or cells")
    loop.add_argument(
        "--host",
        nargs="*",
        default=[],
        help="hosts of the matrix, or 'here' for this machine alone; all hosts by default",
    )
    loop.add_argument(
        "--count", type=_count, default=None, help="fresh loads a wheel; 100 here, 20 on a host"
    )
    loop.add_argument(
        "--forked", type=_count, default=None, help="forked loads a wheel; 1000 here, 20 on a host"
    )
    loop.add_argument(
        "--jobs", type=_count, default=None, help="loads at once; the cores, on hosts one more"
    )
    loop.add_argument("--torch", nargs="*", default=[], help="here: torch releases")
    loop.add_argument(
        "--full-torch", action="store_true", help="here: NVIDIA's wheels instead of stub libraries"
    )
    loop.add_argument(
        "--every",
        action="store_true",
        help="on hosts, without --variant: all wheels, not the few that hold every compiled file",
    )
    loop.add_argument("--deep", action="store_true", help="on hosts: torch in every fresh load")
    loop.add_argument(
        "--no-container", action="store_true", help="hosts as processes and namespaces only"
    )
    _add_debug(loop)

    gpu = _add(sub, "gpu-loop", commands.gpu_loop_command)
    gpu.add_argument("--variant", nargs="*", default=[], help="variants or cells")
    gpu.add_argument("--count", type=_count, default=20, help="fresh interpreters a wheel")
    gpu.add_argument("--soak", type=_count, default=1000, help="launches on each device")
    gpu.add_argument(
        "--timeout", type=_seconds, default=900.0, help="seconds for all devices of a wheel"
    )
    gpu.add_argument("--torch-index", help="where a CUDA build of torch comes from")
    gpu.add_argument("--no-container", action="store_true", help="in processes of this machine")
    gpu.add_argument(
        "--emulated",
        action="store_true",
        help="on a fake driver's devices: proves nothing of a GPU",
    )


def _add(
    sub: argparse._SubParsersAction[argparse.ArgumentParser], name: str, command: object
) -> argparse.ArgumentParser:
    added = sub.add_parser(name, description=command.__doc__, help=command.__doc__)
    added.add_argument("--json", action="store_true", help="the same facts for a machine")
    added.set_defaults(command=command)
    return added


def _add_atlas(sub: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    compat = _add(sub, "compat", commands.compat_command)
    compat.add_argument("wheels", nargs="*", help="wheels; without any, all that the matrix built")
    compat.add_argument("--atlas", help="another atlas than wheelfab's own")
    compat.add_argument("--index-url", help="where the index is served, for the install lines")
    atlas = _add(sub, "atlas", commands.atlas_command)
    atlas.add_argument("action", choices=["update"], help="what to do with it")
    atlas.add_argument("--index", help="a package index; by default the one that pip asks")
    atlas.add_argument("--platform", default="linux-x86_64", help="as linux-aarch64")
    atlas.add_argument("--release", nargs="*", default=[], help="torch releases; all by default")
    atlas.add_argument("--into", help="the file; by default the atlas that wheelfab comes with")


def _add_debug(command: argparse.ArgumentParser) -> None:
    text = "the debug twins: -g -O1, frame pointers, assertions"
    command.add_argument("--debug", action="store_true", help=text)


def _add_audit(command: argparse.ArgumentParser) -> None:
    command.add_argument("wheels", nargs="*", metavar="WHEEL", help="all that are built by default")
    command.add_argument("--policy", help="a TOML file: what is allowed (docs/audit.md)")
    command.add_argument("--explain", metavar="RULE", help="what a rule is about, and why")
    command.add_argument("--deep", action="store_true", help="also what takes longer than seconds")
    text = "with --deep: the interpreter whose torch is loaded beside; this one by default"
    command.add_argument("--python", help=text)
    command.add_argument("--github", action="store_true", help="findings as GitHub annotations")


def _count(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1,000,000")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1,000,000")
    return number


def _interrupt(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 (a handler's own)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
