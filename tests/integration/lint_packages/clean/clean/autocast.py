import torch


@torch.autocast("cpu")
def one() -> None:
    pass


@torch.amp.autocast("cuda", enabled=False)
def two() -> None:
    pass


@torch.amp.custom_fwd(device_type="cuda")
def three() -> None:
    with torch.autocast("cuda"):
        pass
