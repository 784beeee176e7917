import torch

DEVICE = "cuda:0"
WHERE = torch.device("cuda") if torch.version.cuda else torch.device("cpu")

A = torch.zeros(3, device="cuda")  # bad: tensor-on-cuda
B = torch.ones(3, device=DEVICE)  # bad: tensor-on-cuda
C = torch.empty(3, device=WHERE)  # bad: tensor-on-cuda
D = torch.rand(3).cuda()  # bad: tensor-on-cuda
E = torch.rand(3).to("cuda")  # bad: tensor-on-cuda
F = torch.rand(3).to(device=torch.device("cuda", 0))  # bad: tensor-on-cuda
G = torch.empty(3, pin_memory=True)  # bad: tensor-on-cuda
H = torch.empty(3).pin_memory()  # bad: tensor-on-cuda
I = torch.Generator(device="cuda")  # bad: tensor-on-cuda
J = torch.nn.Linear(2, 2, device=f"cuda:{1}")  # bad: tensor-on-cuda
K = torch.load("weights.pt", map_location="cuda")  # bad: tensor-on-cuda
L = torch.cuda.FloatTensor(3)  # bad: torch-cuda
