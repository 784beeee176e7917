from __future__ import annotations

import torch


def annotated(value: torch.cuda.current_stream()) -> torch.cuda.Stream:
    return torch.cuda.current_stream()


def default(device: str = "cuda") -> torch.Tensor:
    return torch.zeros(1, device=device)


variable: torch.cuda.current_stream() = None


class Config:
    device = "cuda"
    count: int = 0

    def method(self) -> int:
        return torch.cuda.device_count()


ASK = lambda: torch.cuda.is_available()
NAMES = ["torch.cuda.is_available()", f"{1 + 1}"]
