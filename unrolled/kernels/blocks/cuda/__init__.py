"""Kernels for an NVIDIA GPU: the attention of one step to cached keys, and a residual sum with its layer norm."""
