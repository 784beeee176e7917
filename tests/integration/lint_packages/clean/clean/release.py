import torch

AVAILABLE = torch.backends.cudnn.is_available()
torch.backends.cuda.matmul.allow_tf32 = True
