"""A tagger laid open on a sentence."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.models.tagger import Tagger
from unrolled.see import ModelTrace, Part, Probe, check_memory
from unrolled.see.options import HIDE
from unrolled.tasks.tag_assets import TagAssets

OPTIONS = (HIDE,)
SHOWN = 5


def trace_tagger(network: Tagger, batch: Batch, words: list[str], assets: TagAssets, hide: Sequence[int]) -> ModelTrace:
    """Every gate and state, and the loss of each word's tag: −log of its probability, over all sequences with a CRF."""
    if not words:
        raise UserError("There is no text to trace.", "Give at least one word.")
    assert batch.lengths is not None
    network.eval()
    check_memory(len(words), network, "words")
    probe = Probe(words, hide)
    scores, trace = network.trace(batch, probe)
    (path,) = network.decode(batch, scores)
    chances = network.marginals(scores.float(), batch.lengths)[0]  # (T, K)
    losses = -chances[torch.arange(len(path)), path].clamp(min=1e-30).log()
    names = assets.learnt.tokens
    best = chances.detach().topk(min(SHOWN, len(names)), dim=-1)
    guesses = [
        [(names[i], p) for p, i in zip(*row, strict=True)]
        for row in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]
    said = [f"{word}/{tag}" for word, tag in zip(words, assets.names(path), strict=True)]
    return ModelTrace(
        "tag",
        " ".join(said),
        said,
        losses,
        (Part("", words, trace),),
        {"input": probe},
        guesses,
        aligned="",
        reasons={
            "gates": "A vanilla RNN has no gates.",
            "attention": "A recurrent tagger has no attention.",
            "beams": "Tags are found exactly, by Viterbi or one by one: there is no beam.",
        },
    )
