"""``python -m freewheel doctor``: whether this machine and this wheel fit together."""

from __future__ import annotations

import os
import sys

_LIMIT = "20"  # seconds for the driver, so that everything together stays under 30


def main(arguments: list[str]) -> int:
    """Run a command; its exit code."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m freewheel", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser(
        "doctor",
        help="what the machine, the driver, torch and the wheel are, and what to do next",
        description="Exit code 0: CUDA is ready. 1: usable on the CPU. 2: something is broken.",
    )
    doctor.add_argument("--json", action="store_true", help="the same facts for a machine")
    doctor.add_argument("--deep", action="store_true", help="create a context on each device")
    doctor.add_argument("--no-torch", action="store_true", help="do not import torch in a child")
    given = parser.parse_args(arguments)
    os.environ.setdefault("FREEWHEEL_PROBE_TIMEOUT", _LIMIT)
    from freewheel.doctor import examine, render

    report = examine(deep=given.deep, with_torch=not given.no_torch)
    text = render(report, as_json=given.json)
    encoding = sys.stdout.encoding or "utf-8"  # a path need not be text
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
