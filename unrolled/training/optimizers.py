"""Optimisers and averages of the weights, as the settings choose them, and noise on the weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from unrolled.training.average import Average, LastMean, StalledMean
from unrolled.training.settings import TrainSettings


def make_optimizer(network: nn.Module, settings: TrainSettings) -> torch.optim.Optimizer:
    """The optimiser of the settings; weight decay skips biases and gains.

    On a GPU, all but rmsprop take the learning rate from the device and can skip an update there
    (`updates_on_device`).
    """
    decayed = [p for p in network.parameters() if p.requires_grad and p.dim() >= 2]
    plain = [p for p in network.parameters() if p.requires_grad and p.dim() < 2]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    on_gpu = any(p.is_cuda for p in network.parameters())
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, fused=on_gpu or None)
    if settings.optimizer == "rmsprop":
        return torch.optim.RMSprop(groups, lr=settings.lr, momentum=settings.momentum)
    make = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    return make(groups, lr=settings.lr, fused=True)  # one pass over the weights: 3 to 10 times faster on a CPU


def updates_on_device(optimizer: torch.optim.Optimizer) -> bool:
    """True if the optimiser updates weights on a GPU without a look at a value: see `bind_rate`."""
    on_gpu = all(parameter.is_cuda for group in optimizer.param_groups for parameter in group["params"])
    return on_gpu and not isinstance(optimizer, torch.optim.RMSprop)


def bind_rate(optimizer: torch.optim.Optimizer, rate: torch.Tensor) -> None:
    """Let the optimiser read its learning rate from a tensor on the GPU, so that a CUDA graph sees it change.

    Loading a state undoes this: bind again after it.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate
        group["fused"] = True
        if "capturable" in group:
            group["capturable"] = True
    vars(optimizer)["_warned_capturable_if_run_uncaptured"] = True  # some updates run outside a graph: as intended


def stored_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimiser's state for a checkpoint, with learning rates as numbers."""
    state = optimizer.state_dict()
    groups = [{**group, "lr": float(group["lr"])} for group in state["param_groups"]]
    return {**state, "param_groups": groups}


def make_average(network: nn.Module, settings: TrainSettings) -> Average | LastMean | StalledMean | None:
    """The average of the weights that is evaluated and saved, if the settings have one."""
    if settings.average_stalled:
        return StalledMean(network, settings.average_stalled)
    if settings.average_last:
        return LastMean(network, settings.average_last)
    return Average(network, settings.average) if settings.average else None


@contextmanager
def noisy_weights(network: nn.Module, deviation: float) -> Iterator[None]:
    """A block in which weights have Gaussian noise (Graves 2011), so that gradients are those of the noisy weights.

    >>> layer = nn.Linear(2, 2)
    >>> before = layer.weight.clone()
    >>> with noisy_weights(layer, 0.1):
    ...     changed = not torch.equal(layer.weight, before)
    >>> changed, torch.equal(layer.weight, before)
    (True, True)
    """
    if deviation == 0:
        yield
        return
    parameters = [p for p in network.parameters() if p.requires_grad]
    kept = [p.detach().clone() for p in parameters]
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(torch.randn_like(parameter), alpha=deviation)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, kept, strict=True):
                parameter.copy_(value)
