"""CUDA C++ to cubins and PTX by nvcc, with the machine's g++ as its host compiler."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from packaging.version import Version

from wheelfab import facts
from wheelfab.errors import BuildError, InfrastructureError, ToolchainError
from wheelfab.run import run, tool_environment
from wheelfab.toolchain.compiler import Unit
from wheelfab.toolchain.host import HostCompiler, host_compiler

_RELEASE = re.compile(r"\brelease (\d+\.\d+), V([\d.]+)")
_REAL_ARCH = re.compile(r"\bsm_(\d+[af]?)\b")
_LONGEST_LOG = 4000  # characters
_TIMEOUT = 1800.0


class Nvcc:
    """One unpacked nvcc, run by its path; which nvcc the PATH has does not matter.

    Same source and headers give the same bytes in every folder, unless the source has static or
    anonymous-namespace device symbols, whose names hash its absolute path.
    """

    name = "nvcc"

    def __init__(self, program: Path) -> None:
        self.path = program

    def version(self) -> Version:
        """The CUDA release that the program says it is of."""
        said = _RELEASE.search(self._ask("--version"))
        if said is None:
            raise ToolchainError("nvcc does not say its version", where=str(self.path))
        return Version(said[1])

    def archs(self) -> frozenset[str]:
        """The arch numbers, with and without suffix, that the program compiles for."""
        return frozenset(_REAL_ARCH.findall(self._ask("--list-gpu-code")))

    def compile(self, unit: Unit, target: str) -> tuple[bytes, str]:
        """A cubin for ``sm_XX`` or PTX for ``compute_XX``, and the warnings."""
        host = self._host()
        with tempfile.TemporaryDirectory(prefix="wheelfab-nvcc-") as name:
            out = Path(name) / f"{unit.source.stem}.out"
            argv = (
                *(str(self.path), "-cubin" if target.startswith("sm_") else "-ptx"),
                *(f"-arch={target}", f"-std={unit.standard}", "-ccbin", str(host.path)),
                # Fixed names for what it writes on the way: they end up in the symbol table.
                *("--objdir-as-tempdir", "-o", str(out)),
                *(f"-I{folder}" for folder in unit.folders),
                unit.source.name,
            )
            folder = unit.source.absolute().parent
            done = run(argv, env=tool_environment(), cwd=folder, timeout=_TIMEOUT)
            said = (done.stdout + done.stderr).strip()
            if done.ending == "SIGKILL":
                raise InfrastructureError(f"nvcc was killed at {target}", where=str(unit.source))
            if not done.ok:
                raise BuildError(
                    f"does not compile for {target} ({done.ending}):\n{said[:_LONGEST_LOG]}",
                    where=str(unit.source),
                )
            return out.read_bytes(), said

    def _host(self) -> HostCompiler:
        """The machine's g++, if this nvcc's headers take it; the override flag is never used."""
        host, release = host_compiler(), facts.cuda_release(self.version())
        if release is None or release.gcc_min <= host.version.major <= release.gcc_max:
            return host
        raise ToolchainError(
            f"nvcc {release.version} takes gcc {release.gcc_min} to {release.gcc_max}, "
            f"this is {host.version}",
            where=str(host.path),
            next_step=f"install g++-{release.gcc_max}, or use an NVRTC toolchain",
        )

    def _ask(self, question: str) -> str:
        done = run((str(self.path), question), env=tool_environment(), timeout=60)
        if not done.ok:
            raise ToolchainError(
                f"{question}: {done.ending}: {done.stderr.strip()[:200]}", where=str(self.path)
            )
        return done.stdout
