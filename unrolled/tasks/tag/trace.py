"""Trace of a tagger on a sentence, or on frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.data import Batch
from unrolled.data.readers.tagged.frames import Tagged
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.errors import UserError
from unrolled.models.inputs import WordInput
from unrolled.models.tagger import Tagger
from unrolled.nn.dropin import DropIn
from unrolled.see import ModelTrace, Probe, check_memory
from unrolled.see.options import HIDE, TARGET, TRUTH, TraceOption, follows_truth, read_options
from unrolled.tasks.shared.sentence import check_pooling, pooled
from unrolled.tasks.shared.trace import NO_GATES, TRANSFORMER, attention_of, parts_of
from unrolled.tasks.tag.assets import TagAssets
from unrolled.tasks.tag.batches import tag_batches
from unrolled.tasks.tag.predict import examples_of, frames_of_input, sentence_of_input
from unrolled.tasks.tracer import Example, Tracer, nth
from unrolled.text import Vectors

OPTIONS = (HIDE, TRUTH, TARGET)
SHOWN = 5


class TagTracer(Tracer):
    """Traces a tagger on a sentence, or on frames."""

    options: ClassVar[tuple[TraceOption, ...]] = OPTIONS

    def trace(self, inputs: Any, **options: Any) -> ModelTrace:
        """Every gate and state on a sequence, and the loss of each tag."""
        chosen, model = read_options(self.options, options), self.model
        one = (frames_of_input if model.assets.frames else sentence_of_input)(model, inputs)
        assert isinstance(model.network, Tagger)
        batch = model.assets.collate([one]).to(model.device)
        if chosen["truth"] is None:
            chosen["truth"] = one.tags
        steps = list(one.words) if isinstance(one, Sentence) else [str(number) for number in range(len(one))]
        return trace_tagger(model.network, batch, steps, model.assets, **chosen)

    def example(self, examples: Any, number: int) -> Example:
        found: Tagged = nth(examples, number)
        return Example(found, found.tags)

    @torch.no_grad()
    def embed(self, inputs: Any, pooling: str | None = None) -> NDArray[np.float32]:
        """The states of a sentence's words, or of frames, pooled: their mean unless another pooling is asked for."""
        how = check_pooling(pooling, "mean")
        alone, examples = examples_of(self.model, inputs)
        batches = tag_batches(self.model.assets, examples)
        network = self.model.network
        assert isinstance(network, Tagger)
        network.eval()
        two = isinstance(network.layer, DropIn) and network.layer.bidirectional
        vectors = np.zeros((len(batches.examples), network.scores.in_features), dtype=np.float32)
        for index in range(len(batches)):
            batch = batches[index].to(self.model.device)
            found = pooled(network.states(batch), batch.mask, how, 2 if two else 1)
            vectors[batches.rows(index)] = found.float().cpu().numpy()
        return vectors[0] if alone else vectors

    def word_vectors(self) -> Vectors:
        network = self.model.network
        assert isinstance(network, Tagger)
        if isinstance(network.input, WordInput):
            return network.input.word_vectors(self.model.assets.words)
        return super().word_vectors()


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
        what, one = ("are no frames", "frame") if assets.frames else ("is no text", "word")
        raise UserError(f"There {what} to trace.", f"Give at least one {one}.")
    assert batch.lengths is not None
    network.eval()
    check_memory(len(words), network, "frames" if assets.frames else "words")
    probe = Probe(words, hide)
    scores, seen = network.trace(batch, probe)
    (path,) = network.decode(batch, scores)
    chances = network.marginals(scores.float(), batch.lengths)[0]  # (T, K)
    answered = assets.names(path)
    true = None if truth is None else _tags_of(truth, words, "frames" if assets.frames else "words")
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
        parts_of(seen, words),
        {"input": probe},
        guesses,
        aligned="",
        attention=attention_of(seen, words),
        reasons={
            **(NO_GATES if seen.trace is not None else TRANSFORMER),
            "attention": "A recurrent tagger has no attention.",
            "beams": "Tags are found exactly, by Viterbi or one by one: there is no beam.",
        },
        truth=None if true is None else " ".join(asked),
        right=None if true is None else answered == true,
        follows="truth" if follow else "answer",
        compared=[] if true is None else list(zip(words, true, answered, strict=True)),
        notes=tuple(f"Training never saw the tag {tag}: its loss counts as 0." for tag in unseen) if follow else (),
    )


def _tags_of(truth: Any, words: Sequence[str], what: str) -> list[str]:
    tags = truth.split() if isinstance(truth, str) else [str(tag) for tag in truth]
    if len(tags) != len(words):
        raise UserError(f"The truth has {len(tags)} tags.", f"Expected one for each of {len(words)} {what}.")
    return tags


def _losses(chances: Tensor, wanted: Sequence[int]) -> Tensor:
    """−log of the probability of each wanted tag, (T,); 0 for one that the network does not know."""
    numbers = torch.tensor(wanted, device=chances.device)
    found = chances[torch.arange(len(wanted)), numbers.clamp(min=0)].clamp(min=1e-30).log()
    return torch.where(numbers >= 0, -found, 0.0)
