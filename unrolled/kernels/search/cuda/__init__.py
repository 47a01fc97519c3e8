"""Kernels for an NVIDIA GPU: the bookkeeping of a beam search, the way back through its history, and drawing."""
