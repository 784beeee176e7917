"""What gdb prints is read: the stop that was the death, its frames, whatever else is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfab.crash.frames import parse_frame, without_arguments
from wheelfab.crash.gdb import Stop, death, gdb_argv, parse_gdb
from wheelfab.crash.maps import parse_mappings, site_of, version_of

DATA = Path(__file__).parent / "data" / "crash"


def recorded(name: str) -> str:
    """What gdb printed for a planted crash."""
    return (DATA / f"gdb-{name}.txt").read_text(encoding="utf-8")


def test_a_null_pointer_has_its_code_address_and_line() -> None:
    stops, killed = parse_gdb(recorded("null"), "MARK")
    assert killed == "SIGSEGV"
    stop = death(stops, "SIGSEGV")
    assert stop is not None
    assert (stop.signal, stop.si_code, stop.address) == ("SIGSEGV", "SEGV_MAPERR", "0x0")
    first = stop.frames[0]
    assert (first.function, first.library) == ("null_pointer", "/opt/planted/planted.so")
    assert (first.file, first.line) == ("/src/planted.cpp", 17)
    assert first.offset == 0x11D9
    assert "/usr/lib/x86_64-linux-gnu/libc.so.6" in stop.libraries
    assert "libffi.so.8" in stop.without_debug


def test_the_kernels_general_protection_has_no_address() -> None:
    text = recorded("null").replace("signal 11 code 1 address", "signal 11 code 128 address")
    stop = death(parse_gdb(text, "MARK")[0], "SIGSEGV")
    assert stop is not None
    assert (stop.si_code, stop.address) == ("SI_KERNEL", "")


def test_functions_without_symbols_are_places_in_their_libraries() -> None:
    stop = death(parse_gdb(recorded("driver"), "MARK")[0], "SIGSEGV")
    assert stop is not None
    names = [frame.name for frame in stop.frames]
    assert names[:3] == ["libcuda.so.1+0x1105", "libcuda.so.1+0x1124", "cuInit"]
    assert names[3].startswith("ctors.so+0x")
    assert {"ctors.so", "libcuda.so.1"} <= stop.without_debug


def test_an_exit_is_held_at_its_system_call() -> None:
    stops, killed = parse_gdb(recorded("exit"), "MARK")
    assert killed == ""
    stop = death(stops, "")
    assert stop is not None
    assert "leaves" in [frame.function for frame in stop.frames]


def test_the_process_that_died_is_the_one_that_was_followed() -> None:
    stop = death(parse_gdb(recorded("child"), "MARK")[0], "SIGABRT")
    assert stop is not None
    assert (stop.signal, stop.si_code, stop.address) == ("SIGABRT", "SI_TKILL", "")
    assert "asks_devices" in [frame.function for frame in stop.frames]


def stops(*events: str) -> list[Stop]:
    """Stops such as ``SIGSEGV SEGV_MAPERR``, numbered by their pc."""
    return [
        Stop(signal=signal, si_code=code, inferior=1, pc=number)
        for number, (signal, _, code) in enumerate(event.partition(" ") for event in events)
    ]


@pytest.mark.parametrize(
    ("events", "signal", "number"),
    [
        (["SIGSEGV SEGV_MAPERR", "SIGSEGV SI_TKILL"], "SIGSEGV", 0),  # faulthandler raises it again
        (["SIGILL ILL_ILLOPN", "SIGSEGV SEGV_MAPERR"], "SIGSEGV", 1),  # a handled probe
        (["SIGSEGV SEGV_MAPERR", "SIGSEGV SEGV_ACCERR"], "SIGSEGV", 1),  # the first was handled
        (["SIGABRT SI_TKILL", "SIGABRT SI_TKILL"], "SIGABRT", 0),
        (["SIGABRT SI_TKILL", "SIGILL ILL_ILLOPN", "SIGABRT SI_TKILL"], "SIGABRT", 2),
        (["SIGSEGV SI_KERNEL", "SIGABRT SI_TKILL"], "SIGABRT", 1),
    ],
)
def test_of_many_stops_the_fault_is_found(events: list[str], signal: str, number: int) -> None:
    found = death(stops(*events), signal)
    assert found is not None
    assert found.pc == number
    assert death(stops(*events), "SIGBUS") is None


def test_what_the_program_prints_is_no_answer_of_gdb() -> None:
    forged = recorded("null").replace("MARK", "OTHER")
    assert parse_gdb(forged, "MARK") == ([], "SIGSEGV")
    inside = "MARKED stop\n#0  0x1 in liar () from /liar.so\n" + recorded("null")
    found, _ = parse_gdb(inside, "MARK")
    assert found[0].frames[0].function == "null_pointer"


@given(st.lists(st.sampled_from([*recorded("child").splitlines()[:60], "MARK pc 0x1 inferior 1"])))
def test_mixed_up_lines_are_survived(lines: list[str]) -> None:
    found, _ = parse_gdb("\n".join(lines), "MARK")
    death(found, "SIGABRT")


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    found, killed = parse_gdb(f"MARK stop\n{text}\nMARK {text}\nMARK pc 0x1 inferior 1\n", "MARK")
    assert len(found) <= 1 + text.count("MARK")
    assert isinstance(killed, str)


@pytest.mark.parametrize(
    ("line", "function", "place"),
    [
        ("#0  f () at a.cpp:4", "f", ("a.cpp", 4, "")),
        ("#1  0x00007f12 in f (a=..., b=...) at /x y/a.cpp:12", "f", ("/x y/a.cpp", 12, "")),
        ("#2  0x00007f12 in ?? () from /lib/lib x.so.1", "??", ("", None, "/lib/lib x.so.1")),
        ("#3  0x00007f12 in ?? ()", "??", ("", None, "")),
        ("#4  0x12 in (anonymous namespace)::g(int) () from /l.so", None, ("", None, "/l.so")),
        (
            "#5  0x12 in std::function<void (int)>::operator()(int) const (this=...) at f.h:3",
            "std::function<void (int)>::operator()(int) const",
            ("f.h", 3, ""),
        ),
        ("#6  <signal handler called>", "<signal handler called>", ("", None, "")),
    ],
)
def test_frames(line: str, function: str | None, place: tuple[str, int | None, str]) -> None:
    parsed = parse_frame(line)
    assert parsed is not None
    _, frame = parsed
    assert frame.function == (function or "(anonymous namespace)::g(int)")
    assert (frame.file, frame.line, frame.library) == place


def test_what_is_no_frame_and_what_has_no_end() -> None:
    assert parse_frame("(More stack frames follow...)") is None
    assert parse_frame("Reading symbols from /lib/x.so...") is None
    assert without_arguments("operator()(") == "operator()("
    assert without_arguments(") ()") == ")"


def test_mappings_of_old_and_new_gdb() -> None:
    new = "      0x7f00      0x7f10       0x10        0x0  r--p   /usr/lib/libx.so.1.2"
    old = "      0x7f00             0x7f10       0x10        0x0 /usr/lib/libx.so.1.2"
    (one,), (two,) = parse_mappings([new, "nonsense"]), parse_mappings([old])
    assert one == two
    assert one.is_library
    assert (one.start, one.end, one.path) == (0x7F00, 0x7F10, "/usr/lib/libx.so.1.2")
    (cache,) = parse_mappings(["  0x1 0x2 0x1 0x0 r--p /etc/ld.so.cache"])
    (stack,) = parse_mappings(["  0x1 0x2 0x1 0x0 rw-p [stack]"])
    assert (cache.is_library, stack.path) == (False, "")


def test_versions_of_libraries() -> None:
    site = "/env/lib/python3.11/site-packages"
    dists = [f"{site}/torch-2.13.0+cpu.dist-info", f"{site}/nvidia_nccl_cu12-2.21.5.dist-info"]
    assert version_of("/usr/lib/libstdc++.so.6.0.30", [], "") == "6.0.30"
    assert version_of(f"{site}/torch/lib/libtorch.so", dists, "2.36") == "2.13.0+cpu"
    assert version_of(f"{site}/torch.libs/libgomp.so.1", dists, "2.36") == "2.13.0+cpu"
    assert version_of(f"{site}/other/x.so", dists, "2.36") == ""
    assert version_of("/lib/x86_64-linux-gnu/libc.so.6", [], "2.36") == "2.36"
    assert version_of("/usr/lib/libpython3.11.so.1.0", [], "2.36") == "3.11"
    assert site_of("/usr/lib/libc.so.6") is None


def test_the_way_to_a_child_is_walked_fork_by_fork() -> None:
    argv = gdb_argv(("prog",), "MARK", rounds=1, path=(3, 1), signal="SIGSEGV")
    commands = [argv[place + 1] for place, word in enumerate(argv) if word == "-ex"]
    turn = ["set follow-fork-mode child", "continue", "set follow-fork-mode parent"]
    start = commands.index("run")
    assert commands[start + 1 : start + 9] == ["continue", "continue", *turn, *turn]
    assert argv[-2:] == ("--args", "prog")
    assert not any("handle" in word and "SIGTRAP" in word for word in argv)
    assert "catch syscall exit_group" in gdb_argv(("prog",), "MARK", rounds=1)
