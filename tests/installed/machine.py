"""Fresh interpreters on a machine of the test's choosing: its driver, its environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import freewheel

PACKAGE = Path(freewheel.__file__).parent
LIMIT = 1.0  # seconds that a hanging driver gets here
PATIENCE = 30.0  # seconds that any other one gets, however busy the machine is
ASK = """
import json, time
from dataclasses import asdict
from freewheel import device
begun = time.monotonic()
state = device.state(deep={deep})
took = time.monotonic() - begun
print(json.dumps({{**asdict(state), "ready": state.is_ready(), "fallback": state.fallback,
    "took": took, "count": device.device_count(), "capability": device.capability(),
    "memory": device.memory()}}))
"""


def start(code: str, folder: Path | None, *options: str, **settings: str) -> Any:
    """Run ``code`` with this driver, with everything else of the environment dropped."""
    limit = LIMIT if "hang" in settings.get("FAKECUDA_FAIL", "") else PATIENCE
    environment = {"PATH": os.environ.get("PATH", ""), "FREEWHEEL_PROBE_TIMEOUT": str(limit)}
    if folder is not None:
        environment["LD_LIBRARY_PATH"] = str(folder)
    environment.update(settings)
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, env=environment
    )


def ask(folder: Path | None, *, deep: bool = False, **settings: str) -> dict[str, Any]:
    """The state in a fresh interpreter; settings of the fake in small letters, others as given."""
    given = {
        name if name.isupper() else f"FAKECUDA_{name.upper()}": value
        for name, value in settings.items()
    }
    done = start(ASK.format(deep=deep), folder, **given)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert bool(answer["fallback"]) != answer["ready"]
    if not answer["ready"]:  # row 7: as torch's are
        assert (answer["count"], answer["capability"], answer["memory"]) == (0, None, 0)
    return answer
