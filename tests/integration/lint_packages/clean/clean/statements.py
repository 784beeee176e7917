import sys
from functools import cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    KIND = torch.cuda.current_stream()


@cache
def has_cuda() -> bool:
    return torch.cuda.is_available()


def major() -> int:
    return torch.cuda.get_device_capability()[0]


torch.cuda.manual_seed_all(0)
torch.cuda.empty_cache()
EVENT = torch.cuda.Event
BUILT = torch.version.cuda is not None
SEEN = torch.cuda.is_initialized()

if __name__ == "__main__":
    print(torch.cuda.get_device_name(0))

if sys.platform == "win32":
    torch.cuda.init()

if torch.version.hip is not None:
    torch.cuda.get_device_properties(0)


def is_hip() -> bool:
    """Whether torch was built for ROCm."""
    return torch.version.hip is not None


_is_hip = is_hip()
if _is_hip and BUILT:
    torch.cuda.get_device_name(0)
if not _is_hip:
    pass
else:
    torch.cuda.get_device_capability()
