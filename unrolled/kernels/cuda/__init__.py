"""Parts of all engines on NVIDIA GPUs: the compiler, the launcher and the instructions of a GPU."""
