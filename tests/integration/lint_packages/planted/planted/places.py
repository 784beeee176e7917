from functools import partial

import pytest
import torch


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")  # bad: is-available
def decorated() -> None:
    torch.cuda.synchronize()


def default(count: int = torch.cuda.device_count()) -> int:  # bad: device-count
    return count


def keyword_default(*, major: int = torch.cuda.get_device_capability()[0]) -> int:  # bad: torch-cuda
    return major


def annotated(value: "x" if torch.cuda.is_available() else "y") -> None:  # bad: is-available
    return None


variable: torch.cuda.current_stream() = None  # bad: torch-cuda


class Config:
    device = "cuda" if torch.cuda.is_available() else "cpu"  # bad: is-available

    class Inner:
        names = [torch.cuda.get_device_name(i) for i in range(2)]  # bad: torch-cuda

    def method(self, count: int = torch.cuda.device_count()) -> int:  # bad: device-count
        return count + torch.cuda.device_count()


TABLE = {i: torch.cuda.get_device_capability(i) for i in range(2)}  # bad: torch-cuda
ANY = any(torch.cuda.can_device_access_peer(0, i) for i in (1, 2))  # bad: torch-cuda
MESSAGE = f"using {torch.cuda.get_device_name()}"  # bad: torch-cuda
LATER = partial(torch.cuda.get_device_name, 0)
LAZY = lambda: torch.cuda.is_available()
EAGER = (lambda: torch.cuda.is_available())()  # bad: is-available
DEFAULT = lambda count=torch.cuda.device_count(): count  # bad: device-count
