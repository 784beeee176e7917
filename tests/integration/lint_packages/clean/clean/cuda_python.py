from cuda.bindings import driver, nvrtc

STREAM = driver.CUstream(0)
OK = driver.CUresult.CUDA_SUCCESS
VERSION = nvrtc.nvrtcVersion()
