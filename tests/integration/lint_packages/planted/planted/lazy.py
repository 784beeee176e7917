"""A module whose attribute asks on first use, and another that is harmless."""

import torch

_platform = None


def __getattr__(name):
    if name == "platform":
        return _resolve()
    if name == "version":
        return 1
    raise AttributeError(name)


def _resolve():
    return "cuda" if torch.cuda.is_available() else "cpu"  # bad: is-available
