import pycuda.autoinit  # bad: import-touches
from torch.utils import cpp_extension  # bad: import-touches
