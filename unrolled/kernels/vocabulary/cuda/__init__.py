"""Kernels for an NVIDIA GPU: the cross-entropy of 16-bit scores, and the gradient of an embedding."""
