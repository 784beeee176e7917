from contextlib import contextmanager

import torch


@contextmanager
def entered():
    torch.cuda.init()  # bad: torch-cuda
    yield


def numbers():
    yield torch.cuda.device_count()  # bad: device-count


def names():
    yield from [torch.cuda.get_device_name()]  # bad: torch-cuda


with entered():
    pass

for number in numbers():
    pass

NAMES = list(names())
