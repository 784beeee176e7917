import ctypes

STATUS = ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2()
