"""Real processes through the one door: endings, time-outs, interrupts, environments, logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import wheelfab
from wheelfab.errors import BuildError, UsageError
from wheelfab.run import (
    attach,
    check,
    fetch_environment,
    run,
    start,
    stop,
    stop_all,
    tool_environment,
)

FACTORY = Path(wheelfab.__file__).parent.parent
# A shell with a child of its own; both note their numbers, then wait.
FAMILY = 'sh -c "echo \\$\\$; exec sleep 60" > child & echo $$ > parent; wait'


def shell(text: str) -> tuple[str, ...]:
    """A script as an argv."""
    return ("sh", "-c", text)


def dead(number: int) -> bool:
    """Whether a process is gone, or a zombie."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def family(folder: Path) -> list[int]:
    """The numbers of both processes of FAMILY once they are known."""
    files = [folder / "parent", folder / "child"]
    wait_until(lambda: all(file.exists() and file.read_text().strip() for file in files))
    return [int(file.read_text()) for file in files]


@pytest.mark.parametrize(
    ("script", "returncode", "ending"),
    [
        ("exit 0", 0, "exit 0"),
        ("exit 7", 7, "exit 7"),
        ("kill -SEGV $$", -11, "SIGSEGV"),
        ("kill -KILL $$", -9, "SIGKILL"),
    ],
)
def test_an_ending_is_returned_in_words(script: str, returncode: int, ending: str) -> None:
    done = run(shell(f"echo out; echo err >&2; {script}"), env=tool_environment())
    assert (done.returncode, done.ending, done.ok) == (returncode, ending, returncode == 0)
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


def test_output_that_is_no_utf8_does_not_matter() -> None:
    done = run(shell(r"printf 'a\377b'"), env=tool_environment())
    assert done.stdout == "a\N{REPLACEMENT CHARACTER}b"


def test_it_reads_nothing_from_our_terminal() -> None:
    assert run(("cat",), env=tool_environment(), timeout=20).ok


def test_a_time_out_kills_the_whole_group_and_keeps_what_was_said(tmp_path: Path) -> None:
    started = time.monotonic()
    done = run(shell(f"echo before; {FAMILY}"), env=tool_environment(), cwd=tmp_path, timeout=1.0)
    assert time.monotonic() - started < 20
    assert (done.returncode, done.ending, done.ok) == (None, "timed out", False)
    assert done.stdout == "before\n"
    for number in family(tmp_path):
        wait_until(partial(dead, number))


def test_stop_all_ends_what_other_threads_run(tmp_path: Path) -> None:
    endings: list[str] = []

    def work() -> None:
        endings.append(run(shell(FAMILY), env=tool_environment(), cwd=tmp_path).ending)

    thread = threading.Thread(target=work)
    thread.start()
    numbers = family(tmp_path)
    stop_all()
    thread.join(timeout=20)
    assert endings == ["SIGKILL"]
    for number in numbers:
        wait_until(partial(dead, number))


def test_an_interrupt_kills_the_group_and_is_passed_on(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from wheelfab.run import run, tool_environment\n"
        "run(('sh', '-c', sys.argv[1]), env=tool_environment(), cwd=Path(sys.argv[2]))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, FAMILY, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(FACTORY)},
        stderr=subprocess.PIPE,
        text=True,
    )
    numbers = family(tmp_path)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert err.rstrip().endswith("KeyboardInterrupt")
    for number in numbers:
        wait_until(partial(dead, number))


def test_a_started_process_is_stopped_with_its_group(tmp_path: Path) -> None:
    process = start(shell(FAMILY), env=tool_environment(), cwd=tmp_path)
    numbers = family(tmp_path)
    assert stop(process) == -signal.SIGKILL
    for number in numbers:
        wait_until(partial(dead, number))


HOSTILE = {
    "TORCH_CUDA_ARCH_LIST": "5.0",
    "CUDAARCHS": "50",
    "CFLAGS": "-not-a-flag",
    "CXXFLAGS": "-not-a-flag",
    "NVCC_APPEND_FLAGS": "-not-a-flag",
    "LD_LIBRARY_PATH": "/nowhere",
    "LD_PRELOAD": "",
    "PYTHONPATH": "/nowhere",
    "PYTHONSTARTUP": "/nowhere",
    "LC_ALL": "de_DE.UTF-8",
    "TZ": "Asia/Tokyo",
    "SOURCE_DATE_EPOCH": "1",
}


def printed(environment: dict[str, str]) -> dict[str, str]:
    """The environment as a process sees it."""
    done = run(("env", "-0"), env=environment)
    lines = (line.partition("=") for line in done.stdout.split("\0") if line)
    return {name: value for name, _, value in lines}


def test_a_tool_inherits_nothing_but_where_things_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:secret@index.test/simple")
    seen = printed(tool_environment({"SOURCE_DATE_EPOCH": "1700000000"}))
    assert seen.pop("SOURCE_DATE_EPOCH") == "1700000000"
    assert (seen.pop("LC_ALL"), seen.pop("TZ")) == ("C.UTF-8", "UTC")
    assert seen.pop("PYTHONDONTWRITEBYTECODE") == "1"
    assert set(seen) <= {"PATH", "HOME", "TMPDIR"}
    assert seen["PATH"] == os.environ["PATH"]


def test_a_download_keeps_the_users_index_and_proxy_besides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.test/simple")
    monkeypatch.setenv("https_proxy", "http://proxy.test:3128")
    seen = printed(fetch_environment())
    assert seen["PIP_INDEX_URL"] == "https://index.test/simple"
    assert seen["https_proxy"] == "http://proxy.test:3128"
    assert not {"TORCH_CUDA_ARCH_LIST", "CFLAGS", "LD_LIBRARY_PATH", "PYTHONPATH"} & set(seen)


def test_a_program_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        run(("no-such-program",), env=tool_environment())
    assert str(caught.value) == (
        "cannot start 'no-such-program': No such file or directory; install it or mend the PATH"
    )
    with pytest.raises(UsageError, match="no program 'no-such-program' in the session's"):
        attach(("no-such-program",), env=tool_environment(), cwd=tmp_path)


def test_an_attached_command_gives_its_own_exit_code(tmp_path: Path) -> None:
    assert attach(shell("exit 5"), env=tool_environment(), cwd=tmp_path) == 5
    assert attach(shell("kill -TERM $$"), env=tool_environment(), cwd=tmp_path) == -15


def test_the_log_has_every_command_with_its_output_and_ending(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "x.log"
    run(shell("echo one"), env=tool_environment(), log=log)
    run(shell("echo two >&2; exit 3"), env=tool_environment(), log=log)
    lines = log.read_text().splitlines()
    assert lines[0] == "+ sh -c echo one"
    assert lines[1] == "one"
    assert lines[2].startswith("= exit 0 after 0.")
    assert lines[3:5] == ["+ sh -c echo two >&2; exit 3", "two"]
    assert lines[5].startswith("= exit 3 after 0.")


def test_check_raises_with_the_end_of_what_was_said() -> None:
    done = run(shell("seq 100000 >&2; exit 1"), env=tool_environment())
    with pytest.raises(BuildError) as caught:
        check(done, BuildError, doing="counting", next_step="count less")
    text = str(caught.value)
    assert text.startswith("counting failed (exit 1): ")
    assert text.endswith("\n100000; count less")
    assert len(text) < 4100
    check(run(shell("exit 0"), env=tool_environment()), BuildError, doing="nothing")
