"""The shape of ``matrix.toml``: frozen models of its tables, from which schema and docs come.

Only the shape is checked here: unknown and missing keys, types, the form of each value. What the
values mean together is for ``legality``.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from wheelfab.facts import AbiKind
from wheelfab.host import (
    DEFAULT_BASE,
    DriverPlace,
    HostDriver,
    HostImage,
    HostOption,
    Pollution,
    TorchChoice,
    Way,
)
from wheelfab.model import CudaApi, PartScope, Toolchain
from wheelfab.versions import plain_version

_UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = re.compile(r"([1-9]\d{0,5}) ?(" + "|".join(_UNITS) + ")", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?", re.ASCII)
_TAG = re.compile(r"py3-none|cp3\d{1,2}-(?:abi3|none|cp3\d{1,2}t?)", re.ASCII)
_STANDARD = re.compile(r"c\+\+(?:14|17|20|23)", re.ASCII)
_FLAG = re.compile(r"-[A-Za-z0-9_=+.,:/-]{1,200}", re.ASCII)  # nothing that a shell reads
_URL = re.compile(r"(?:https?|file)://[!-~]{1,500}", re.ASCII)
_OPTION = re.compile(r"-(?:I|OO?|S|s|E|B|X[a-z_]{1,30}(?:=\w{1,30})?)", re.ASCII)
_DRIVER = re.compile(r"\d{2,4}(?:\.\d{1,4}){1,2}", re.ASCII)
_MOST = 256  # entries of any table or array


class TorchFallback(StrEnum):
    """Where torch may come from when ``torch-index`` cannot be reached."""

    PYPI = "pypi"
    NONE = "none"


def size_in_bytes(text: str) -> int:
    """The bytes of a size such as ``40 MB`` or ``64 MiB``.

    Raises ``ValueError`` for another form.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a size")
    return int(found[1]) * _UNITS[found[2]]


def malformed(what: str, next_step: str) -> PydanticCustomError:
    """The error of a value whose form is wrong: what it is, and what to write instead."""
    return PydanticCustomError("malformed", "{what}", {"what": what, "next_step": next_step})


def _version(parts: int, example: str) -> AfterValidator:
    def check(text: str) -> str:
        if plain_version(text, parts) is None:
            raise malformed(f"{text!r} is not a version", f"write it as {example}")
        return text

    return AfterValidator(check)


def _matching(pattern: re.Pattern[str], kind: str, example: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise malformed(f"{text!r} is not {kind}", f"write it as {example}")
        return text

    return AfterValidator(check)


def _python(text: str) -> str:
    try:
        if len(SpecifierSet(text)) > 0:
            return text
    except InvalidSpecifier:
        pass
    raise malformed(f"{text!r} is not a range of Pythons", "write it as >=3.10 or >=3.10,<3.14")


def _inside(text: str) -> str:
    parts = text.split("/")
    if not text or text.startswith("/") or "\\" in text or ".." in parts or "\0" in text:
        raise malformed(
            f"{text!r} does not stay inside the project",
            "write a path relative to matrix.toml, with / and without ..",
        )
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise malformed("is blank", "write a sentence")
    return text


def _absolute(text: str) -> str:
    if not re.fullmatch(r"(?:/[A-Za-z0-9._+-]+)+", text, re.ASCII) or ".." in text.split("/"):
        raise malformed(f"{text!r} is not an absolute path", "write it as /dev/nvidia0")
    return text


def _string_as_array(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Text = Annotated[str, Field(min_length=1, max_length=1000)]
Code = Annotated[str, Field(min_length=1, max_length=10_000)]
Reason = Annotated[str, Field(max_length=1000), AfterValidator(_not_blank)]
Path = Annotated[str, Field(max_length=200), AfterValidator(_inside)]
AbsolutePath = Annotated[str, Field(max_length=200), AfterValidator(_absolute)]
Paths = Annotated[tuple[Path, ...], Field(min_length=1, max_length=_MOST)]
Seconds = Annotated[float, Field(gt=0, le=3600)]
Series = Annotated[str, _version(2, "12.1")]
Release = Annotated[str, _version(3, "2.4.1")]
Python = Annotated[str, Field(max_length=200), AfterValidator(_python)]
Size = Annotated[str, _matching(_SIZE, "a size", "40 MB or 64 MiB")]
Url = Annotated[str, _matching(_URL, "an address", "https://…")]
Flags = Annotated[
    tuple[Annotated[str, _matching(_FLAG, "a compiler's flag", "-g")], ...],
    Field(min_length=1, max_length=_MOST),
]
Archs = Annotated[
    tuple[str, ...],
    Field(max_length=_MOST),
    BeforeValidator(_string_as_array),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    ),
]


class Table(BaseModel):
    """A table of ``matrix.toml``: kebab-case keys, no unknown ones, never changed."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=lambda name: name.replace("_", "-"),
    )


class DeviceTable(Table):
    """The device code. Each source file becomes one fatbin per CUDA release."""

    sources: Paths = Field(description="Globs of the CUDA sources.")
    include: tuple[Path, ...] = Field(
        default=(), max_length=_MOST, description="Include folders, in the order they are searched."
    )
    standard: Annotated[str, _matching(_STANDARD, "a C++ standard", "c++17")] = Field(
        default="c++17", description="The C++ standard of the device code."
    )


class PartTable(Table):
    """A library that CMake compiles; its name is handed over as `WHEELFAB_PART`."""

    per: PartScope = Field(
        description="How often it is compiled: once for the `project`, once a `variant`, or once a "
        "`torch` pin."
    )
    uses: tuple[Text, ...] = Field(
        default=(),
        max_length=_MOST,
        description="Parts that it links, and `device` for the variant's device images.",
    )
    inputs: Paths = Field(description="Globs of the files whose change compiles it anew.")
    defines: dict[str, str] = Field(
        default_factory=dict,
        max_length=_MOST,
        description="More CMake definitions, handed over as `-Dname=value`.",
    )


class DebugTable(Table):
    """The debug twin of each wheel, `build --debug`: the same sources, assertions on, not stripped.

    CMake gets `CMAKE_BUILD_TYPE=Debug`, these flags for C and C++, and folders mapped to relative
    ones. Device code is the release's own.
    """

    flags: Flags = Field(
        default=("-g", "-O1", "-fno-omit-frame-pointer"),
        description="All flags of the host compiler; `-g -O1 -fno-omit-frame-pointer` unless "
        "given. `-DNDEBUG` is not among them, so that `assert` holds.",
    )
    extra_size: Size = Field(
        default="100 MB",
        description="What symbols and plain code may add to a row's size budget.",
    )


class LoadTable(Table):
    """A stage of one load in the import loop. Stages run in order in one interpreter."""

    stage: Annotated[str, _matching(_NAME, "a name", "extension")] = Field(
        description="Its name in reports."
    )
    run: Code = Field(description="The Python code of the stage; an exception fails it.")
    needs_torch: StrictBool = Field(
        default=False, description="Whether it is left out where torch is not installed."
    )


class DeviceRunTable(Table):
    """What the GPU loop runs on each device, as Python code; `device` names it, as `cuda:0`."""

    operation: Code = Field(
        description="An operation checked against its reference; an exception fails it."
    )
    launch: Code = Field(description="One launch of the soak, after `operation` in its names.")
    emulation: Path | None = Field(
        default=None,
        description="A script that makes an emulation of devices, so that both run without a GPU: "
        "it is given a folder and a torch package and prints JSON with `environment` and `before`.",
    )


class ProjectTable(Table):
    """What is built, whatever the variant."""

    name: Annotated[str, _matching(_NAME, "a distribution name", "freewheel")] = Field(
        description="The distribution's name."
    )
    python: Python = Field(description="The Pythons that the wheels are for, such as `>=3.10`.")
    python_tag: Annotated[str, _matching(_TAG, "a Python tag", "cp310-abi3 or py3-none")] = Field(
        description="Interpreter and ABI tag of the wheels, such as `cp310-abi3`."
    )
    glibc: Series = Field(
        default="2.28", description="The oldest glibc that the wheels run on: a manylinux level."
    )
    platform: Text = Field(
        default="linux-x86_64", description="The platform; `linux-x86_64` is built here."
    )
    size_budget: Size = Field(
        default="100 MB", description="The largest size of a wheel, such as `40 MB` or `64 MiB`."
    )
    cmake: Path = Field(default="csrc", description="The folder of the `CMakeLists.txt`.")
    sources: Paths = Field(
        description="Globs of the files that the wheel build sees beside the compiled parts."
    )
    device: DeviceTable | None = Field(default=None, description="The device code, if any.")
    debug: DebugTable = Field(default=DebugTable(), description="The debug twins.")
    parts: dict[str, PartTable] = Field(
        min_length=1, max_length=64, description="What CMake compiles, by name."
    )
    load: tuple[LoadTable, ...] = Field(
        min_length=1, max_length=64, description="One load of the import loop, stage by stage."
    )
    state: Code | None = Field(
        default=None,
        description="Python code that leaves in `result` what the extension says of the hardware: "
        "a mapping with `status`, `reason`, `notes`, `images` and, where not all of the time is to "
        "count, `seconds`. Hosts are judged by it.",
    )
    state_limit: Seconds = Field(
        default=30.0,
        description="Seconds after which `state` has answered on any host; half a second is added.",
    )
    doctor: tuple[Text, ...] = Field(
        default=(),
        max_length=16,
        description="Arguments of Python for a command that reports on the machine; it is run once "
        "on each host and must end by itself within 30 seconds, without a traceback.",
    )
    device_run: DeviceRunTable | None = Field(
        default=None, description="What the GPU loop runs on each device."
    )


class PinTable(Table):
    """A torch pin. Its key is a series, `2.4`, or `stable >= 2.10` for the LibTorch stable ABI."""

    lowest: Release | None = Field(
        default=None,
        description="Series only: the oldest release that the wheel allows and is built against; "
        "the first of the series unless given.",
    )
    headers: Release | None = Field(
        default=None,
        description="Stable ABI only, and required there: the release whose headers it is built "
        "with.",
    )
    run_on: tuple[Release, ...] = Field(
        min_length=1,
        max_length=64,
        description="The torch releases that the import loop loads the wheel with.",
    )


class RowDefaults(Table):
    """What every variant has unless it says otherwise."""

    cuda_api: CudaApi | None = Field(
        default=None,
        description="How the extension reaches CUDA: `driver` (it opens libcuda at run time; any "
        "CUDA release goes with any torch) or `runtime` (it links the CUDA runtime, which "
        "CMake finds in `lib` below `WHEELFAB_CUDA_ROOT`; torch must exist for that CUDA "
        "release). `driver` unless given.",
    )
    toolchain: Toolchain | None = Field(
        default=None,
        description="Where the device compiler comes from: `pypi-nvrtc` (CUDA 11.8 to 12.x) or "
        "`pypi-nvcc` (CUDA 13). `pypi-nvrtc` unless given.",
    )
    arch: Archs | None = Field(
        default=None,
        description="The archs to compile for, as an array or as `TORCH_CUDA_ARCH_LIST` spells "
        "them: `8.0`, `9.0a`, `9.0+PTX`, `Ampere`. Required with `cuda`, ignored without.",
    )
    torch: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="The torch pins that the row is built for, by their keys."
    )
    torch_index: Url | None = Field(
        default=None,
        description="The package index that torch is fetched from; PyTorch's CPU index unless "
        "given.",
    )
    torch_fallback: TorchFallback | None = Field(
        default=None,
        description="`pypi`: where the index cannot be reached, take the same release from PyPI, "
        "say so and record it. `none` unless given.",
    )
    python: Python | None = Field(
        default=None, description="The row's Pythons; the project's unless given."
    )
    glibc: Series | None = Field(
        default=None, description="The row's glibc floor; the project's unless given."
    )
    platform: Text | None = Field(
        default=None, description="The row's platform; the project's unless given."
    )
    size_budget: Size | None = Field(
        default=None, description="The row's size budget; the project's unless given."
    )


class VariantTable(RowDefaults):
    """A row of the matrix. Its name is the first part of the wheel's local version."""

    cuda: Series | None = Field(
        default=None, description="The CUDA release that compiles the device code; none: CPU only."
    )


class ExcludeTable(Table):
    """A cell that is not built."""

    variant: Text = Field(description="The variant's name.")
    torch: Text = Field(description="The pin's key.")
    reason: Reason = Field(description="Why, in words that the table of cells shows.")


class SessionTable(Table):
    """A nox session of the project's own: an environment, then commands in the project's folder."""

    help: Text = Field(description="What it does, in a line.")
    wheel: Text | None = Field(
        default=None,
        description="The cell whose built wheel is installed in the environment, with its torch.",
    )
    torch: Release | None = Field(
        default=None,
        description="The torch release beside the wheel; the one it was built against unless "
        "given.",
    )
    requirements: tuple[Text, ...] = Field(
        default=(),
        max_length=_MOST,
        description="What pip installs into the environment; a folder such as `./factory` is "
        "installed editable.",
    )
    run: Annotated[
        tuple[Annotated[tuple[Text, ...], Field(min_length=1, max_length=_MOST)], ...],
        Field(min_length=1, max_length=64),
    ] = Field(
        description="The commands, each an array of words; what follows `--` on nox's command "
        "line is added to the last one."
    )


class HostKeys(Table):
    """A machine to load the wheels on, and the answer that is expected there."""

    help: Text | None = Field(default=None, description="What is wrong with it, in a line.")
    base: Text = Field(
        default=DEFAULT_BASE, description="The clean root it is made from, such as `debian-11`."
    )
    image: HostImage = Field(
        default=HostImage.CPU, description="The target of `docker/Dockerfile` it starts from."
    )
    driver: HostDriver = Field(
        default=HostDriver.NONE,
        description="What lies where the driver library would: `none`, `real` (NVIDIA's, of the "
        "image `driver-host`), `fake` (`wheelfab.drivers`, told by `environment`), or a file that "
        "is no driver.",
    )
    driver_place: DriverPlace = Field(
        default=DriverPlace.PATH,
        description="How the loader finds it: `path` (LD_LIBRARY_PATH), `loader-cache`, or `wsl`.",
    )
    driver_release: Annotated[str, _matching(_DRIVER, "a release", "535.104.05")] | None = Field(
        default=None, description="The release in the driver library's file name."
    )
    nvml: StrictBool = Field(default=False, description="Whether a fake NVML lies beside it.")
    pollution: tuple[Pollution, ...] = Field(
        default=(), max_length=8, description="Older libraries that LD_LIBRARY_PATH puts in front."
    )
    environment: dict[str, Annotated[str, Field(max_length=1000)]] = Field(
        default_factory=dict, max_length=64, description="Environment variables of each load."
    )
    environment_after: tuple[dict[str, Annotated[str, Field(max_length=1000)]], ...] = Field(
        default=(),
        max_length=64,
        description=(
            "Sets of variables that are set after the imports; the state is asked after each."
        ),
    )
    files: dict[AbsolutePath, Annotated[str, Field(max_length=10_000)]] = Field(
        default_factory=dict, max_length=64, description="Files that are there, with their text."
    )
    programs: dict[AbsolutePath, Code] = Field(
        default_factory=dict, max_length=8, description="Executable scripts that are there."
    )
    options: tuple[HostOption, ...] = Field(
        default=(), max_length=8, description="Ways in which the machine is narrower than usual."
    )
    python: tuple[Annotated[str, _matching(_OPTION, "an option of Python", "-OO")], ...] = Field(
        default=(), max_length=8, description="Options of the interpreter."
    )
    way: Way = Field(default=Way.PLAIN, description="How the wheel is imported.")
    torch: TorchChoice = Field(
        default=TorchChoice.OWN, description="The torch beside it: `own`, `other-series`, `none`."
    )
    cpu: Annotated[str, _matching(_NAME, "a processor", "Nehalem")] | None = Field(
        default=None, description="The processor that qemu-user plays."
    )
    emulated: StrictBool = Field(
        default=False,
        description="Whether operations run on the devices of the fake driver too, by the "
        "project's emulation.",
    )
    variants: tuple[Text, ...] = Field(
        default=(), max_length=_MOST, description="The variants it is for; all unless given."
    )
    count: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        default=None, description="Fresh loads, where the usual number would take too long."
    )
    at_once: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1,
        description="Fresh loads that run together, and beside other hosts: over 1 where they "
        "only wait.",
    )
    status: Text | None = Field(
        default=None, description="The status that the project's `state` must give."
    )
    status_without_code: Text | None = Field(
        default=None,
        description="The status for a wheel without device code; as `status` unless given.",
    )
    status_without_ptx: Text | None = Field(
        default=None,
        description="The status for a wheel with cubins only; as `status` unless given.",
    )
    status_forked: Text | None = Field(
        default=None,
        description="The status in processes that were forked after operations ran on its devices; "
        "as `status` unless given.",
    )
    state_limit: Seconds | None = Field(
        default=None,
        description="The project's `state-limit` on this host, where `environment` sets another.",
    )
    says: tuple[Text, ...] = Field(
        default=(), max_length=16, description="Words that reason or notes must hold."
    )
    images: tuple[Text, ...] | None = Field(
        default=None,
        max_length=64,
        description="What a wheel with device code runs on each device, as `state` says it, such "
        "as `8.0`, `9.0+PTX`, or `none`.",
    )
    error: tuple[Text, ...] = Field(
        default=(),
        max_length=16,
        description="Words of the clear error that the stages with torch end in, `{torch}` for the "
        "release beside the wheel; none: they pass.",
    )
    error_for: AbiKind | None = Field(
        default=None, description="The pins that end so: `classic` or `stable`; all unless given."
    )


class HostTable(HostKeys):
    """A machine, or with `cases` several that have most in common."""

    cases: dict[Annotated[str, _matching(_NAME, "a name", "sm-75")], HostKeys] = Field(
        default_factory=dict,
        max_length=64,
        description="Hosts `NAME-CASE` that differ from it in the keys given; `environment` and "
        "`files` are added to its own.",
    )


class MatrixFile(Table):
    """The build matrix of a PyTorch extension: the only place where it is decided what is built."""

    project: ProjectTable = Field(description="What is built, whatever the variant.")
    torch: dict[str, PinTable] = Field(
        min_length=1, max_length=64, description="The torch pins, by their keys."
    )
    defaults: RowDefaults = Field(
        default_factory=RowDefaults, description="What every variant has unless it says otherwise."
    )
    variants: dict[str, VariantTable] = Field(
        min_length=1, max_length=_MOST, description="The rows, by name."
    )
    exclude: tuple[ExcludeTable, ...] = Field(
        default=(), max_length=1000, description="Cells that are not built, each with its reason."
    )
    sessions: dict[str, SessionTable] = Field(
        default_factory=dict,
        max_length=64,
        description="nox sessions of the project's own, by name.",
    )
    hosts: dict[str, HostTable] = Field(
        default_factory=dict,
        max_length=_MOST,
        description="The machines that the import loop loads the wheels on, by name.",
    )
