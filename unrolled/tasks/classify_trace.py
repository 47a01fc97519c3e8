"""A classifier laid open on one input."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from unrolled.data import Batch
from unrolled.errors import UserError, unknown_name
from unrolled.models.classifier import Classifier
from unrolled.see import AttentionMap, ModelTrace, Part, Probe, check_memory
from unrolled.see.options import HIDE, TraceOption

OPTIONS = (
    HIDE,
    TraceOption("label", None, "The label whose loss is followed back; none: the likeliest.", str),
)


def trace_number(
    network: Classifier,
    batch: Batch,
    tokens: list[str],
    scale: tuple[float, float],
    *,
    hide: Sequence[int],
    label: str | None,
) -> ModelTrace:
    """The same of a model of numbers: what is followed back is its answer, in deviations from the training mean."""
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
    return ModelTrace(
        "classify",
        shown,
        [shown],
        answer[None],
        (Part("", tokens, trace),),
        {"input": probe},
        [[(shown, 1.0)]],
        reasons={
            "gates": "A vanilla RNN has no gates.",
            "attention": "This model does not attend.",
            "beams": "A number is not searched for: there is no beam.",
        },
    )


def trace_classifier(
    network: Classifier,
    batch: Batch,
    tokens: list[str],
    labels: Sequence[str],
    *,
    several: bool,
    hide: Sequence[int],
    label: str | None,
) -> ModelTrace:
    """Every gate and state while an input is read, and the loss of a label, −log p."""
    if not tokens:
        raise UserError("There is nothing to trace.", "Give an input with at least one step.")
    network.eval()
    check_memory(len(tokens), network)
    probe = Probe(tokens, hide)
    scores, trace = network.trace(batch, probe)
    if label is not None and label not in labels:
        raise unknown_name("label", label, labels)
    row = scores[0].float()
    chances = (row.sigmoid() if several else row.softmax(-1)).detach()
    chosen = int(row.argmax()) if label is None else list(labels).index(label)
    loss = nn.functional.softplus(-row[chosen]) if several else -row.log_softmax(-1)[chosen]
    order = chances.argsort(descending=True).tolist()
    guesses = [(labels[i], float(chances[i])) for i in order[:10]]
    attention = {}
    if "attention" in network.pool.kinds:
        weights = network.pool.weights("attention", trace.output, batch.mask).detach()[:, None, None]  # (1, 1, 1, T)
        attention["pooling"] = AttentionMap([labels[chosen]], tokens, weights[..., : len(tokens)])
    return ModelTrace(
        "classify",
        f"{labels[order[0]]}, {float(chances[order[0]]):.1%}",
        [labels[chosen]],
        loss[None],
        (Part("", tokens, trace),),
        {"input": probe},
        [guesses],
        attention=attention,
        reasons={
            "gates": "A vanilla RNN has no gates.",
            "attention": "This classifier does not attend; one trained with model.pool=attention does.",
            "beams": "A label is not searched for: there is no beam.",
        },
    )
