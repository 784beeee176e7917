"""The audit on libraries that gcc made: what its rules say is what the tools of the field say."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.factory.wheelmaker import make_wheel
from wheelfab.audit import Audit, Policy, audit, loading
from wheelfab.audit.engine import AuditOptions
from wheelfab.audit.manylinux import kept
from wheelfab.elf import read_elf

IMAGES = Path(__file__).parents[1] / "factory/data/scale.fatbin"
LIBRARY = "freewheel/_x.so"
MODULE = "freewheel/_x.abi3.so"
EMBED = """
__asm__(".section .nv_fatbin,\\"a\\",@progbits\\n.balign 8\\n.incbin \\"{path}\\"\\n.previous\\n");
int one(void) {{ return 1; }}
"""
ASKS = """
#include <dlfcn.h>
__attribute__((constructor)) static void early(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : 0;
  if (init) init(0);
}
"""

# aborts where it can write
WRITES = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
__attribute__((constructor)) static void early(void) {
  const char *folder = "FOLDER";
  char path[4096];
  if (!*folder) folder = getenv("HOME");
  if (mount("none", "/", 0, MS_REMOUNT | MS_BIND, 0) == 0) exit(3);
  snprintf(path, sizeof path, "%s/outside", folder);
  if (open(path, O_CREAT | O_WRONLY, 0600) >= 0) abort();
}
"""

Build = Callable[..., Path]


def why_not_fenced() -> str:
    """Why libraries cannot be loaded in a name space of their own here; empty where they can."""
    with TemporaryDirectory() as folder:
        return loading._without_fence((*loading._FENCE, folder))


needs_fence = pytest.mark.skipif(bool(why_not_fenced()), reason=why_not_fenced())


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """A function that compiles C to a shared library."""
    compiler = shutil.which("gcc")
    assert compiler is not None, "gcc is needed"

    def compile_one(source: str, *flags: str, name: str = "x.so", language: str = "c") -> Path:
        path, file = tmp_path / name, tmp_path / f"{name}.c"
        file.write_text(source)
        argv = [compiler, "-shared", "-fPIC", "-O1", "-o", str(path), "-x", language, str(file)]
        argv += flags
        subprocess.run(argv, check=True, cwd=tmp_path, timeout=60)
        return path

    return compile_one


def audited(folder: Path, library: Path, *, deep: bool = False, name: str = LIBRARY) -> Audit:
    """The audit of a wheel with that library alone."""
    wheel = make_wheel(
        folder / "wheel", version="0.1.0", requires_dist=(), files={name: library.read_bytes()}
    )
    return audit(wheel, AuditOptions(policy=Policy(), deep=deep))


def rules(found: Audit) -> dict[str, str]:
    """Rule to what it found, of errors and warnings."""
    return {one.rule: one.found for one in found.findings if one.severity != "note"}


def test_a_plain_library_has_no_finding(build: Build, tmp_path: Path) -> None:
    assert rules(audited(tmp_path, build("int one(void) { return 1; }", "-s"))) == {}


def test_b41_an_executable_stack(build: Build, tmp_path: Path) -> None:
    path = build("int one(void) { return 1; }", "-s", "-z", "execstack")
    shown = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True)
    assert "RWE" in shown.stdout
    assert rules(audited(tmp_path, path)) == {"elf-executable-stack": "an executable stack"}


def test_text_relocations_and_no_relro(build: Build, tmp_path: Path) -> None:
    source = 'extern int far; __asm__(".text\\n.quad far\\n"); int far = 1;'
    path = build(source, "-s", "-z", "notext", "-z", "norelro")
    shown = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True)
    assert "TEXTREL" in shown.stdout
    found = rules(audited(tmp_path, path))
    assert found == {"elf-text-relocations": "relocations in its code", "elf-relro": "RELRO: none"}


def test_b05_b33_the_driver_and_a_stubs_folder(build: Build, tmp_path: Path) -> None:
    build("int cuInit(unsigned x) { return 100; }", "-Wl,-soname,libcuda.so.1", name="libcuda.so")
    flags = (f"-L{tmp_path}", "-lcuda", "-Wl,-rpath,/usr/local/cuda/lib64/stubs")
    path = build("int cuInit(unsigned); int one(void) { return cuInit(0); }", "-s", *flags)
    found = rules(audited(tmp_path, path))
    assert found == {
        "needs-driver": "needs libcuda.so.1, for 1 symbols",
        "elf-run-path": "/usr/local/cuda/lib64/stubs: stubs of the driver",
    }


def test_real_images_are_found_in_a_real_library(build: Build, tmp_path: Path) -> None:
    found = audited(tmp_path, build(EMBED.format(path=IMAGES), "-s"))
    assert rules(found) == {}
    assert found.facts is not None
    (library,) = found.facts.libraries
    assert library.device is not None
    assert library.device.targets == ("8.0", "9.0a", "9.0a+PTX")
    assert [(one.name, one.registers) for one in library.device.kernels] == [
        ("scale", (8, 8, None))
    ]


def test_b62_the_builders_folder_is_found(build: Build, tmp_path: Path) -> None:
    path = build(f'const char *where(void) {{ return "{tmp_path}/csrc/ops.cu"; }}', "-s")
    found = rules(audited(tmp_path / "other", path))
    assert set(found) == {"elf-builder-paths"}


@pytest.mark.parametrize(
    "source",
    [
        "int one(void) { return 1; }",
        "#include <math.h>\ndouble one(double x) { return pow(x, x); }",
        "#include <pthread.h>\nint one(pthread_t *t) { return pthread_create(t, 0, 0, 0); }",
        "#include <dlfcn.h>\nvoid *one(void) { return dlopen(0, 2); }",
    ],
    ids=["nothing", "libm", "threads", "dlopen"],
)
def test_b17_the_level_is_auditwheels(build: Build, tmp_path: Path, source: str) -> None:
    path = build(source, "-s", "-lm", name="x.abi3.so")
    undefined = build(
        "void *PyModule_Create2(void); void *PyInit__x(void) { return PyModule_Create2(); }",
        "-s",
        name="init.so",
    )
    wheel = make_wheel(
        tmp_path / "wheel",
        tag="cp310-abi3-linux_x86_64",
        files={MODULE: path.read_bytes(), "freewheel/_y.abi3.so": undefined.read_bytes()},
    )
    argv = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    level = kept([read_elf(path), read_elf(undefined)], "x86_64")
    assert level is not None
    assert level.name == json.loads(shown.stdout)["sym_tag"]


@needs_fence
def test_b13_b47_a_constructor_that_calls_the_driver(build: Build, tmp_path: Path) -> None:
    found = audited(tmp_path, build(ASKS, "-s"), deep=True)
    loads = [one.found for one in found.findings if one.rule == "imports-load"]
    assert loads == ["loading calls cuInit 1 times"]


@needs_fence
def test_a_constructor_that_aborts_ends_its_own_process_alone(build: Build, tmp_path: Path) -> None:
    source = "#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }"
    found = audited(tmp_path, build(source, "-s"), deep=True)
    loads = [one.found for one in found.findings if one.rule == "imports-load"]
    assert [text.startswith("loading ends the process: ") for text in loads] == [True]


@needs_fence
@pytest.mark.parametrize("place", ["outside", "HOME"])
def test_a_library_writes_to_no_file_but_in_the_folder_it_is_loaded_in(
    build: Build, tmp_path: Path, place: str
) -> None:
    """Nor can it undo that: it has no right to change what is mounted."""
    outside = tmp_path / "outside"
    source = WRITES.replace("FOLDER", str(tmp_path) if place == "outside" else "")
    found = audited(tmp_path, build(source, "-s"), deep=True)
    loads = [one.found for one in found.findings if one.rule == "imports-load"]
    assert loads == ([] if place == "outside" else ["loading ends the process: SIGABRT"])
    assert [one.reason for one in found.unchecked if one.rule == "imports-load"] == []
    assert not outside.exists()


@needs_fence
def test_a_library_that_loads_is_silent_and_one_that_does_not_is_unchecked(
    build: Build, tmp_path: Path
) -> None:
    plain = audited(tmp_path / "a", build("int one(void) { return 1; }", "-s"), deep=True)
    assert "imports-load" not in {one.rule for one in plain.findings}
    assert "imports-load" not in {one.rule for one in plain.unchecked}
    path = build("int nosuch(void); int one(void) { return nosuch(); }", "-s")
    broken = audited(tmp_path / "b", path, deep=True)
    reasons = [one.reason for one in broken.unchecked if one.rule == "imports-load"]
    assert ["undefined symbol: nosuch" in reason for reason in reasons] == [True]


def test_namespaces_are_read_from_what_a_compiler_leaves(build: Build, tmp_path: Path) -> None:
    """The shape of what TORCH_LIBRARY(mine, m) and TORCH_LIBRARY_FRAGMENT(other, m) expand to."""
    source = """
    namespace torch { struct Library { Library(int); }; }
    static void TORCH_LIBRARY_init_mine(torch::Library &) {}
    static void TORCH_LIBRARY_FRAGMENT_init_other_0(torch::Library &) {}
    typedef void (*Init)(torch::Library &);
    Init volatile inits[2] = {TORCH_LIBRARY_init_mine, TORCH_LIBRARY_FRAGMENT_init_other_0};
    """
    first = build(source, name="a.so", language="c++")
    wheel = make_wheel(
        tmp_path / "wheel",
        version="0.1.0",
        requires_dist=(),
        files={"freewheel/a.so": first.read_bytes(), "freewheel/b.so": first.read_bytes()},
    )
    found = [one.found for one in audit(wheel).findings if one.rule == "elf-operator-namespace"]
    assert found == ["mine is defined by freewheel/a.so and freewheel/b.so"]


ADDS = """
void add(float *restrict a, const float *restrict b) {
  for (int i = 0; i < 1024; i++) a[i] += b[i];
}
"""
DISPATCHED = (
    """
int fits(void) { return __builtin_cpu_supports("avx2"); }
"""
    + ADDS
)


@pytest.mark.parametrize(
    ("flags", "level"),
    [((), None), (("-mavx2",), 3), (("-mavx512f", "-mprefer-vector-width=512"), 4)],
)
def test_code_for_newer_processors_is_found(
    build: Build, tmp_path: Path, flags: tuple[str, ...], level: int | None
) -> None:
    found = audited(tmp_path, build(ADDS, "-s", "-O3", *flags), deep=True)
    texts = [one.found for one in found.findings if one.rule == "elf-cpu-level"]
    assert [f"of x86-64-v{level}, such as 0x" in text for text in texts] == [True] * (
        level is not None
    )


def test_where_the_processor_is_asked_nothing_is_judged(build: Build, tmp_path: Path) -> None:
    found = audited(tmp_path, build(DISPATCHED, "-s", "-O3", "-mavx2"), deep=True)
    assert not [one for one in found.findings if one.rule == "elf-cpu-level"]
    reasons = [one.reason for one in found.unchecked if one.rule == "elf-cpu-level"]
    assert ["asks what the processor is" in reason for reason in reasons] == [True]
