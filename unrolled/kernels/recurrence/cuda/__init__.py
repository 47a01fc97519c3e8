"""The `cuda` engine: the built-in cells on an NVIDIA GPU, forward and hand-written backward (docs/cuda.md)."""
