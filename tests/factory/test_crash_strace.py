"""What strace writes is read: who died, what it opened and called before."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfab.crash.record import DeviceOpen
from wheelfab.crash.strace import KEPT, Trace, parse_strace

DATA = Path(__file__).parent / "data" / "crash"


def recorded(name: str, signal: str) -> Trace:
    """The trace of a planted crash."""
    text = (DATA / f"strace-{name}.txt").read_text(encoding="utf-8")
    return parse_strace(text, "MARK", signal)


def test_the_fault_and_the_calls_before_it() -> None:
    trace = recorded("null", "SIGSEGV")
    assert (trace.signal, trace.si_code, trace.address) == ("SIGSEGV", "SEGV_MAPERR", "0x0")
    assert trace.path == ()
    assert len(trace.calls) <= KEPT
    assert not any("Fatal Python error" in call for call in trace.calls)  # faulthandler came later
    assert trace.calls[-1].startswith("munmap(")


def test_the_last_library_is_the_one_that_was_opened() -> None:
    assert recorded("driver", "SIGSEGV").last_library == "/opt/driver/libcuda.so.1"


def test_the_child_that_died_and_the_devices_that_it_asked_for() -> None:
    trace = recorded("child", "SIGABRT")
    assert trace.path == (2,)
    assert (trace.si_code, trace.address) == ("SI_TKILL", "")
    assert trace.device_opens == (DeviceOpen(path="/dev/nvidiactl", errno="ENOENT"),)
    assert trace.calls[-1].startswith("tgkill(")
    assert trace.last_library == "/opt/planted/planted.so"  # its parent's
    assert recorded("child", "").child_signal == "SIGABRT"


def test_an_exit_is_the_commands_own() -> None:
    trace = recorded("exit", "")
    assert trace.calls[-1].startswith("exit_group(7)")
    assert (trace.child_signal, trace.signal) == ("", "")


def test_a_call_that_never_returned_is_kept_and_one_that_did_is_whole() -> None:
    text = """MARK 7 openat(AT_FDCWD, "/dev/nvidia0", O_RDWR <unfinished ...>
MARK 8 getpid() = 7
MARK 7 <... openat resumed>) = 3</dev/nvidia0>
MARK 7 ioctl(3</dev/nvidia0>, 0x1 <unfinished ...>
MARK 7 +++ killed by SIGKILL +++"""
    trace = parse_strace(text, "MARK", "SIGABRT")
    assert trace.calls == (
        'openat(AT_FDCWD, "/dev/nvidia0", O_RDWR) = 3</dev/nvidia0>',
        "ioctl(3</dev/nvidia0>, 0x1 <unfinished ...>",
    )
    assert trace.device_opens == (DeviceOpen(path="/dev/nvidia0", errno="opened"),)


def test_a_thread_belongs_to_its_process() -> None:
    text = """MARK 7 execve("/bin/x", ["x"], 0x1) = 0
MARK 7 clone3({flags=CLONE_VM|CLONE_THREAD} => {parent_tid=[8]}, 88) = 8
MARK 8 openat(AT_FDCWD, "/lib/liba.so.1", O_RDONLY) = 3
MARK 8 --- SIGSEGV {si_signo=SIGSEGV, si_code=SEGV_ACCERR, si_addr=0x55} ---
MARK 7 +++ killed by SIGSEGV +++
MARK 8 +++ killed by SIGSEGV +++"""
    trace = parse_strace(text, "MARK", "SIGSEGV")
    assert (trace.path, trace.address, trace.last_library) == ((), "0x55", "/lib/liba.so.1")


def test_lines_of_the_program_are_no_trace() -> None:
    assert parse_strace("42 is the answer\n7 exit_group(0) = ?", "MARK", "") == Trace()


LINES = (DATA / "strace-child.txt").read_text(encoding="utf-8").splitlines()


@given(st.lists(st.sampled_from(LINES)), st.sampled_from(["", "SIGABRT", "SIGSEGV"]))
def test_mixed_up_lines_are_survived(lines: list[str], signal: str) -> None:
    trace = parse_strace("\n".join(lines), "MARK", signal)
    assert len(trace.calls) <= KEPT


@pytest.mark.parametrize("prefix", ["MARK 1 ", "MARK ", ""])
@given(text=st.text())
def test_any_text_is_survived(prefix: str, text: str) -> None:
    parse_strace(prefix + text, "MARK", "SIGSEGV")
