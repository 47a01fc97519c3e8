"""The CTC loss and its alignment on an NVIDIA GPU (docs/cuda.md)."""
