import torch
from torch.cuda.amp import autocast


@torch.autocast("cuda")  # bad: autocast
def one() -> None:
    pass


@torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16)  # bad: autocast
def two() -> None:
    pass


@autocast()  # bad: autocast
def three() -> None:
    pass


SCALER = torch.amp.GradScaler()  # bad: autocast
