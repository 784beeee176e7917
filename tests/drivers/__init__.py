"""A fake CUDA driver, and what the tests of the CUDA host code need beside it."""
