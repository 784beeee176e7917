"""Which functions for newer processors are dispatched, of libraries that gcc made and stripped."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from hypothesis import given, settings
from hypothesis import strategies as st

from wheelfab.audit.instructions import Instructions, read_instructions
from wheelfab.audit.layout import Layout, read_layout
from wheelfab.elf import mapped, read_elf
from wheelfab.wheel import verify_wheel

from .conftest import Wheelfab

Compile = Callable[..., Path]

KERNELS = """
#include <cpuid.h>
#define HIDDEN static __attribute__((noinline, noipa))
HIDDEN void slow(float *a) { for (int i = 0; i < 1024; i++) a[i] += 1; }
HIDDEN __attribute__((target("avx2"))) void fast(float *a) {
  for (int i = 0; i < 1024; i++) a[i] += 1;
}
HIDDEN int has_avx2(void) {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}
typedef void Kernel(float *);
"""
DISPATCHED = {
    "a call behind the question": "void add(float *a) { if (has_avx2()) fast(a); else slow(a); }",
    "gcc's own table of features": """
      void add(float *a) { if (__builtin_cpu_supports("avx2")) fast(a); else slow(a); }""",
    "chosen as the file is loaded": """
      static Kernel *choose(void) { return has_avx2() ? fast : slow; }
      void add(float *a) __attribute__((ifunc("choose")));""",
    "a table of kernels": """
      struct { const char *name; Kernel *kernel; } static const table[] = {
        {"slow", slow}, {"fast", fast}};
      HIDDEN Kernel *choose(void) { return table[has_avx2() != 0].kernel; }
      void add(float *a) { choose()(a); }""",
    "a pointer that is set as the file is loaded": """
      static Kernel *chosen;
      static __attribute__((constructor)) void choose(void) { chosen = has_avx2() ? fast : slow; }
      void add(float *a) { chosen(a); }""",
    "an answer that is kept": """
      static int avx2;
      static __attribute__((constructor)) void ask(void) {
        unsigned a, b, c, d;
        avx2 = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
      }
      void add(float *a) { if (avx2) fast(a); else slow(a); }""",
    "through one more function for it": """
      HIDDEN __attribute__((target("avx2"))) void twice(float *a) { fast(a); fast(a + 1024); }
      void add(float *a) { if (has_avx2()) twice(a); else slow(a); }""",
}
OPEN = {
    "called without a question": """
      int level(void) { return has_avx2(); }
      void add(float *a) { slow(a); fast(a); }""",
    "behind the question, and elsewhere": """
      void add(float *a) { if (has_avx2()) fast(a); else slow(a); }
      void other(float *a) { fast(a); }""",
    "exported": """
      __attribute__((target("avx2"))) void add(float *a) {
        for (int i = 0; i < 1024; i++) a[i] += 2;
        slow(a);
        fast(a);
      }
      int level(void) { return has_avx2(); }""",
    "in an exported table": """
      int level(void) { return has_avx2(); }
      Kernel *const methods[] = {slow, fast};""",
    "in a table that a function without a question returns": """
      static Kernel *const methods[] = {slow, fast};
      int level(void) { return has_avx2(); }
      Kernel *const *all(void) { return methods; }""",
    "in a table within a table": """
      struct { const char *name; Kernel *kernel; } static const methods[] = {
        {"slow", slow}, {"fast", fast}};
      struct { const char *name; const void *methods; } static const module = {"x", methods};
      int level(void) { return has_avx2(); }
      const void *init(void) { return &module; }""",
    "as the file is loaded": """
      static float some[1024];
      static __attribute__((constructor)) void early(void) { slow(some); fast(some); }
      int level(void) { return has_avx2(); }""",
    "handed to another library": """
      int register_kernel(Kernel *);
      int level(void) { return has_avx2(); }
      int init(void) { return register_kernel(slow) + register_kernel(fast); }""",
}


@pytest.fixture
def compiled(tmp_path: Path) -> Compile:
    """A function that makes a stripped shared library of C."""

    def make(
        source: str, *flags: str, kind: tuple[str, ...] = ("-shared", "-fPIC"), language: str = "c"
    ) -> Path:
        path = tmp_path / "x.so"
        argv = ["gcc", *kind, "-O3", "-s", "-x", language, "-", "-o", str(path), *flags]
        subprocess.run(argv, input=source, text=True, check=True, cwd=tmp_path, timeout=60)
        return path

    return make


def instructions(path: Path) -> Instructions:
    found = read_instructions(path, read_elf(path))
    assert found.problem == ""
    return found


@pytest.mark.parametrize("flags", [(), ("-Wl,-z,pack-relative-relocs",), ("-O2",)], ids=str)
@pytest.mark.parametrize("source", DISPATCHED.values(), ids=DISPATCHED)
def test_what_only_a_question_leads_to_is_dispatched(
    compiled: Compile, source: str, flags: tuple[str, ...]
) -> None:
    found = instructions(compiled(KERNELS + source, *flags))
    assert (found.newest.level, found.open.level, found.asks) == (3, 1, True)


@pytest.mark.parametrize("flags", [(), ("-Wl,-z,pack-relative-relocs",), ("-O0",)], ids=str)
@pytest.mark.parametrize("source", OPEN.values(), ids=OPEN)
def test_what_another_way_leads_to_is_open(
    compiled: Compile, source: str, flags: tuple[str, ...]
) -> None:
    found = instructions(compiled(KERNELS + source, *flags))
    assert (found.newest.level, found.open.level, found.asks) == (3, 3, True)
    assert found.open.count == found.newest.count


def test_a_virtual_function_is_open(compiled: Compile) -> None:
    source = (
        KERNELS.replace("typedef", "using")
        + """
      struct Base { virtual void run(float *a); virtual ~Base() {} };
      void Base::run(float *a) { slow(a); }
      struct Fast : Base {
        __attribute__((target("avx2"))) void run(float *a) override { fast(a); }
      };
      Base *make() { return new Fast; }
      int level() { return has_avx2(); }"""
    )
    source = source.replace("using void Kernel(float *);", "")
    assert instructions(compiled(source, "-lstdc++", language="c++")).open.level == 3


def test_a_file_without_frames_has_no_functions_that_are_told_apart(compiled: Compile) -> None:
    source = KERNELS + DISPATCHED["a table of kernels"]
    bare = ("-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-nostdlib", "-nostartfiles")
    assert instructions(compiled(source, *bare)).open.level == 3


def test_a_program_for_one_address_is_open(compiled: Compile) -> None:
    source = KERNELS + DISPATCHED["a table of kernels"] + "int main(void) { return 0; }"
    for kind, level in ((("-fno-pic", "-no-pie"), 3), (("-fPIE", "-pie"), 1)):
        assert instructions(compiled(source, "-rdynamic", kind=kind)).open.level == level


def layout_of(path: Path) -> Layout:
    with mapped(path) as data:
        return read_layout(data, read_elf(path))


@pytest.mark.parametrize("name", ["libstdc++.so.6", "libm.so.6", "x.so"])
def test_functions_and_slots_are_those_of_pyelftools(compiled: Compile, name: str) -> None:
    path = compiled(KERNELS + OPEN["exported"])
    if name != "x.so":
        argv = ["gcc", f"-print-file-name={name}"]
        path = Path(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip())
    found = layout_of(path)
    with path.open("rb") as file:
        elf = ELFFile(file)
        frames = {
            (one["initial_location"], one["initial_location"] + one["address_range"])
            for one in elf.get_dwarf_info().EH_CFI_entries()
            if isinstance(one, FDE)
        }
        relative = {
            (one["r_offset"], one["r_addend"])
            for section in elf.iter_sections()
            if isinstance(section, RelocationSection)
            for one in section.iter_relocations()
            if one["r_info_type"] == 8
        }
    text = read_elf(path).section(".text")
    assert text is not None
    inside = {one for one in frames if text.address <= one[0] < text.address + text.size}
    assert len(inside) > 3
    assert inside <= {(start, end) for start, end, _ in found.functions}
    assert relative <= set(found.slots)


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_damage_is_a_problem_and_never_an_exception(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.so"
    if not path.exists():
        argv = ["gcc", "-shared", "-fPIC", "-O1", "-s", "-x", "c", "-", "-o", str(path)]
        source = KERNELS + DISPATCHED["a table of kernels"]
        subprocess.run(argv, input=source, text=True, check=True, timeout=60)
    content = bytearray(path.read_bytes())
    elf = read_elf(path)
    wanted = [one for one in elf.sections if one.stored and one.name != ".text"]
    section = data.draw(st.sampled_from(wanted))
    for _ in range(data.draw(st.integers(1, 8))):
        at = section.offset + data.draw(st.integers(0, max(0, section.size - 1)))
        content[at] = data.draw(st.integers(0, 255))
    other = path.with_name("other.so")
    other.write_bytes(content)
    read_instructions(other, elf)


def test_our_own_kernels_are_dispatched(
    wheelfab: Wheelfab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = next((wheelfab.root / "dist").glob("*cu121.torch2.10*.whl"))
    verify_wheel(wheel)
    subprocess.run(["unzip", "-q", str(wheel), "-d", str(tmp_path)], check=True)
    path = tmp_path / "freewheel/_kernels.so"
    found = instructions(path)
    assert (found.newest.level, found.open.level) == (4, 1)
    monkeypatch.setattr("wheelfab.audit.dispatch._Graph.asking", lambda _: set())
    assert instructions(path).open == found.newest  # they are all reached, by the questions alone
