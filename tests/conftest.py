"""Settings of every test run."""

from __future__ import annotations

import zlib

import pytest
import torch

# The tensors here are tiny, and tests run side by side: threads would only wait for each other.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_seed(request: pytest.FixtureRequest) -> None:
    """Each test draws its own numbers, the same in every run and in any order."""
    torch.manual_seed(zlib.crc32(request.node.nodeid.encode()))
