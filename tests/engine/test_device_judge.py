"""Every state, from what was seen: no process, no driver."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freewheel.device.answer import Answer
from freewheel.device.files import Files, Library
from freewheel.device.judge import Seen, judge, release_name
from freewheel.device.record import Asked, DeviceState, Fallback, Status
from freewheel.device.shadows import Shadow
from freewheel.device.wheel import Wheel

LIBRARY = "/usr/lib/libcuda.so.1"
WHEEL = Wheel(
    cuda="12.1",
    archs=("8.0", "9.0", "9.0+PTX"),
    cubin_floor=12000,
    ptx_floor=12010,
    cubin_release="525.60.13",
    ptx_release="530.30.02",
)
OK = {"code": 0, "name": None, "text": None}


def files(
    *, release: str | None = None, module: str | None = None, nodes: tuple[str, ...] = ()
) -> Files:
    library = Library(path=LIBRARY, release=release, by="default folder")
    return Files(module_version=module, nodes=nodes, dxg=False, libraries=(library,))


NONE = Files(module_version=None, nodes=(), dxg=False, libraries=())


def device(ordinal: int = 0, capability: tuple[int, int] = (8, 0), **more: Any) -> dict[str, Any]:
    return {
        "ordinal": ordinal,
        "get": OK,
        "name": "Fake",
        "major": capability[0],
        "minor": capability[1],
        "total_memory": 1 << 34,
        "uuid": f"{ordinal:08x}-0000-0000-0000-000000000000",
        **more,
    }


def found(*devices: dict[str, Any], version: int | None = 12040) -> Answer:
    data = {
        "library": LIBRARY,
        "driver_version": version,
        "initialised": OK,
        "counted": OK,
        "count": len(devices),
        "devices": list(devices),
    }
    return Answer(how=Asked.PROGRAM, data=data, seconds=0.01)


def refused(code: int, *, call: str = "initialised") -> Answer:
    data = {"library": LIBRARY, "driver_version": 12040, "initialised": OK}
    return Answer(how=Asked.PROGRAM, data={**data, call: {"code": code, "name": "X", "text": "y"}})


def state(
    answer: Answer | None,
    *,
    wheel: Wheel = WHEEL,
    seen: Files | None = None,
    visible: str | None = None,
) -> DeviceState:
    return judge(Seen(files=seen or files(), answer=answer, wheel=wheel, visible=visible))


def test_no_library() -> None:
    seen = state(None, seen=NONE)
    assert (seen.status, seen.fallback) == (Status.CUDA_UNAVAILABLE, Fallback.USE_CPU)
    assert seen.asked is Asked.NOT_ASKED


@pytest.mark.parametrize(
    ("code", "status", "fallback"),
    [
        (2, Status.BUSY, Fallback.WAIT),
        (3, Status.UNKNOWN, Fallback.FAIL),
        (34, Status.MISMATCH, Fallback.FAIL),
        (35, Status.MISMATCH, Fallback.FAIL),
        (46, Status.BUSY, Fallback.WAIT),
        (100, Status.NO_DEVICE, Fallback.USE_CPU),
        (101, Status.NO_DEVICE, Fallback.USE_CPU),
        (304, Status.UNKNOWN, Fallback.FAIL),
        (802, Status.BUSY, Fallback.WAIT),
        (803, Status.MISMATCH, Fallback.FAIL),
        (804, Status.MISMATCH, Fallback.FAIL),
        (999, Status.UNKNOWN, Fallback.FAIL),
        (4242, Status.UNKNOWN, Fallback.FAIL),
    ],
)
@pytest.mark.parametrize("call", ["initialised", "counted"])
def test_row_27_each_code_gives_one_state(
    code: int, status: Status, fallback: Fallback, call: str
) -> None:
    seen = state(refused(code, call=call))
    assert (seen.status, seen.fallback, seen.code) == (status, fallback, code)
    assert f"returned {code} (X: y)" in seen.reason
    assert seen.next_step
    assert not seen.is_ready()


def test_803_and_804_are_told_apart() -> None:
    """B14: what shadows the driver is said."""
    first, second = state(refused(803)).reason, state(refused(804)).reason
    assert "different versions" in first
    assert "forward-compatibility" in second


def test_skew_explains_an_unknown_error_and_never_vetoes() -> None:
    """B72: an upgrade left module and library at different versions."""
    skewed = files(release="550.1", module="535.309.01")
    broken = state(refused(999), seen=skewed)
    assert broken.status is Status.MISMATCH
    assert "libcuda is 550.1, the kernel module 535.309.01" in broken.reason
    works = state(found(device()), seen=skewed)
    assert works.is_ready()
    assert works.notes == ("libcuda is 550.1, the kernel module 535.309.01",)


@pytest.mark.parametrize("answer", [refused(100), found()])
@pytest.mark.parametrize(
    ("visible", "words"),
    [
        ("", "set but empty"),
        ("-1", "hides every device"),
        ("9,x", "ends at its first invalid entry, 'x'"),
        ("0,0", "twice"),
    ],
)
def test_b28_hidden_devices_are_three_findings(answer: Answer, visible: str, words: str) -> None:
    seen = state(answer, visible=visible)
    assert seen.status is Status.NO_DEVICE
    assert words in seen.reason


def test_a_library_that_does_not_load() -> None:
    answer = Answer(how=Asked.PROGRAM, data={"not_loaded": "invalid ELF header"})
    seen = state(answer)
    assert seen.status is Status.CUDA_UNAVAILABLE
    assert seen.reason == f"the driver library {LIBRARY} does not load: invalid ELF header"
    missing = "libcuda.so.1: cannot open shared object file: No such file or directory"
    unreached = state(Answer(how=Asked.PROGRAM, data={"not_loaded": missing}))
    assert "the loader does not look in its folder" in unreached.reason
    assert unreached.next_step == "run ldconfig, or add the folder to LD_LIBRARY_PATH"
    nothing = state(answer, seen=Files("535.1", ("nvidia0",), dxg=False, libraries=()))
    assert "although there is /dev/nvidia0 and kernel module 535.1" in nothing.reason


NOT_FOUND = "libcuda.so.1: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("machine", "error"),
    [("aarch64", NOT_FOUND), ("i386", "libcuda.so.1: wrong ELF class: ELFCLASS32")],
)
def test_a_library_for_another_machine(machine: str, error: str) -> None:
    """The loader passes over it, and says that there is none."""
    foreign = Library("/opt/x/libcuda.so.1", None, "LD_LIBRARY_PATH", foreign=machine)
    seen = state(
        Answer(how=Asked.PROGRAM, data={"not_loaded": error}),
        seen=Files(None, (), dxg=False, libraries=(foreign,)),
    )
    assert (seen.status, seen.library) == (Status.CUDA_UNAVAILABLE, foreign.path)
    assert seen.reason == (
        f"the driver library /opt/x/libcuda.so.1 is for another machine ({machine}): {error}"
    )
    assert seen.next_step == (
        "install the NVIDIA driver for this machine, or take this file out of the search path"
    )
    assert seen.notes == ()


def test_a_library_for_another_machine_is_passed_over() -> None:
    """It is neither the one that is loaded nor the one that the kernel module must fit."""
    foreign = Library("/opt/x/libcuda.so.1", "550.1", "LD_LIBRARY_PATH", foreign="i386")
    own = Library(LIBRARY, "535.1", "default folder")
    both = Files("535.1", (), dxg=False, libraries=(foreign, own))
    crashed = state(Answer(how=Asked.PROGRAM, step="cuInit", signal=11), seen=both)
    assert crashed.library == LIBRARY
    assert crashed.libraries == ("/opt/x/libcuda.so.1", LIBRARY)
    assert crashed.notes == ("/opt/x/libcuda.so.1 is for another machine (i386)",)
    unreached = state(Answer(how=Asked.PROGRAM, data={"not_loaded": NOT_FOUND}), seen=both)
    assert unreached.reason.startswith(f"there is {LIBRARY}, but the loader does not look in")


def test_a_library_where_the_loader_does_look() -> None:
    listed = Library("/opt/x/libcuda.so.1", None, "LD_LIBRARY_PATH")
    seen = state(
        Answer(how=Asked.PROGRAM, data={"not_loaded": NOT_FOUND}),
        seen=Files(None, (), dxg=False, libraries=(listed,)),
    )
    assert seen.reason == f"the driver library /opt/x/libcuda.so.1 does not load: {NOT_FOUND}"
    assert "ldconfig" not in seen.next_step


def test_a_library_without_a_function() -> None:
    answer = Answer(how=Asked.PROGRAM, data={"library": LIBRARY, "missing": "cuInit"})
    seen = state(answer)
    assert seen.status is Status.MISMATCH
    assert seen.reason.startswith(f"{LIBRARY} has no function cuInit")


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (Answer(how=Asked.PROGRAM, step="cuInit", signal=11), "driver_crashed", "SIGSEGV in cuI"),
        (Answer(how=Asked.PROGRAM, step="dlopen", signal=6), "driver_crashed", "SIGABRT in dlo"),
        (Answer(how=Asked.PROGRAM, step="cuInit", exit_code=3), "driver_crashed", "exit code 3"),
        (Answer(how=Asked.PYTHON, step="cuInit"), "driver_crashed", "an unknown end"),
        (Answer(how=Asked.PROGRAM, step="cuInit", hung=True), "driver_hung", "in cuInit"),
        (Answer(how=Asked.FAILED, problems=("no program",)), "unknown", "no program"),
    ],
)
def test_no_answer(answer: Answer, status: str, words: str) -> None:
    seen = state(answer)
    assert seen.status == status
    assert words in seen.reason
    assert seen.fallback is Fallback.FAIL


@pytest.mark.parametrize(
    ("version", "capability", "status", "image"),
    [
        (11080, (8, 0), Status.MISMATCH, "8.0"),  # below the family floor
        (12000, (8, 0), Status.READY, "8.0"),  # between the floors, by a cubin
        (12000, (9, 0), Status.READY, "9.0"),
        (12000, (12, 0), Status.MISMATCH, None),  # between the floors, PTX only
        (12010, (12, 0), Status.READY, "9.0+PTX"),
        (13000, (8, 6), Status.READY, "8.0"),
        (12040, (7, 5), Status.NO_IMAGE, None),
        (None, (8, 0), Status.READY, "8.0"),
    ],
)
def test_row_36_driver_versions_against_the_floors(
    version: int | None, capability: tuple[int, int], status: Status, image: str | None
) -> None:
    """B04: a driver older than the wheel."""
    seen = state(found(device(capability=capability), version=version))
    assert (seen.status, seen.devices[0].image) == (status, image)
    if status is Status.MISMATCH:
        assert "12.1 (530.30.02" in seen.reason or "12.0 (525.60.13" in seen.reason


def test_wheels_without_device_code() -> None:
    cpu = state(found(device()), wheel=Wheel())
    assert (cpu.status, cpu.fallback) == (Status.NO_IMAGE, Fallback.USE_CPU)
    assert "this wheel holds no device code" in cpu.reason
    tree = state(found(device()), wheel=Wheel(built=False))
    assert "source tree" in tree.reason


def test_mixed_devices_are_ready_where_one_is() -> None:
    seen = state(found(device(0, (7, 5)), device(1, (9, 0))))
    assert seen.is_ready()
    assert [item.ordinal for item in seen.usable] == [1]
    assert "not device 0: no device code fits it" in seen.reason


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"compute_mode": 3, "processes": 1}, "exclusively"),
        ({"free_memory": 5 << 20}, "only 5 MiB"),
        ({"context": {"code": 2}}, "cuDevicePrimaryCtxRetain returned 2, the device has no free"),
        ({"context": {"code": 46}}, "is taken"),
        ({"context": {"code": 802}}, "not ready yet"),
    ],
)
def test_busy_devices(more: dict[str, Any], words: str) -> None:
    seen = state(found(device(**more)))
    assert (seen.status, seen.fallback) == (Status.BUSY, Fallback.WAIT)
    assert words in seen.reason
    assert seen.usable == ()
    one_is_free = state(found(device(0, **more), device(1)))
    assert one_is_free.is_ready()


@pytest.mark.parametrize(
    ("more", "status", "code", "words", "step"),
    [
        ({"compute_mode": 2}, "prohibited", None, "prohibited", "nvidia-smi -c 0"),
        # On a prohibited device a context is refused as on one that is taken.
        (
            {"compute_mode": 2, "context": {"code": 46}},
            *("prohibited", None, "prohibited", "nvidia-smi -c 0"),
        ),
        ({"context": {"code": 999}}, "unknown", 999, "CtxRetain returned 999", "restart"),
        ({"context": {"code": 214}}, "unknown", 214, "CtxRetain returned 214", "restart"),
        ({"context": {"code": 304}}, "unknown", 304, "a system call failed", "/dev/nvidia*"),
        ({"context": {"code": 803}}, "mismatch", 803, "different versions", "one libcuda"),
        ({"context": {}}, "unknown", None, "gave no result", "install freewheel again"),
    ],
)
def test_devices_that_waiting_does_not_free(
    more: dict[str, Any], status: str, code: int | None, words: str, step: str
) -> None:
    seen = state(found(device(**more)))
    assert (seen.status, seen.fallback, seen.code) == (status, Fallback.FAIL, code)
    assert words in seen.reason
    assert step in seen.next_step
    assert seen.usable == ()
    assert state(found(device(0, **more), device(1))).is_ready()
    one_is_busy = state(found(device(0, **more), device(1, free_memory=0)))
    assert (one_is_busy.status, one_is_busy.code) == (Status.BUSY, None)
    assert words in one_is_busy.reason


@pytest.mark.parametrize(
    ("code", "status", "fallback"),
    [(999, "unknown", "fail"), (46, "busy", "wait"), (101, "no_device", "use_cpu")],
)
def test_a_device_that_is_not_given(code: int, status: str, fallback: str) -> None:
    """Nothing more is known of it, least of all that no device code fits it."""
    seen = state(found({"ordinal": 0, "get": {"code": code}}))
    assert (seen.status, seen.fallback, seen.code) == (status, fallback, code)
    assert seen.reason.startswith(f"device 0: cuDeviceGet returned {code}")
    assert state(found({"ordinal": 0, "get": {"code": code}}, device(1))).is_ready()


@pytest.mark.parametrize(
    "more", [{"compute_mode": 3, "processes": 0}, {"free_memory": 1 << 33}, {"compute_mode": 0}]
)
def test_devices_that_are_free(more: dict[str, Any]) -> None:
    assert state(found(device(**more))).is_ready()


def test_a_mig_instance_is_named_as_one() -> None:
    seen = state(found(device(mig=True)))
    assert seen.devices[0].uuid == "MIG-00000000-0000-0000-0000-000000000000"
    assert seen.devices[0].mig


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"initialised": None},
        {"initialised": {"code": "x"}},
        {"initialised": OK, "counted": OK, "devices": None},
        {"initialised": OK, "counted": OK, "devices": [{}]},
    ],
)
def test_an_answer_with_holes_is_judged_all_the_same(data: dict[str, Any]) -> None:
    assert not state(Answer(how=Asked.PROGRAM, data={"library": None, **data})).is_ready()


def test_notes() -> None:
    seen = state(found(device()), seen=files(nodes=("nvidia0", "nvidiactl")), visible="0,x")
    assert any("nvidia-uvm is missing" in note for note in seen.notes)
    assert any("first invalid entry" in note for note in seen.notes)


def test_release_names() -> None:
    assert [release_name(number) for number in (11080, 12010, 13000)] == ["11.8", "12.1", "13.0"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["code", "name", "text", "major", "minor", "uuid", "mig", "ordinal"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
KEYS = [
    "not_loaded",
    "missing",
    "library",
    "driver_version",
    "initialised",
    "counted",
    "count",
    "devices",
]


def mixed(sound: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """``sound`` with some of its values replaced by anything, and some left out."""
    return st.fixed_dictionaries(
        {}, optional={key: st.just(value) | json_values for key, value in sound.items()}
    )


entries = mixed(device(context=OK, compute_mode=0, processes=0, free_memory=1 << 33, mig=False))
answers = mixed(
    {
        "library": LIBRARY,
        "driver_version": 12040,
        "initialised": OK,
        "counted": OK,
        "count": 1,
        "devices": [device()],
    }
) | st.fixed_dictionaries(
    {
        "initialised": st.just(OK),
        "counted": st.just(OK),
        "driver_version": st.integers() | json_values,
        "devices": st.lists(entries | json_values, max_size=3),
    }
)


@given(
    data=answers | st.dictionaries(st.sampled_from(KEYS), json_values),
    visible=st.none() | st.text(max_size=8),
    archs=st.lists(st.sampled_from(["8.0", "9.0a", "9.0+PTX", "x", ""]), max_size=3),
)
def test_row_27_whatever_a_driver_answers_gives_one_state(
    data: dict[str, Any], visible: str | None, archs: list[str]
) -> None:
    """One status, a reason, what to do; ready only with a device that runs something."""
    wheel = replace(WHEEL, archs=tuple(archs))
    seen = state(Answer(how=Asked.PROGRAM, data=data), wheel=wheel, visible=visible)
    assert seen.status in Status
    assert seen.reason
    assert (seen.fallback is None) == seen.is_ready()
    assert bool(seen.usable) == seen.is_ready()
    assert seen.is_ready() or seen.next_step or seen.status is Status.UNKNOWN
    assert hash(seen) is not None  # frozen through and through
    for found_device in seen.devices:
        assert isinstance(found_device.ordinal, int)
        assert isinstance(found_device.total_memory, int | None)
        assert isinstance(found_device.name, str | None)


@pytest.mark.parametrize(
    ("code", "words", "step"),
    [
        (802, "the system is not ready yet", "nvidia-fabricmanager"),
        (803, "of different versions", "remove compat"),
        (804, "forward-compatibility", "remove compat"),
    ],
)
def test_b14_each_code_has_words_of_its_own(code: int, words: str, step: str) -> None:
    compat = Library("/usr/local/cuda/compat/libcuda.so.1", "550.54.14", "loader cache")
    real = Library(LIBRARY, "535.309.01", "default folder")
    shadowed = Files("535.309.01", ("nvidia0",), dxg=False, libraries=(compat, real))
    seen = state(refused(code), seen=shadowed)
    told = f"{seen.reason} {' '.join(seen.notes)}"
    assert step in seen.next_step
    assert "/usr/local/cuda/compat/libcuda.so.1 (550.54.14, loader cache)" in told
    assert f"{LIBRARY} (535.309.01, default folder)" in told
    assert f"is a forward-compatibility library, in front of {LIBRARY}" in told
    unshadowed = state(refused(code))
    assert words in unshadowed.reason


def test_b72_a_missing_uvm_device_explains_an_unknown_error() -> None:
    without = files(nodes=("nvidia0", "nvidiactl"))
    seen = state(refused(999), seen=without)
    assert seen.reason.startswith("/dev/nvidia-uvm is missing, which CUDA needs: cuInit returned")
    assert "nvidia_uvm" in seen.next_step
    works = state(found(device()), seen=without)
    assert works.is_ready()
    assert "/dev/nvidia-uvm is missing, which CUDA needs" in works.notes
    whole = files(nodes=("nvidia-uvm", "nvidia0", "nvidiactl"))
    assert "uvm" not in state(refused(999), seen=whole).reason


def test_b32_wsl_has_its_own_next_step() -> None:
    wsl = Files(None, (), dxg=False, libraries=(), wsl=True)
    seen = state(None, seen=wsl)
    assert seen.next_step.startswith("install the NVIDIA driver in Windows")
    assert seen.notes == ("this is WSL without /dev/dxg: it shows no GPU to Linux",)


NVJITLINK = Shadow("/opt/old", ("libnvJitLink.so.12", "libstdc++.so.6"))
CUDART = Shadow("/opt/older", ("libcudart.so.12",))


def test_b15_pollution_is_noted_and_decides_nothing() -> None:
    seen = judge(Seen(files=files(), answer=found(device()), wheel=WHEEL, shadows=(NVJITLINK,)))
    assert seen.is_ready()
    assert seen.reason == "1 device with code in the wheel for CUDA 12.1"
    assert seen.next_step == ""
    assert seen.notes == (
        "LD_LIBRARY_PATH puts /opt/old first for libnvJitLink.so.12, libstdc++.so.6",
    )


@pytest.mark.parametrize(
    ("answer", "status"), [(None, "cuda_unavailable"), (refused(100), "no_device")]
)
def test_b15_pollution_is_named_in_the_reason_of_what_is_not_ready(
    answer: Answer | None, status: str
) -> None:
    seen = Seen(files=NONE if answer is None else files(), answer=answer, wheel=WHEEL)
    clean, polluted = judge(seen), judge(replace(seen, shadows=(NVJITLINK, CUDART)))
    assert (polluted.status, polluted.code) == (status, clean.code)
    first = "LD_LIBRARY_PATH puts /opt/old first for libnvJitLink.so.12, libstdc++.so.6"
    second = "LD_LIBRARY_PATH puts /opt/older first for libcudart.so.12"
    assert polluted.reason == f"{clean.reason}; besides, {first}; {second}"
    mend = "take /opt/old, /opt/older out of LD_LIBRARY_PATH"
    assert polluted.next_step == f"{clean.next_step}; {mend}"
    assert polluted.notes == (*clean.notes, first, second)


@pytest.mark.parametrize(
    ("by", "place"),
    [("LD_LIBRARY_PATH", "LD_LIBRARY_PATH"), ("loader cache", "the loader cache")],
)
def test_b14_a_compat_folder_in_front_is_named_in_the_reason(by: str, place: str) -> None:
    """Whatever the code; where 804 names it already, it is not said twice."""
    compat = Library("/usr/local/cuda/compat/libcuda.so.1", "550.54.14", by)
    real = Library(LIBRARY, "550.54.14", "default folder")
    shadowed = Files(None, ("nvidia0",), dxg=False, libraries=(compat, real))
    seen = state(refused(999), seen=shadowed)
    assert seen.reason == (
        "cuInit returned 999 (X: y); besides, /usr/local/cuda/compat/libcuda.so.1 is a "
        f"forward-compatibility library, in front of {LIBRARY}"
    )
    assert seen.next_step.endswith(f"; take /usr/local/cuda/compat out of {place}")
    named = state(refused(804), seen=shadowed)
    assert "besides" not in named.reason
    assert str(compat) in named.reason
    assert "besides" not in state(found(device()), seen=shadowed).reason
