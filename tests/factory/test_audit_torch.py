"""Which torch libraries load on, by the atlas of real releases, against what METADATA requires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.factory.auditmaker import Case, audited, finds, keeps, library
from tests.factory.wheelmaker import build_record
from wheelfab.atlas import Verdict, read_atlas
from wheelfab.atlas.wheels import ask
from wheelfab.audit import Severity
from wheelfab.audit.torchside import cxx11_abi

# Of torch: until 2.6 with the old string, since 2.7 with the new one; both are in c10.
OLD = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
NEW = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
STABLE = "torch_parallel_for"  # of the C shim, since 2.10
GONE = "_ZN3c1018noSuchFunctionHereEv"
NEEDED = ("libtorch_cpu.so", "libc10.so")


def asking(*undefined: str, torch: str | None = None, **switches: Any) -> dict[str, Any]:
    """Switches for one library that wants these symbols, in a wheel that requires ``torch``."""
    requires = (f"torch{torch}",) if torch is not None else ()
    data = library(undefined=undefined, needed=NEEDED)
    files = {"freewheel/_torch.so": data}
    return {"files": files, "requires_dist": requires, "version": "0.1.0"} | switches


def registering(strings: bytes) -> dict[str, Any]:
    """Switches for one library that registers operators and has these strings."""
    data = library(
        undefined=("aoti_torch_library_init_def",),
        needed=NEEDED,
        sections={".rodata": b"\0" + strings},
    )
    return asking(torch=">=2.10", files={"freewheel/_torch.so": data})


def record(*, flag: bool) -> dict[str, Any]:
    """A build record that names the string ABI."""
    return {"build": build_record("cpu-torch2.4", "0.1.0", {"torch": {"cxx11_abi": flag}})}


CASES = [
    Case(
        rule="torch-string-abi",
        name="B03: another than the record's",
        bad=asking(NEW, torch=">=2.7", **record(flag=False)),
        found="_GLIBCXX_USE_CXX11_ABI=1",
        subject="freewheel/_torch.so",
        good=asking(OLD, torch="<2.7", **record(flag=False)),
    ),
    Case(
        rule="torch-string-abi",
        name="B03: two in one wheel",
        bad=asking(OLD, torch="<2.7")
        | {
            "files": {
                "freewheel/a.so": library(undefined=(OLD,), needed=NEEDED),
                "freewheel/b.so": library(undefined=(NEW,), needed=NEEDED),
            }
        },
        found="freewheel/a.so: 0, freewheel/b.so: 1",
        good=asking(NEW, torch=">=2.7"),
    ),
    Case(
        rule="torch-symbols",
        name="B08: built against another torch than it says",
        bad=asking(NEW, torch=">=2.4,<2.5"),
        found="fails on 2.4.1+cu121: freewheel/_torch.so: 1 of 1 symbols are missing"
        " (it has the C++11 string ABI, this release the old one) (c10::detail::torchCheckFail(",
        good=asking(OLD, torch=">=2.4,<2.5"),
    ),
    Case(
        rule="torch-symbols",
        name="B01: on no release at all",
        bad=asking(OLD, GONE, torch=">=2.4"),
        found="c10::noSuchFunctionHere()",
        good=asking(STABLE, torch=">=2.10"),
    ),
    Case(
        rule="torch-requirement-missing",
        name="B12: none",
        bad=asking(STABLE),
        found="no requirement of torch, for 1 libraries; it loads on 2.10.0 to",
        good=asking(STABLE, torch=">=2.10"),
    ),
    Case(
        rule="torch-requirement-loose",
        name="B01: no upper bound",
        bad=asking(OLD, torch=">=2.4"),
        found="torch>=2.4 allows 2.7.0 to",
        good=asking(OLD, torch=">=2.4,<2.7"),
    ),
    Case(
        rule="torch-requirement-loose",
        name="B01: too low for the stable ABI",
        bad=asking(STABLE, torch=">=2.9"),
        found="torch>=2.9 allows 2.9.0 and 2.9.1: fails on 2.9.0",
        good=asking(STABLE, torch=">=2.10"),
    ),
    Case(
        rule="torch-requirement-loose",
        name="B12: over two lines, of which one is for another system",
        bad=asking(OLD) | {"requires_dist": ("torch<2.7; sys_platform == 'darwin'", "torch>=2.4")},
        found="torch>=2.4 allows 2.7.0 to",
        good=asking(OLD)
        | {"requires_dist": ("torch<2; sys_platform == 'darwin'", "torch>=2.4", "torch<2.7")},
    ),
    Case(
        rule="torch-requirement-tight",
        name="B12: exact in the wrong place",
        bad=asking(OLD, torch="==2.5.0"),
        found="loads by its symbols on 2.1.0 to",
        severity=Severity.WARNING,
        good=asking(STABLE, torch=">=2.10.0"),
    ),
    Case(
        rule="torch-requirement-tight",
        name="B12: a later patch of the series",
        bad=asking(STABLE, torch=">=2.9,!=2.9.1,!=2.12.1"),
        found="loads by its symbols on 2.12.1 too",
        severity=Severity.NOTE,
        good=asking(STABLE, torch=">=2.10"),
    ),
    Case(
        rule="torch-operators",
        name="B20: a group that the build left out",
        bad=registering(b"mine\0add(Tensor x) -> Tensor\0fused_rms_norm\0"),
        found="nothing names mine::sub, other in freewheel/_torch.so",
        good=registering(b"mine\0add.out(Tensor x) -> Tensor\0other\0sub\0fused_rms_norm\0"),
        policy={"torch": {"operators": ["mine::add", "mine::sub", "other", "mine::rms_norm"]}},
    ),
    Case(
        rule="torch-operators",
        name="B20: the schema of another operator is none",
        bad=registering(b"mine\0fused_add(Tensor x) -> Tensor\0"),
        found="nothing names mine::add",
        good=registering(b"mine\0add(Tensor x) -> Tensor\0"),
        policy={"torch": {"operators": ["mine::add"]}},
    ),
    Case(
        rule="torch-operators",
        name="no library that registers any",
        bad=asking(STABLE, torch=">=2.10"),
        found="nothing names mine: no library registers operators",
        good=registering(b"mine\0"),
        policy={"torch": {"operators": ["mine"]}},
    ),
    Case(
        rule="torch-requirement-tight",
        name="an old upper bound",
        bad=asking(STABLE, torch=">=2.10,<2.13"),
        found="loads by its symbols on 2.13.0",
        severity=Severity.NOTE,
        good=asking(STABLE, torch=">=2.10"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_finds_what_it_is_for(case: Case, tmp_path: Path) -> None:
    finds(case, tmp_path)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_is_silent_about_a_wheel_that_keeps_it(case: Case, tmp_path: Path) -> None:
    keeps(case, tmp_path)


def test_a_range_that_begins_at_a_patch_is_not_tight(tmp_path: Path) -> None:
    found = audited(tmp_path, **asking(OLD, torch=">=2.1.1,<2.7"))
    assert not [each for each in found.findings if each.rule == "torch-requirement-tight"]


def test_libraries_of_which_some_load_are_not_judged_as_compat_does_not(tmp_path: Path) -> None:
    files = {
        "freewheel/a.so": library(undefined=(OLD,), needed=NEEDED),
        "freewheel/b.so": library(undefined=(NEW,), needed=NEEDED),
    }
    found = audited(tmp_path, **asking(torch=">=2.4,<2.5", files=files))
    told = "its libraries disagree: freewheel/b.so: 1 of 1 symbols are missing"
    (finding,) = (each for each in found.findings if each.rule.startswith(("torch-sy", "torch-re")))
    assert (finding.rule, finding.severity) == ("torch-requirement-loose", Severity.WARNING)
    assert finding.found.startswith(f"torch<2.5,>=2.4 allows 2.4.0 and 2.4.1, where {told}")
    (reason,) = (each.reason for each in found.unchecked if each.rule == "torch-symbols")
    assert reason.startswith(f"2.4.1+cu121: {told}")
    (path,) = tmp_path.glob("*.whl")
    answers = {str(one.release.version): one.verdict for one in ask(read_atlas(), path).answers}
    assert found.facts is not None
    assert found.facts.torch is not None
    for verdict, releases in (
        (Verdict.LOADS, found.facts.torch.loads),
        (Verdict.FAILS, found.facts.torch.fails),
        (Verdict.UNKNOWN, found.facts.torch.unknown),
    ):
        assert releases == tuple(one for one, other in answers.items() if other is verdict)
    assert "2.4.1" in found.facts.torch.unknown


def test_releases_that_the_atlas_has_not_are_not_judged(tmp_path: Path) -> None:
    found = audited(tmp_path, **asking(STABLE, torch=">=99"))
    reasons = [each.reason for each in found.unchecked if each.rule == "torch-symbols"]
    assert reasons == ["the atlas has no release that torch>=99 allows"]


def test_torch_itself_is_not_asked(tmp_path: Path) -> None:
    found = audited(tmp_path, **asking(GONE), name="torch")
    assert not [each for each in found.findings if each.rule.startswith("torch")]


def test_the_json_says_on_which_releases_it_loads(tmp_path: Path) -> None:
    facts = audited(tmp_path, **asking(OLD, torch="<2.7")).facts
    assert facts is not None
    assert facts.torch is not None
    assert facts.torch.binding == {"freewheel/_torch.so": "classic"}
    assert facts.torch.cxx11_abi == {"freewheel/_torch.so": False}
    assert (facts.torch.loads[0], facts.torch.loads[-1]) == ("2.1.0", "2.6.0")
    assert "2.7.0" in facts.torch.fails


@pytest.mark.parametrize(
    ("names", "flag"),
    [
        ([OLD], False),
        ([NEW], True),
        ([STABLE], None),
        (["_ZN3c1012processStateEi"], None),  # an identifier with the letters
        (["_ZN3c1010numSs_or_xEv"], None),
        (["_ZN3c105ErrorC2ENS_14SourceLocationESs"], False),
        (["_ZN2at4nameB5cxx11Ev"], True),
    ],
)
def test_the_string_abi_is_read_from_the_names(names: list[str], flag: bool | None) -> None:
    assert cxx11_abi(names) is flag
