import torch

READY = torch.accelerator.is_available()  # bad: torch-accelerator
WHICH = torch.accelerator.current_accelerator(check_available=True)  # bad: torch-accelerator
