"""The symbol atlas: what every torch release exports, and which of them a library loads on."""

from wheelfab.atlas.answer import Answer, Kind, Verdict, answer, kind_of
from wheelfab.atlas.atlas import Atlas, read_atlas
from wheelfab.atlas.names import is_shim, is_torch
from wheelfab.atlas.registration import NO_KEYS, Keys, read_keys
from wheelfab.atlas.release import Checked, Library, Release

__all__ = [
    "NO_KEYS",
    "Answer",
    "Atlas",
    "Checked",
    "Keys",
    "Kind",
    "Library",
    "Release",
    "Verdict",
    "answer",
    "is_shim",
    "is_torch",
    "kind_of",
    "read_atlas",
    "read_keys",
]
