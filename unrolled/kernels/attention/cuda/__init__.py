"""Decoders with attention on the `cuda` engine: kernels, passes and the operator."""
