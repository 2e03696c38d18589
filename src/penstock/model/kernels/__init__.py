"""Kernels that do in one pass over memory what PyTorch does in five, for GPUs with Triton."""
