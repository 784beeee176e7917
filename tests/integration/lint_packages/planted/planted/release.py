import torch

ARCHS = torch.cuda.get_arch_list()  # bad: torch-release
CUDNN = torch.backends.cudnn.version()  # bad: torch-release
