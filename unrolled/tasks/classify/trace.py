"""Trace of a classifier on one input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.errors import UserError, unknown_name
from unrolled.model import Model
from unrolled.models.classifier import Classifier
from unrolled.models.encoder_layers import LookedAt
from unrolled.models.inputs import TokenInput, WordInput, token_vectors
from unrolled.nn.pooling import Pooling
from unrolled.see import AttentionMap, ModelTrace, Part, Probe, check_memory
from unrolled.see.attribution import Attribution, attribute_words
from unrolled.see.options import HIDE, TARGET, TRUTH, TraceOption, follows_truth, read_options
from unrolled.tasks.classify.examples import checked_inputs
from unrolled.tasks.classify.predict import multi_label, unlabelled
from unrolled.tasks.shared.sentence import check_pooling
from unrolled.tasks.shared.trace import NO_GATES, TRANSFORMER, attention_of, parts_of
from unrolled.tasks.tracer import Example, Tracer, nth
from unrolled.text import Vectors

OPTIONS = (
    HIDE,
    TRUTH,
    TARGET,
    TraceOption("label", None, "The label whose loss is followed back, in place of the truth or the answer.", str),
)
Score = Callable[[Sequence[str]], Tensor]
"""The scores of texts, (N, C)."""


class ClassifyTracer(Tracer):
    """Traces a classifier while it reads an input."""

    options: ClassVar[tuple[TraceOption, ...]] = OPTIONS

    def trace(self, inputs: Any, **options: Any) -> ModelTrace:
        """Every gate and state on one input, and the loss of a label. Options: see `OPTIONS`."""
        chosen, model = read_options(self.options, options), self.model
        (one,) = checked_inputs(model, [inputs])
        network = _network_of(model)
        batch, tokens = unlabelled(model, [one])[0].to(model.device), model.assets.reader.tokens(one)
        read = Pass.of(network, batch, tokens, chosen.pop("hide"))
        if (scale := model.assets.scale) is not None:
            return trace_number(read, scale, **chosen)
        # losses are those of the probabilities that the model answers
        temperature = 1.0 if model.assets.calibration is None else model.assets.calibration.temperature
        read = replace(read, scores=read.scores / temperature)

        def score(texts: Sequence[str]) -> Tensor:
            batches = unlabelled(model, list(texts))
            rows = torch.zeros(len(texts), len(model.assets.labels), device=model.device)
            for index in range(len(batches)):
                scores = network(batches[index].to(model.device)).float()
                rows[torch.from_numpy(batches.rows(index))] = scores / temperature
            return rows

        several, text = multi_label(model), one if isinstance(one, str) else None
        return trace_labels(read, model.assets.labels, several=several, text=text, score=score, **chosen)

    def example(self, examples: Any, number: int) -> Example:
        found = nth(examples, number)
        return Example(found.input, found.labels)

    @torch.no_grad()
    def embed(self, inputs: Any, pooling: str | None = None) -> NDArray[np.float32]:
        """The pooled states of an input, by the model's own pooling unless another is asked for."""
        alone = isinstance(inputs, (str, np.ndarray, Tensor))
        batches = unlabelled(self.model, checked_inputs(self.model, [inputs] if alone else inputs))
        network = _network_of(self.model)
        network.eval()
        own = network.pool
        pool = own if pooling is None else Pooling(check_pooling(pooling, ""), own.size, own.directions)
        vectors = np.zeros((len(batches.examples), pool.output_size), dtype=np.float32)
        for index in range(len(batches)):
            found = network.encode(batches[index].to(self.model.device), pool)
            vectors[batches.rows(index)] = found.float().cpu().numpy()
        return vectors[0] if alone else vectors

    def word_vectors(self) -> Vectors:
        reader, network = self.model.assets.reader, _network_of(self.model)
        if isinstance(network.input, WordInput):
            return network.input.word_vectors(reader.words)
        if isinstance(network.input, TokenInput):
            return token_vectors(reader.tokenizer, network.input.embedding.weight)
        return super().word_vectors()


def _network_of(model: Model) -> Classifier:
    """The network; an error if there are no layers to look into."""
    if not isinstance(model.network, Classifier):
        raise UserError(
            "This model is a wide path alone (model.kind=linear): it has no layers and no states.",
            "Its n-grams show which words decided: unrolled run MODEL --explain.",
        )
    return model.network


@dataclass(frozen=True)
class Pass:
    """A network on one input: its scores (1, C), its states, and the probe at its input."""

    network: Classifier
    batch: Batch
    probe: Probe
    scores: Tensor
    tokens: list[str]
    seen: LookedAt

    @classmethod
    def of(cls, network: Classifier, batch: Batch, tokens: list[str], hide: Sequence[int]) -> Pass:
        if not tokens:
            raise UserError("There is nothing to trace.", "Give an input with at least one step.")
        network.eval()
        check_memory(len(tokens), network)
        probe = Probe(tokens, hide)
        scores, seen = network.trace(batch, probe)
        return cls(network, batch, probe, scores, tokens, seen)

    @property
    def parts(self) -> tuple[Part, ...]:
        return parts_of(self.seen, self.tokens)

    @property
    def reasons(self) -> dict[str, str]:
        """The figures of recurrent layers that this network has not."""
        return NO_GATES if self.seen.trace is not None else TRANSFORMER

    def attention(self, label: str) -> dict[str, AttentionMap]:
        """The weights of an attention pooling, and those of a Transformer."""
        pool, tokens, found = self.network.pool, self.tokens, attention_of(self.seen, self.tokens)
        if "attention" not in pool.kinds:
            return found
        weights = pool.weights("attention", self.seen.output, self.batch.mask).detach()[:, None, None]
        return {"pooling": AttentionMap([label], tokens, weights[..., : len(tokens)]), **found}  # (1, 1, 1, T)


def trace_number(
    read: Pass, scale: tuple[float, float], *, truth: Any, target: str | None, label: str | None
) -> ModelTrace:
    """The trace of a model of numbers.

    The loss is the squared error, in deviations of the training numbers. If the truth is not known, or the target is
    the answer, the answer itself is followed back, in deviations from the training mean.
    """
    if label is not None:
        raise UserError("This model answers numbers: it has no labels.", "Leave the label out.")
    answer = read.scores[0, 0].float()
    shown = f"{scale[0] + scale[1] * float(answer.detach()):.6g}"
    known = None if truth is None else _number_of(truth)
    follow = follows_truth(known, target)
    loss = (answer - (known - scale[0]) / scale[1]) ** 2 if follow and known is not None else answer
    return ModelTrace(
        "classify",
        shown,
        [shown],
        loss[None],
        read.parts,
        {"input": read.probe},
        [[(shown, 1.0)]],
        attention=read.attention(shown),
        reasons={
            **read.reasons,
            "attention": "This model does not attend.",
            "beams": "A number is not searched for: there is no beam.",
        },
        truth=None if known is None else f"{known:.6g}",
        follows="truth" if follow else "answer",
    )


def trace_labels(
    read: Pass,
    labels: Sequence[str],
    *,
    several: bool,
    text: str | None,
    score: Score,
    truth: Any,
    target: str | None,
    label: str | None,
) -> ModelTrace:
    """Every gate and state while an input is read, and one loss, −log p: of the truth, the answer or a chosen label.

    `text` is the input if it is one; `score` gives the scores of other texts, to leave words out.
    """
    row = read.scores[0].float()
    chances = (row.sigmoid() if several else row.softmax(-1)).detach()
    order = chances.argsort(descending=True).tolist()
    known = None if truth is None else _labels_of(truth, several)
    wanted, follows, notes = _followed(labels, known, target, label, order[0])
    name = ", ".join(labels[i] for i in wanted) or "(no label)"

    def attribute() -> Attribution:
        assert text is not None
        with torch.no_grad():
            return attribute_words(
                text,
                name,
                lambda texts: [-float(_loss(one, wanted, several, follows)) for one in score(texts).float()],
            )

    answer = {labels[i] for i in order if chances[i] >= 0.5} if several else {labels[order[0]]}
    return ModelTrace(
        "classify",
        f"{labels[order[0]]}, {float(chances[order[0]]):.1%}",
        [name],
        _loss(row, wanted, several, follows)[None],
        read.parts,
        {"input": read.probe},
        [[(labels[i], float(chances[i])) for i in order[:10]]],
        attention=read.attention(name),
        reasons={
            **read.reasons,
            "attention": "This classifier does not attend; one trained with model.pool=attention does.",
            "beams": "A label is not searched for: there is no beam.",
        },
        truth=None if known is None else ", ".join(known) or "(no label)",
        right=None if known is None else answer == set(known),
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


def _loss(row: Tensor, wanted: Sequence[int], several: bool, follows: str) -> Tensor:
    """−log p. Of several labels at once, the truth is all that apply and none that do not."""
    if not several:
        return -row.log_softmax(-1)[wanted[0]]
    if follows != "truth":
        return nn.functional.softplus(-row[wanted[0]])
    signs = torch.ones_like(row)
    signs[list(wanted)] = -1
    return nn.functional.softplus(signs * row).sum()
