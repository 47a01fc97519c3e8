"""Notes about layers that no fast engine computes."""

from __future__ import annotations

import torch
from torch import nn

from unrolled.kernels.engine_choice import Choice
from unrolled.nn.attention_decoder import AttentionDecoder
from unrolled.nn.dropin import DropIn

ROWS, STEPS = 8, 32  # of a usual batch: engines may pass on smaller ones


def engine_notes(network: nn.Module) -> list[str]:
    """A note for each reason why layers run step by step in Python."""
    training = network.training
    network.eval()  # draws no random numbers
    inside = {id(module.rnn) for module in network.modules() if isinstance(module, AttentionDecoder)}
    layers = [module for module in network.modules() if isinstance(module, (DropIn, AttentionDecoder))]
    slow = [choice for layer in layers if id(layer) not in inside and (choice := _choice(layer)).engine == "reference"]
    network.train(training)
    return [
        f"Recurrent layers run step by step in Python, several times slower ({reason}): docs/engines.md."
        for reason in dict.fromkeys(choice.reason for choice in slow)
    ]


@torch.no_grad()
def _choice(layer: DropIn | AttentionDecoder) -> Choice:
    if isinstance(layer, DropIn):
        return layer.backend_for(layer._weight().new_zeros(ROWS, STEPS, layer.input_size))
    if layer.form == "xu":  # a gate on the context, which is no choice of the user's
        return Choice("torch", "one engine has it")
    x = layer.weight_feed.new_zeros(ROWS, STEPS, layer.rnn.input_size)
    return layer.backend_for(x, layer.weight_feed.new_zeros(ROWS, STEPS, layer.memory_size))
