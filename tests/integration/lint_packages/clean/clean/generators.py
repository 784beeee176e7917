from contextlib import contextmanager

import torch


@contextmanager
def entered():
    torch.cuda.init()
    yield


@entered()
def decorated() -> None:
    pass


async def ask() -> bool:
    return torch.cuda.is_available()


def numbers():
    yield torch.cuda.device_count()


COROUTINE = ask
LATER = numbers()


def harmless() -> str:
    try:
        if torch.version.hip:
            return torch.cuda.get_device_name()
        return "none"
    except RuntimeError:
        return str(torch.cuda.is_available())


NAME = harmless()
