"""Graphs of models that write about an input: one that encodes it, and one that writes a token further."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from unrolled.data import Batch
from unrolled.export.graphs.plan import Draw, GraphPlan, leaves, numbered, rebuilt, whole
from unrolled.models.stepwise import Stepwise
from unrolled.models.writer import TransformerWriter, Writer

Network = Writer | TransformerWriter | Stepwise
MakeBatch = Callable[..., Batch]


def writer_plans(
    network: Network,
    inputs: Sequence[str],
    batch_of: MakeBatch,
    draw: Draw,
    free: Mapping[str, Mapping[int, str]],
    tokens: int,
) -> list[GraphPlan]:
    """The graphs "encode" and "step" of a writer; `batch_of` makes a batch from the inputs."""
    # a state as it is inside a text: of a Transformer it holds keys already
    sizes = {name: 3 for axes in free.values() for name in axes.values()}
    given = draw(sizes, torch.Generator().manual_seed(0))
    with torch.no_grad():
        encoded = network.encode(batch_of(*given))
        first = network.start(encoded)
        like = network.step(torch.zeros(given[0].shape[0], dtype=torch.int64), first).state
    begin, shared = (len(part) for part in leaves(first))
    encode = GraphPlan(
        "encode",
        lambda *tensors: _flat(network.start(network.encode(batch_of(*tensors)))),
        draw,
        inputs,
        [*numbered("state", begin), *numbered("shared", shared)],
        free,
    )
    return [encode, _step(network, like, encode, batch_of, tokens)]


def _flat(state: Any) -> tuple[Tensor, ...]:
    rows, shared = leaves(state)
    return (*rows, *shared)


def _step(network: Network, like: Any, encode: GraphPlan, batch_of: MakeBatch, tokens: int) -> GraphPlan:
    rows, shared = leaves(like)
    states, memories = numbered("state", len(rows)), numbered("shared", len(shared))
    shown = network.showing_attention()

    def compute(given: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        own, common = list(state[: len(states)]), list(state[len(states) :])
        step = shown.step(given, rebuilt(like, own, common))
        log_probs = step.scores if step.normalised else step.scores.float().log_softmax(-1)
        attention = () if step.attention is None else (step.attention,)
        return (log_probs, *leaves(step.state)[0], *attention)

    def draw(sizes: Mapping[str, int], generator: torch.Generator) -> list[Tensor]:
        with torch.no_grad():
            state = network.start(network.encode(batch_of(*encode.draw(sizes, generator))))
            of_rows, common = leaves(state)
            times = max(1, sizes["rows"] // sizes["batch"])
            of_rows = [one.repeat_interleave(times, dim=0) for one in of_rows]
            state = rebuilt(like, of_rows, list(common))
            for _ in range(sizes.get("past", 0)):
                written = whole(tokens, generator, times * sizes["batch"])
                state = network.step(written, state).state
        own, common = leaves(state)
        return [whole(tokens, generator, times * sizes["batch"]), *own, *common]

    grows = isinstance(network, TransformerWriter)
    free: dict[str, dict[int, str]] = {"tokens": {0: "rows"}}
    for name, one in zip(states, rows, strict=True):
        free[name] = {0: "rows", 2: "past"} if grows and one.dim() == 4 else {0: "rows"}
    for name, one in zip(memories, shared, strict=True):
        free[name] = _free_of_memory(encode, one)
    attention = ["attention"] if network.attends else []
    outputs = ["log_probs", *numbered("new_state", len(states)), *attention]
    return GraphPlan("step", compute, draw, ["tokens", *states, *memories], outputs, free, encode.sizes)


def _free_of_memory(encode: GraphPlan, memory: Tensor) -> dict[int, str]:
    """The rows of a memory are free, and its positions where the input's length is."""
    free = {0: "batch"}
    if "time" in {name for axes in encode.free.values() for name in axes.values()}:
        free[2 if memory.dim() == 4 else 1] = "time"
    return free
