"""The doctor's verdicts and tables, from records; only nvidia-smi's stand-ins are started."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

import freewheel
from freewheel.device import DeviceState, Status
from freewheel.doctor import report as reports
from freewheel.doctor.imports import Imported, _compared, newest_glibcxx
from freewheel.doctor.render import render
from freewheel.doctor.report import Report, Torch
from freewheel.doctor.smi import ask_smi

TORCH = Torch("2.13.0+cu121", ">=2.10", "2.13.0", "12.1")
READY = DeviceState(Status.READY, "1 device")
CRASHED = DeviceState(Status.DRIVER_CRASHED, "it died", "mend it")
NONE = DeviceState(Status.CUDA_UNAVAILABLE, "no driver", "install it")


@pytest.mark.parametrize(
    ("state", "torch", "code", "words"),
    [
        (READY, TORCH, 0, "ready: 1 device"),
        (READY, replace(TORCH, cuda=None), 0, "ready: 1 device"),
        (READY, replace(TORCH, cuda=""), 1, "usable on the CPU: torch 2.13.0+cu121 is a CPU build"),
        (CRASHED, TORCH, 2, "CUDA is broken, the CPU works: it died"),
        (NONE, replace(TORCH, cuda=""), 1, "usable on the CPU: no driver"),
    ],
)
def test_b49_verdicts(state: DeviceState, torch: Torch, code: int, words: str) -> None:
    exit_code, verdict, _ = reports._verdict(state, torch, "", "")
    assert exit_code == code
    assert verdict.startswith(words)


@pytest.mark.parametrize(
    ("torch", "imported", "flaw", "mend"),
    [
        (TORCH, None, "", ""),
        (TORCH, Imported(passed=True), "", ""),
        (TORCH, Imported(None, "import torch did not end within 9 s"), "", ""),
        (replace(TORCH, found=None), None, "but torch is not installed", 'pip install "torch>=2.1'),
        (replace(TORCH, found="2.4.1"), None, "but torch 2.4.1 is installed", "pip install"),
        (
            TORCH,
            Imported(passed=False, reason="OSError: x"),
            "does not import: OSError: x",
            "again",
        ),
        (
            TORCH,
            Imported(passed=False, reason="OSError: x", drop=("/opt/old",)),
            "does not import",
            "take /opt/old out of LD_LIBRARY_PATH",
        ),
        (TORCH, Imported(passed=True, refused="undefined symbol"), "undefined symbol", "install"),
    ],
)
def test_flaws(torch: Torch, imported: Imported | None, flaw: str, mend: str) -> None:
    found, step = reports._flaw(torch, imported)
    assert flaw in found
    assert mend in step
    assert bool(found) == bool(flaw)


def test_b15_what_a_search_path_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "libnvJitLink.so.12"
    polluted = Imported(passed=True, libraries={name: (f"/opt/old/{name}",), "libc10.so": ("/t",)})
    bare = Imported(passed=True, libraries={name: (f"/site/nvidia/{name}",), "libc10.so": ("/t",)})
    found = _compared(polluted, bare, "LD_LIBRARY_PATH")
    assert found.elsewhere == (
        f"{name} is /opt/old/{name}; without LD_LIBRARY_PATH it is /site/nvidia/{name}",
    )
    assert found.drop == ("/opt/old",)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/old:/opt/more")
    failed = _compared(Imported(passed=False, reason="x"), bare, "LD_LIBRARY_PATH")
    assert failed.elsewhere == ("without LD_LIBRARY_PATH the import passes",)
    assert failed.drop == ("/opt/old", "/opt/more")


def test_b45_the_newest_version_of_a_libstdcxx(tmp_path: Path) -> None:
    library = tmp_path / "libstdc++.so.6"
    library.write_bytes(b"\0GLIBCXX_3.4\0GLIBCXX_3.4.9\0GLIBCXX_3.4.30\0GLIBCXX_DEBUG\0")
    assert newest_glibcxx(str(library)) == "GLIBCXX_3.4.30"
    library.write_bytes(b"")
    assert newest_glibcxx(str(library)) is None
    assert newest_glibcxx(str(tmp_path / "none")) is None


def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("script", "devices", "words"),
    [
        ("echo 'No devices were found'", 0, "No devices were found (exit 0)"),
        ("printf 'GPU 0: A (UUID: x)\\nGPU 1: A (UUID: y)\\n'", 2, "GPU 1: A (UUID: y) (exit 0)"),
        ("exit 9", 0, "(exit 9)"),
        ("kill -SEGV $$", 0, "(exit -11)"),
        ("printf '\\377\\376'", 0, "(exit 0)"),
        ("sleep 60 & echo left behind", 0, "left behind (exit 0)"),
        ("echo first; sleep 60", None, "first (killed: no end within 1 s)"),
        ("exec >&-; sleep 60", None, "(killed: no end within 1 s)"),
        ("yes", None, "(killed: it says too much)"),
    ],
)
def test_row_28_nvidia_smi_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, devices: int | None, words: str
) -> None:
    """In time, in what is read, and with what it starts."""
    smi(tmp_path, monkeypatch, script)
    begun = time.monotonic()
    said = ask_smi(1.0)
    assert time.monotonic() - begun < 5.0
    assert said is not None
    assert said.devices == devices
    assert said.text.endswith(words)
    assert len(said.text) < 2100


def test_row_28_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_smi(1.0) is None
    (tmp_path / "nvidia-smi").write_bytes(b"\x7fELF")
    (tmp_path / "nvidia-smi").chmod(0o755)
    said = ask_smi(1.0)
    assert said is not None
    assert said.text.startswith("cannot be started")


def example() -> Report:
    known = freewheel.capabilities(NONE)
    return Report(
        version="0.1.0",
        cell=None,
        wheel=known.wheel,
        torch=TORCH,
        fits=(reports.Fit("torch", ">=2.10", "2.4.1", fits=False),),
        imported=Imported(passed=True, stdcxx="/l/libstdc++.so.6", first_user="/t/_C.so"),
        cpu=known.cpu,
        parts=known.parts,
        operations=known.operations,
        state=NONE,
        nvidia_smi=None,
        notes=("LD_LIBRARY_PATH puts /x first for libcudart.so.12",),
        exit_code=1,
        verdict="usable on the CPU",
        next_step="",
    )


def test_the_report_in_words_and_as_json() -> None:
    words = render(example(), as_json=False)
    assert "torch" in words.splitlines()[3]
    assert "built for >=2.10; here 2.4.1: DOES NOT FIT" in words
    assert "/l/libstdc++.so.6 (version unknown), brought by /t/_C.so" in words
    assert "_C" in words  # which cannot be used in a source tree, with its reason
    assert "next step" not in words  # where there is none
    facts = json.loads(render(example(), as_json=True))
    assert facts["state"]["fallback"] == "use_cpu"
    assert facts["notes"] == ["LD_LIBRARY_PATH puts /x first for libcudart.so.12"]
    assert {part["name"] for part in facts["parts"]} >= {"_C", "_kernels.so", "_torch.so", "_probe"}


def test_the_table_of_built_for_and_found() -> None:
    record = {"torch": {"abi": "classic", "cxx11_abi": False}}
    known = freewheel.capabilities(NONE)
    known = replace(known, wheel=replace(known.wheel, cuda="12.1", archs=("8.0",)))
    table = {
        fit.what: fit
        for fit in reports._fits(record, known, TORCH, Imported(passed=True, cxx11_abi=True))
    }
    assert table["torch"].fits
    assert (table["CUDA"].built_for, table["CUDA"].found) == ("12.1", "torch is for CUDA 12.1")
    assert table["C++11 ABI"].fits is False
    assert table["Python"].fits
    cpu = list(reports._fits(record, known, replace(TORCH, cuda=""), None))
    assert cpu[1].found == "torch is a CPU build, for CPU tensors only"
    assert cpu[1].fits is None
