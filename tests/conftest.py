"""Settings of every test run."""

import torch

# The tensors here are tiny, and tests run side by side: threads would only wait for each other.
torch.set_num_threads(1)
