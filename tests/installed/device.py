"""The operations on the device under test: the CPU, or a CUDA device over host memory.

``ops`` stands for ``freewheel.ops``. On the CUDA device it moves every tensor argument there, with
its strides and with what it shares with others, calls the operation, and moves everything back, so
that one set of tests is about both.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

import freewheel.ops

CUDA = "FREEWHEEL_TEST_CUDA" in os.environ


class _Moved:
    """Tensors of one call on the CUDA device, a storage once."""

    def __init__(self) -> None:
        self._storages: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._originals: dict[int, torch.Tensor] = {}

    def there(self, value: Any) -> Any:
        """``value`` on the device; what is no tensor stays."""
        if not isinstance(value, torch.Tensor) or value.numel() == 0:
            return value.to("cuda") if isinstance(value, torch.Tensor) else value
        storage = value.untyped_storage()
        key = storage.data_ptr()
        if key not in self._storages:
            flat = torch.empty(0, dtype=torch.uint8).set_(storage)
            self._storages[key] = (flat, flat.to("cuda"))
        moved = self._storages[key][1].view(value.dtype)
        result = moved.as_strided(value.shape, value.stride(), value.storage_offset())
        self._originals[id(result)] = value
        return result

    def back(self, value: Any) -> Any:
        """Every storage as the call left it, and ``value`` itself on the CPU."""
        for before, after in self._storages.values():
            before.copy_(after.cpu())
        if not isinstance(value, torch.Tensor):
            return value
        original = self._originals.get(id(value))
        return value.cpu() if original is None else original


class _OnCuda:
    """``freewheel.ops`` with every call made on the CUDA device."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = getattr(freewheel.ops, name)

        def call(*arguments: Any, **named: Any) -> Any:
            moved = _Moved()
            values = [moved.there(value) for value in arguments]
            more = {key: moved.there(value) for key, value in named.items()}
            return moved.back(operation(*values, **more))

        return call


ops: Any = _OnCuda() if CUDA else freewheel.ops
