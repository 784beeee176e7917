import torch

DEVICE = torch.device("cuda")
A = torch.zeros(3)
B = torch.zeros(3, device="cpu")
C = torch.zeros(3, device="meta")
D = torch.rand(3).to(torch.float16)
E = torch.rand(3).to("cpu")
F = dict(device="cuda")
G = torch.nn.Linear(2, 2)
H = torch.set_default_device("cpu")


class Engine:
    def cuda(self, first, second):
        return self


I = Engine().cuda(1, 2)
