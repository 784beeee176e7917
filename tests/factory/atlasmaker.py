"""Small atlases, pages and wheels of a made-up torch."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence

from packaging.version import Version

from wheelfab.atlas.atlas import Atlas, pack_atlas, unpack_atlas
from wheelfab.atlas.release import Checked, Library, Release

from .elfmaker import make_library

KEYS = ("Undefined", "Dense", "Named", "StartOfDenseBackends", "CPU", "CUDA", "Meta")
LATER_KEYS = ("Undefined", "Dense", "StartOfDenseBackends", "CPU", "CUDA", "Meta")
HEADER = """
#define C10_FORALL_BACKEND_COMPONENTS(_, extra) \\
  _(CPU, extra)                                 \\
  _(CUDA, extra)                                \\
  _(Meta, extra)
#define C10_FORALL_FUNCTIONALITY_KEYS(_) \\
  _(Dense, )                             \\
  _(AutogradFunctionality, Autograd)
enum class DispatchKey : uint16_t {
  Undefined = 0, // {nothing};
  CatchAll = Undefined,
  Dense, /* a, b */
  Named,
  AutogradFunctionality,
  EndOfFunctionalityKeys, // End.
#define DEFINE_PER_BACKEND_KEYS_FOR_BACKEND(n, prefix) prefix##n,
#define DEFINE_PER_BACKEND_KEYS(fullname, prefix)      \\
  StartOf##fullname##Backends,                         \\
      EndOf##fullname##Backends = prefix##Meta,
  C10_FORALL_FUNCTIONALITY_KEYS(DEFINE_PER_BACKEND_KEYS)
#undef DEFINE_PER_BACKEND_KEYS
      EndOfRuntimeBackendKeys = EndOfAutogradFunctionalityBackends,
  Autograd,
  StartOfAliasKeys = Autograd,
  CPUTensorId = CPU,
};
"""
HEADER_KEYS = (
    *("Undefined", "Dense", "Named", "AutogradFunctionality", "EndOfFunctionalityKeys"),
    *("StartOfDenseBackends", "CPU", "CUDA", "Meta"),
    *("StartOfAutogradFunctionalityBackends", "AutogradCPU", "AutogradCUDA", "AutogradMeta"),
    "Autograd",
)
CORE = "_ZN3c105ErrorC1ENSt7__cxx1112basic_stringE"


def release(
    version: str,
    libraries: Mapping[str, Sequence[str]] | None = None,
    *,
    dispatch: tuple[str, ...] = KEYS,
    complete: bool = True,
    notes: tuple[str, ...] = (),
) -> Release:
    """A release; ``libraries`` are its libraries with what each needs."""
    needs = {"libc10.so": (), "libtorch_cpu.so": ("libc10.so",)} if libraries is None else libraries
    return Release(
        version=Version(version),
        build=f"{version}+cu121",
        cuda="12.1",
        cxx11_abi=True,
        glibc="2.28",
        pythons=("cp310", "cp311"),
        python="cp311",
        archs=("sm_80", "sm_90"),
        dispatch=dispatch,
        libraries=tuple(
            Library(name=name, needed=tuple(needed), symbols=0) for name, needed in needs.items()
        ),
        source=f"torch-{version}-cp311-cp311-manylinux_2_28_x86_64.whl",
        sha256="0" * 64,
        size=1,
        checked=Checked.MEMBERS,
        complete=complete,
        notes=notes,
    )


def atlas(*parts: tuple[Release, Mapping[str, Sequence[str]]]) -> Atlas:
    """An atlas of releases and, by library, their symbols."""
    return unpack_atlas(pack_atlas("linux-x86_64", parts), where="made")


def torch_members(version: str = "2.4.1") -> dict[str, bytes]:
    """The members of a wheel of torch that an atlas reads, and one that it does not."""
    cpu = ("_ZN2at6Tensor3addEv", "aoti_torch_new", "main", "_ZN2at12_GLOBAL__N_11fEv")
    members = {
        "torch/version.py": f"__version__ = '{version}+cu121'\ncuda: str = '12.1'\n".encode(),
        "torch/include/c10/core/DispatchKey.h": HEADER.encode(),
        "torch/lib/libc10.so": make_library(defined=[CORE], needed=["libc.so.6"]),
        "torch/lib/libtorch_cpu.so": make_library(defined=cpu, needed=["libc10.so"]),
        "torch/lib/libtorch_python.so": make_library(defined=["THPVariable_Wrap"])
        + b"\0sm_80 sm_90 compute_90\0",
        "torch/lib/libgomp.so.1": make_library(),
        "torch/other.py": b"pass\n" * 1000,
    }
    rows = [f"{name},sha256={digest(data)},{len(data)}" for name, data in members.items()]
    folder = f"torch-{version}.dist-info"
    members[f"{folder}/RECORD"] = "\n".join([*rows, f"{folder}/RECORD,,", ""]).encode()
    return members


def digest(data: bytes) -> str:
    """A SHA-256 as RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


class _Pipe(io.RawIOBase):
    """A file that cannot seek, so that zipfile writes sizes after the members."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]
        self.data += piece
        return len(piece)


def zipped(members: Mapping[str, bytes], *, seekable: bool = True, method: int = 8) -> bytes:
    """An archive of ``members``; where it is not ``seekable``, sizes follow the members."""
    pipe, buffer = _Pipe(), io.BytesIO()
    with zipfile.ZipFile(buffer if seekable else pipe, "w", compression=method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=method)
    return buffer.getvalue() if seekable else bytes(pipe.data)
