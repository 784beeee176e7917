"""The CUDA kernels on the CPU: g++ compiles the .cu files, each CUDA thread is a fiber."""
