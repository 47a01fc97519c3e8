"""Trace of a recogniser on one recording, line or sequence of frames: posteriors over time, and the layers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.data.readers.media.transcripts import Transcribed
from unrolled.errors import UserError
from unrolled.kernels.lengths import real_steps
from unrolled.model import Model
from unrolled.models.recognizer import Recognizer
from unrolled.nn.ctc import ctc_align, ctc_loss, ctc_occupancy
from unrolled.search.ctc import best_path
from unrolled.search.ctc.prefix_beam import plain_prefix_search
from unrolled.see import AttentionMap, Beams, Frames, ModelTrace, Part, Probe, check_memory
from unrolled.see.beams import Held
from unrolled.see.options import HIDE, TARGET, TRUTH, TraceOption, follows_truth, read_options
from unrolled.tasks.recognize.batches import features_batch
from unrolled.tasks.recognize.features import is_sound
from unrolled.tasks.recognize.labels import BLANK, Labels
from unrolled.tasks.recognize.predict import moments, whole
from unrolled.tasks.shared.sentence import check_pooling, embedded, pooled
from unrolled.tasks.shared.trace import NO_GATES, TRANSFORMER
from unrolled.tasks.tracer import Example, Tracer, nth

OPTIONS = (
    HIDE,
    TRUTH,
    TARGET,
    TraceOption("text", "", "A text to align, whose loss is followed back in place of truth or answer.", str),
    TraceOption("beam", 6, "Beginnings that a search holds after each frame.", int),
)

PLANE = dict.fromkeys(
    ("states", "gates", "norms", "flow"),
    "A multi-dimensional LSTM has a state for each pixel and direction, not for each step: look at the frames.",
) | {"attention": "A multi-dimensional LSTM has no attention."}

MOST_SEARCHED = 1500  # frames; the search that can be watched is a slow one


class RecognizeTracer(Tracer):
    """Traces a recogniser on one recording, line or sequence of frames."""

    options: ClassVar[tuple[TraceOption, ...]] = OPTIONS

    def trace(self, inputs: Any, rate: float | None = None, **options: Any) -> ModelTrace:
        """Posteriors over time, and every gate and state; `rate` is that of samples. Options: see `OPTIONS`."""
        chosen, reader = read_options(self.options, options), self.model.assets.reader
        window = whole(reader, reader.given(inputs, rate=rate))
        moment = moments(self.model, len(window.features), scale=window.scale)
        return trace_features(self.model, window.features, moment, **chosen)

    def embed(self, inputs: Any, pooling: str | None = None) -> NDArray[np.float32]:
        """The states of the layers over a recording, line or sequence of frames, pooled: their mean by default."""
        how, reader, network = check_pooling(pooling, "mean"), self.model.assets.reader, self.model.network
        assert isinstance(network, Recognizer)
        network.eval()
        several = isinstance(inputs, (list, tuple)) and not is_sound(inputs)
        given = [reader.given(one) for one in (inputs if several else [inputs])]

        def vectors_of(some: Sequence[Any]) -> Tensor:
            batch = features_batch([whole(reader, one).features for one in some]).to(self.model.device)
            states, lengths = network.states(batch)
            two = network.layer is not None and network.layer.bidirectional
            return pooled(states, real_steps(lengths, states.shape[1]), how, 2 if two else 1)

        table = embedded(given, vectors_of)
        return table if several else table[0]

    def example(self, examples: Any, number: int) -> Example:
        found: Transcribed = nth(examples, number)
        return Example(found.input, found.text)


def trace_features(
    model: Model,
    features: NDArray[np.float32],
    moment: Callable[[int], float],
    *,
    hide: Sequence[int],
    truth: str | None,
    target: str | None,
    text: str,
    beam: int,
) -> ModelTrace:
    """Posteriors, the alignment of a text, and −log P(text) as the one loss; `moment` is the time of a step.

    The text is the option `text`, else the truth if it is known, else the answer.
    """
    network, labels, reader = model.network, model.assets.labels, model.assets.reader
    assert isinstance(network, Recognizer)
    if not len(features):
        raise UserError("There is nothing to trace.", "Give an input that is not empty.")
    network.eval()
    check_memory(len(features), network, "steps")
    steps, places = -(-len(features) // network.time_factor), 2 if reader.unit == "seconds" else 0
    names = [f"{moment(step):.{places}f}" for step in range(steps)]
    probe = Probe(names, hide)
    read, trace, weights = network.trace(features_batch([features]).to(model.device), probe)
    log_probs = read.log_probs[0, : int(read.lengths[0])]
    said = best_path(log_probs.detach().cpu()).labels
    wanted, follows, notes = _followed(labels, log_probs, list(said), text, truth, target)
    loss = ctc_loss(log_probs, torch.tensor(wanted, dtype=torch.int64), reduction="sum")
    beams, why_not = _searched(log_probs.detach().cpu(), labels, beam)
    kept = probe.tokens = names[: len(log_probs)]
    reasons = {**NO_GATES, "attention": "A recurrent recogniser has no attention.", "beams": why_not}
    return ModelTrace(
        "recognize",
        labels.text(said) or "(nothing)",
        [labels.text(wanted) or "(nothing)"],
        loss[None],
        () if trace is None else (Part("", kept, trace),),
        {"input": probe},
        attention={} if weights is None else {"frame → frame": AttentionMap(kept, kept, weights)},
        beams=beams,
        frames=_frames(model, log_probs.detach(), wanted, features, moment(len(log_probs))),
        reasons=reasons if trace is not None else reasons | (PLANE if weights is None else TRANSFORMER),
        truth=truth,
        right=None if truth is None else labels.text(said) == labels.text(labels.ids(truth)) == truth,
        follows=follows,
        notes=notes,
    )


def _frames(
    model: Model, log_probs: Tensor, wanted: Sequence[int], features: NDArray[np.float32], end: float
) -> Frames:
    """The posteriors of each frame, and the alignment of the wanted labels."""
    labels, reader = model.assets.labels, model.assets.reader
    return Frames(
        log_probs.exp().cpu(),
        list(labels.names),
        ctc_align(log_probs, wanted).path,
        reader.kind,
        reader.unit,
        end,
        torch.from_numpy(features.reshape(len(features), -1).copy()),
        lattice=ctc_occupancy(log_probs, wanted),
        states=tuple(labels.names[wanted[s // 2]] if s % 2 else BLANK for s in range(2 * len(wanted) + 1)),
    )


def _followed(
    labels: Labels, log_probs: Tensor, said: list[int], text: str, truth: str | None, target: str | None
) -> tuple[list[int], str, tuple[str, ...]]:
    """The labels that are aligned and whose loss is followed, whose they are, and what to say about it."""
    if text:
        if not (wanted := labels.ids(text)):
            raise UserError(f"The model knows no label of text={text!r}.", f"It knows: {' '.join(labels.names[1:30])}")
        return list(wanted), "text", ()
    if not follows_truth(truth, target):
        return said, "answer", ()
    assert truth is not None
    wanted = list(labels.ids(truth))
    needed = len(wanted) + sum(a == b for a, b in itertools.pairwise(wanted))
    if needed > len(log_probs):
        return said, "answer", (
            f"The truth needs {needed} frames and there are {len(log_probs)}, so the answer's loss is shown.",
        )  # fmt: skip
    return wanted, "truth", ()


def _searched(log_probs: Tensor, labels: Labels, beam: int) -> tuple[Beams | None, str]:
    """The prefixes that the search holds after each frame as a tree, or the reason it is missing."""
    if beam < 1:
        raise UserError(f"beam={beam} is not above 0.", "Use 1 or more.")
    if len(log_probs) > MOST_SEARCHED:
        return None, f"The search is shown for up to {MOST_SEARCHED:,} frames; this input has {len(log_probs):,}."
    held: list[Held] = []
    plain_prefix_search(log_probs.double().tolist(), beam, 0, True, math.inf, held.append)
    tree = Beams.of_frames(held, labels.names.__getitem__, lambda ids: labels.text(ids) or "(nothing)")
    return (tree, "") if tree.nodes else (None, "The search held nothing but silence: there is no tree to draw.")
