import torch


def __getattr__(name):
    if name == "platform":
        return torch.cuda.is_available()
    if name == "version":
        return 1
    raise AttributeError(name)
