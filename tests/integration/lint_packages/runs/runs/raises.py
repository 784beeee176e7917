raise RuntimeError("no CUDA GPUs are available")
