"""A build matrix and wheel factory for PyTorch C++/CUDA extensions."""
