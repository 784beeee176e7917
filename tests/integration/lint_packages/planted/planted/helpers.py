import functools

import torch
from torch import cuda


@functools.cache
def capability() -> int:
    return torch.cuda.get_device_capability()[0]  # bad: torch-cuda


def guarded() -> bool:
    if not cuda.is_available():  # bad: is-available
        return False
    return deeper()


def deeper() -> bool:
    return cuda.device_count() > 1  # bad: device-count


def never_called() -> bool:
    return cuda.is_available()


def register(function):
    cuda.synchronize()  # bad: torch-cuda
    return function


def factory(name):
    def wrap(function):
        cuda.empty_cache()
        cuda.ipc_collect()  # bad: torch-cuda
        return function

    return wrap


class Probe:
    def __init__(self) -> None:
        self.ask()

    def ask(self) -> None:
        self.count = cuda.device_count()  # bad: device-count

    def later(self) -> None:
        cuda.synchronize()

    @classmethod
    def build(cls) -> "Probe":
        cuda.init()  # bad: torch-cuda
        return cls()


class Child(Probe):
    def __init__(self) -> None:
        super().__init__()
        self.extra()

    def extra(self) -> None:
        cuda.set_device(0)  # bad: torch-cuda


class Context:
    def __enter__(self):
        cuda.current_device()  # bad: torch-cuda

    def __exit__(self, *exc):
        cuda.synchronize()


def first_backend() -> bool:
    return cuda.is_bf16_supported()  # bad: torch-cuda


def second_backend() -> bool:
    return cuda.get_device_name() == ""  # bad: torch-cuda


BACKENDS = {"first": first_backend, "second": second_backend}
