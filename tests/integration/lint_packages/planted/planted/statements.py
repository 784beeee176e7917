import torch
import torch.cuda as tc
from torch import cuda as c
from torch.cuda import get_device_capability

HAS_CUDA = torch.cuda.is_available()  # bad: is-available
COUNT = tc.device_count()  # bad: device-count
MAJOR = get_device_capability()[0]  # bad: torch-cuda
STREAM = c.current_stream() if c.is_available() else None  # bad: torch-cuda is-available

if torch.cuda.is_available():  # bad: is-available
    NAME = torch.cuda.get_device_name(0)  # bad: torch-cuda

try:
    torch.cuda.init()  # bad: torch-cuda
except RuntimeError:
    pass

with torch.cuda.device(0):  # bad: torch-cuda
    FREE = 1

for index in range(torch.cuda.device_count()):  # bad: device-count
    pass

assert torch.cuda.is_bf16_supported()  # bad: torch-cuda
getattr(torch, "cuda").synchronize()  # bad: torch-cuda
check = torch.cuda.is_available
check()  # bad: is-available
torch._C._cuda_getDeviceCount()  # bad: torch-cuda
torch.get_device_module("cuda").current_device()  # bad: torch-cuda
