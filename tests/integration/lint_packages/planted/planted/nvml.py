import pynvml
from pynvml import nvmlInit

nvmlInit()  # bad: nvml
COUNT = pynvml.nvmlDeviceGetCount()  # bad: nvml


def load():
    import pynvml as vendored

    return vendored


library = load()
library.nvmlShutdown()  # bad: nvml
