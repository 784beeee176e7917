import torch

WHICH = torch.accelerator.current_accelerator()
