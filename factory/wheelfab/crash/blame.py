"""Which function is to blame for a crash, and the signature under which it is the same crash."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from wheelfab.crash.frames import is_handler
from wheelfab.crash.record import UNKNOWN, Frame, Guilty, PythonFrame
from wheelfab.crash.stack import names_of

_SYSTEM = re.compile(
    r"(?:libc|ld|ld-linux[\w-]*|ld-musl[\w-]*|libpthread|libdl|librt|libm|libstdc\+\+|libgcc_s"
    r"|libc\+\+|libc\+\+abi|linux-vdso)[-.\d]*\.so(?:\.|$)"
)
_PYTHON = re.compile(r"(?:libpython[\d.]*\w*\.so|python[\d.]*\w*$|pypy[\d.]*$)")
_BRIDGE = re.compile(r"libffi[-.]|_ctypes\.")  # how ctypes calls a function
_DRIVER = re.compile(r"(?:libcuda|libnvidia-[\w-]+|libcudadebugger)\.so")
_STARTERS = ("env", "timeout", "sh", "dash", "bash")
_CALLERS = 3
_CLONE = re.compile(r"(?:\s*\[clone [^]]*\]|\.(?:part|constprop|isra|cold)(?:\.\d+)?)+$")
_PYTHON_TAG = re.compile(r"\.(?:cpython|pypy|abi)[^.]*$")
_HASH = re.compile(r"-[0-9a-f]{8,}$")
_ERROR = re.compile(r"[A-Za-z_][\w.]*(?=:|$)")
_VERSION = re.compile(r"[-.]?\d[\d.]*\w?$")


def guilty_of(frames: Sequence[Frame]) -> Guilty | None:
    """The function to blame: the first that belongs neither to the C library nor to Python.

    Where a signal handler is on the stack, what is under it counts. In a CUDA driver the entry
    point is named, as what lies under it has no symbols. When all is Python's own, it is the first
    function of that; ``None`` when there is nothing at all.
    """
    frames = _under_handler(frames)
    own = [place for place, frame in enumerate(frames) if not _is_machinery(frame)]
    if not own:
        inside = [frame for frame in frames if not _is_system(frame)]
        return _guilty(inside[0], "") if inside else None
    place = own[0]
    if _is_driver(frames[place]):
        while place + 1 < len(frames) and _is_driver(frames[place + 1]):
            place += 1
    callers = [frames[other] for other in own if other > place]
    return _guilty(frames[place], ", ".join(map(_words, callers[:_CALLERS])))


def own_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames that belong neither to the C library nor to Python."""
    return tuple(frame for frame in _under_handler(frames) if not _is_machinery(frame))


def signature_of(
    *,
    signal: str,
    si_code: str,
    stage: str,
    frames: Sequence[Frame],
    stack: Sequence[PythonFrame],
    words: Sequence[str] = (),
) -> str:
    """A short word that is the same for the same crash, wherever and how often it is met.

    Neither addresses, folders, line numbers nor versions have a part in it. Where no library's
    function is known, the innermost Python function stands for it, then the error that was printed.
    """
    named: list[tuple[str, str]] = []
    guilty = guilty_of(frames)
    own = own_frames(frames)
    if guilty is not None and own:
        named = [_stable(guilty.function, guilty.library)]
        entry = next((frame for frame in own if _base(frame.library) == guilty.library), None)
        callers = [frame for frame in own if not _is_driver(frame)]
        if entry is not None and _is_driver(entry) and callers:
            named.append(_stable(callers[0].function, callers[0].library))
    else:
        named = [(function, file) for file, function in names_of(tuple(stack))[:1]]
    if not named and words and (error := _ERROR.match(words[-1])):
        named = [(error[0], "")]
    parts = (signal, si_code, stage, *(word for pair in named for word in pair))
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]
    first = named[0][0] if named else ""
    return "-".join(filter(None, (_slug(signal), _slug(first), digest)))


def _stable(function: str, library: str) -> tuple[str, str]:
    """Function and library without what changes from build to build and from Python to Python."""
    base = _base(library)
    name, _, _ = base.partition(".so")
    name = _VERSION.sub("", _HASH.sub("", _PYTHON_TAG.sub("", name)))
    known = not function.startswith((base + "+", UNKNOWN)) and function != base
    return _CLONE.sub("", function) if known else name, name


def _guilty(frame: Frame, called_by: str) -> Guilty:
    return Guilty(function=frame.name, library=_base(frame.library), called_by=called_by)


def _words(frame: Frame) -> str:
    base = _base(frame.library)
    return f"{frame.name} in {base}" if base and frame.function != UNKNOWN else frame.name


def _under_handler(frames: Sequence[Frame]) -> Sequence[Frame]:
    places = [place for place, frame in enumerate(frames) if is_handler(frame)]
    return frames[places[-1] + 1 :] if places else frames


def _is_machinery(frame: Frame) -> bool:
    base = _base(frame.library)
    if _PYTHON.match(base) or _BRIDGE.match(base) or "/lib-dynload/" in frame.library:
        return True
    return _is_system(frame)


def _is_system(frame: Frame) -> bool:
    base = _base(frame.library)
    nowhere = not base and frame.function == UNKNOWN
    return nowhere or base in _STARTERS or _SYSTEM.match(base) is not None


def _is_driver(frame: Frame) -> bool:
    return _DRIVER.match(_base(frame.library)) is not None


def _base(library: str) -> str:
    return PurePosixPath(library).name


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")[:40]
