"""A classifier laid open on one input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.errors import UserError, unknown_name
from unrolled.models.classifier import Classifier
from unrolled.see import AttentionMap, ModelTrace, Part, Probe, check_memory
from unrolled.see.attribution import Attribution, attribute_words
from unrolled.see.options import HIDE, TARGET, TRUTH, TraceOption, follows_truth

OPTIONS = (
    HIDE,
    TRUTH,
    TARGET,
    TraceOption("label", None, "The label whose loss is followed back, in place of the truth or the answer.", str),
)
Score = Callable[[Sequence[str]], Tensor]
"""The scores of texts, (N, C)."""


def trace_number(
    network: Classifier,
    batch: Batch,
    tokens: list[str],
    scale: tuple[float, float],
    *,
    hide: Sequence[int],
    truth: Any,
    target: str | None,
    label: str | None,
) -> ModelTrace:
    """The same of a model of numbers.

    The loss is the squared error, in deviations of the training numbers. Where the truth is not known, or the answer
    was asked for, what is followed back is the answer itself, in deviations from the training mean.
    """
    if label is not None:
        raise UserError("This model answers numbers: it has no labels.", "Leave the label out.")
    if not tokens:
        raise UserError("There is nothing to trace.", "Give an input with at least one step.")
    network.eval()
    check_memory(len(tokens), network)
    probe = Probe(tokens, hide)
    scores, trace = network.trace(batch, probe)
    answer = scores[0, 0].float()
    shown = f"{scale[0] + scale[1] * float(answer.detach()):.6g}"
    known = None if truth is None else _number_of(truth)
    follow = follows_truth(known, target)
    loss = (answer - (known - scale[0]) / scale[1]) ** 2 if follow and known is not None else answer
    return ModelTrace(
        "classify",
        shown,
        [shown],
        loss[None],
        (Part("", tokens, trace),),
        {"input": probe},
        [[(shown, 1.0)]],
        reasons={
            "gates": "A vanilla RNN has no gates.",
            "attention": "This model does not attend.",
            "beams": "A number is not searched for: there is no beam.",
        },
        truth=None if known is None else f"{known:.6g}",
        follows="truth" if follow else "answer",
    )


def trace_classifier(
    network: Classifier,
    batch: Batch,
    tokens: list[str],
    labels: Sequence[str],
    *,
    several: bool,
    text: str | None,
    score: Score,
    hide: Sequence[int],
    truth: Any,
    target: str | None,
    label: str | None,
) -> ModelTrace:
    """Every gate and state while an input is read, and one loss, −log p: of the truth, the answer or a chosen label.

    `text` is the input where it is one; `score` gives the scores of other texts, to leave words out.
    """
    if not tokens:
        raise UserError("There is nothing to trace.", "Give an input with at least one step.")
    network.eval()
    check_memory(len(tokens), network)
    probe = Probe(tokens, hide)
    scores, trace = network.trace(batch, probe)
    row = scores[0].float()
    chances = (row.sigmoid() if several else row.softmax(-1)).detach()
    order = chances.argsort(descending=True).tolist()
    known = None if truth is None else _labels_of(truth, several)
    wanted, follows, notes = _followed(labels, known, target, label, order[0])
    losses = _loss(row, wanted, several, follows)
    attention = {}
    if "attention" in network.pool.kinds:
        weights = network.pool.weights("attention", trace.output, batch.mask).detach()[:, None, None]  # (1, 1, 1, T)
        attention["pooling"] = AttentionMap([_named(labels, wanted)], tokens, weights[..., : len(tokens)])

    def attribute() -> Attribution:
        assert text is not None
        with torch.no_grad():
            return attribute_words(
                text,
                _named(labels, wanted),
                lambda texts: [-float(_loss(one, wanted, several, follows)) for one in score(texts).float()],
            )

    given = {labels[i] for i in order if chances[i] >= 0.5} if several else {labels[order[0]]}
    return ModelTrace(
        "classify",
        f"{labels[order[0]]}, {float(chances[order[0]]):.1%}",
        [_named(labels, wanted)],
        losses[None],
        (Part("", tokens, trace),),
        {"input": probe},
        [[(labels[i], float(chances[i])) for i in order[:10]]],
        attention=attention,
        reasons={
            "gates": "A vanilla RNN has no gates.",
            "attention": "This classifier does not attend; one trained with model.pool=attention does.",
            "beams": "A label is not searched for: there is no beam.",
        },
        truth=None if known is None else ", ".join(known) or "(no label)",
        right=None if known is None else given == set(known),
        follows=follows,
        attribute=None if text is None else attribute,
        notes=notes,
    )


def _number_of(truth: Any) -> float:
    """A number, or a text or list that holds one."""
    one = truth[0] if isinstance(truth, (list, tuple)) and len(truth) == 1 else truth
    try:
        return float(one)
    except (TypeError, ValueError):
        raise UserError(f"truth={truth!r} is not a number.", "This model answers numbers: give one.") from None


def _labels_of(truth: Any, several: bool) -> tuple[str, ...]:
    """A label or a list of them; where there may be several, also a text with commas between."""
    if isinstance(truth, str):
        return tuple(part.strip() for part in truth.split(",")) if several else (truth,)
    return tuple(map(str, truth))


def _followed(
    labels: Sequence[str], truth: tuple[str, ...] | None, target: str | None, label: str | None, best: int
) -> tuple[list[int], str, tuple[str, ...]]:
    """The labels whose loss is followed, whose they are, and what to say about it."""
    if label is not None:
        if label not in labels:
            raise unknown_name("label", label, labels)
        return [list(labels).index(label)], "label", ()
    if follows_truth(truth, target):
        assert truth is not None
        if unknown := [one for one in truth if one not in labels]:
            problem = unknown_name("label", unknown[0], labels)
            return [best], "answer", (f"The model does not know the truth, so the answer's loss is shown. {problem}",)
        return [list(labels).index(one) for one in truth], "truth", ()
    return [best], "answer", ()


def _named(labels: Sequence[str], chosen: Sequence[int]) -> str:
    return ", ".join(labels[i] for i in chosen) or "(no label)"


def _loss(row: Tensor, wanted: Sequence[int], several: bool, follows: str) -> Tensor:
    """−log p. Of several labels at once, the truth is all that apply and none that do not."""
    if not several:
        return -row.log_softmax(-1)[wanted[0]]
    if follows != "truth":
        return nn.functional.softplus(-row[wanted[0]])
    signs = torch.ones_like(row)
    signs[list(wanted)] = -1
    return nn.functional.softplus(signs * row).sum()
