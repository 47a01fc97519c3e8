"""A tagger laid open on a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.models.tagger import Tagger
from unrolled.see import ModelTrace, Part, Probe, check_memory
from unrolled.see.options import HIDE, TARGET, TRUTH, follows_truth
from unrolled.tasks.tag.assets import TagAssets

OPTIONS = (HIDE, TRUTH, TARGET)
SHOWN = 5


def trace_tagger(
    network: Tagger,
    batch: Batch,
    words: list[str],
    assets: TagAssets,
    *,
    hide: Sequence[int],
    truth: Any,
    target: str | None,
) -> ModelTrace:
    """Every gate and state, and the loss of each word's tag: −log of its probability, over all sequences with a CRF.

    The tags are the true ones where they are known: a list of them, or a text with blanks between.
    """
    if not words:
        raise UserError("There is no text to trace.", "Give at least one word.")
    assert batch.lengths is not None
    network.eval()
    check_memory(len(words), network, "words")
    probe = Probe(words, hide)
    scores, trace = network.trace(batch, probe)
    (path,) = network.decode(batch, scores)
    chances = network.marginals(scores.float(), batch.lengths)[0]  # (T, K)
    answered = assets.names(path)
    true = None if truth is None else _tags_of(truth, words)
    follow = follows_truth(truth, target) and true is not None
    wanted = assets.targets(true) if follow and true is not None else list(path)
    losses = _losses(chances, wanted)
    names = assets.learnt.tokens
    best = chances.detach().topk(min(SHOWN, len(names)), dim=-1)
    guesses = [
        [(names[i], p) for p, i in zip(*row, strict=True)]
        for row in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]
    said = [f"{word}/{tag}" for word, tag in zip(words, answered, strict=True)]
    asked = said if true is None else [f"{word}/{tag}" for word, tag in zip(words, true, strict=True)]
    unseen = sorted({tag for tag, number in zip(true or (), wanted, strict=False) if number < 0})
    return ModelTrace(
        "tag",
        " ".join(said),
        asked if follow else said,
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
        truth=None if true is None else " ".join(asked),
        right=None if true is None else answered == true,
        follows="truth" if follow else "answer",
        compared=[] if true is None else list(zip(words, true, answered, strict=True)),
        notes=tuple(f"Training never saw the tag {tag}: its loss counts as 0." for tag in unseen) if follow else (),
    )


def _tags_of(truth: Any, words: Sequence[str]) -> list[str]:
    tags = truth.split() if isinstance(truth, str) else [str(tag) for tag in truth]
    if len(tags) != len(words):
        raise UserError(f"The truth has {len(tags)} tags.", f"Expected one for each of {len(words)} words.")
    return tags


def _losses(chances: Tensor, wanted: Sequence[int]) -> Tensor:
    """−log of the probability of each wanted tag, (T,); 0 for one that the network does not know."""
    numbers = torch.tensor(wanted, device=chances.device)
    found = chances[torch.arange(len(wanted)), numbers.clamp(min=0)].clamp(min=1e-30).log()
    return torch.where(numbers >= 0, -found, 0.0)
