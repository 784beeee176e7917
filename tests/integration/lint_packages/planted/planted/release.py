import torch
from torch.utils import cpp_extension  # bad: import-touches
from torch.utils.cpp_extension import load_inline

ARCHS = torch.cuda.get_arch_list()  # bad: torch-release
CUDNN = torch.backends.cudnn.version()  # bad: torch-release
ONE = cpp_extension.load("one", sources=["one.cpp", "one.cu"])  # bad: torch-release
TWO = load_inline("two", cuda_sources="")  # bad: torch-release
THREE = cpp_extension.load("three", sources=["three.cpp"])
