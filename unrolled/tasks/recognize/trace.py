"""A recogniser laid open on one recording, line or sequence of frames: posteriors over time, and the layers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.errors import UserError
from unrolled.models.recognizer import Recognizer
from unrolled.nn.ctc import ctc_align, ctc_loss, ctc_occupancy
from unrolled.search.ctc import best_path
from unrolled.search.ctc.prefix_beam import plain_prefix_search
from unrolled.see import AttentionMap, Beams, Frames, ModelTrace, Part, Probe, check_memory
from unrolled.see.beams import Held
from unrolled.see.options import HIDE, TARGET, TRUTH, TraceOption, follows_truth
from unrolled.tasks.recognize.batches import features_batch
from unrolled.tasks.recognize.labels import BLANK, Labels

OPTIONS = (
    HIDE,
    TRUTH,
    TARGET,
    TraceOption("text", "", "A text to align, whose loss is followed back in place of truth or answer.", str),
    TraceOption("beam", 6, "Beginnings that a search holds after each frame.", int),
)

MOST_SEARCHED = 1500  # frames; the search that can be watched is a slow one


def trace_recognizer(
    network: Recognizer,
    labels: Labels,
    features: NDArray[np.float32],
    moment: Callable[[int], float],
    kind: str,
    unit: str,
    *,
    hide: Sequence[int],
    truth: str | None,
    target: str | None,
    text: str,
    beam: int,
) -> ModelTrace:
    """Posteriors, the alignment of a text, and −log P(text) as the one loss; `moment` says when a step begins.

    The text is the one asked for, else the truth where it is known, else what was recognised.
    """
    if not len(features):
        raise UserError("There is nothing to trace.", "Give an input that is not empty.")
    network.eval()
    check_memory(len(features), network, "steps")
    steps = -(-len(features) // network.time_factor)
    names = [f"{moment(step):.2f}" if unit == "seconds" else f"{moment(step):.0f}" for step in range(steps)]
    batch = features_batch([features]).to(next(network.parameters()).device)
    probe = Probe(names, hide)
    read, trace, weights = network.trace(batch, probe)
    log_probs = read.log_probs[0, : int(read.lengths[0])]
    said = best_path(log_probs.detach().cpu()).labels
    wanted, follows, notes = _followed(labels, log_probs, list(said), text, truth, target)
    loss = ctc_loss(log_probs, torch.tensor(wanted, dtype=torch.int64), reduction="sum")
    alignment = ctc_align(log_probs.detach(), wanted).path
    frames = Frames(
        log_probs.detach().exp().cpu(),
        list(labels.names),
        alignment,
        kind,
        unit,
        moment(len(log_probs)),
        torch.from_numpy(features.reshape(len(features), -1).copy()),
        lattice=ctc_occupancy(log_probs.detach(), wanted),
        states=tuple(labels.names[wanted[s // 2]] if s % 2 else BLANK for s in range(2 * len(wanted) + 1)),
    )
    beams, why_not = _searched(log_probs.detach().cpu(), labels, beam)
    kept = probe.tokens = names[: len(log_probs)]
    missing = {
        "gates": "A vanilla RNN has no gates.",
        "attention": "A recurrent recogniser has no attention.",
        "beams": why_not,
    }
    if trace is None:
        for kind in ("states", "gates", "norms", "flow"):
            missing[kind] = "A Transformer has no recurrent states and no gates: look at its attention."
    return ModelTrace(
        "recognize",
        labels.text(said) or "(nothing)",
        [labels.text(wanted) or "(nothing)"],
        loss[None],
        () if trace is None else (Part("", kept, trace),),
        {"input": probe},
        attention={} if weights is None else {"frame → frame": AttentionMap(kept, kept, weights)},
        beams=beams,
        frames=frames,
        reasons=missing,
        truth=truth,
        right=None if truth is None else labels.text(said) == labels.text(labels.ids(truth)) == truth,
        follows=follows,
        notes=notes,
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
    """The tree of beginnings that prefix search holds, frame after frame; or why there is none."""
    if beam < 1:
        raise UserError(f"beam={beam} is not above 0.", "Use 1 or more.")
    if len(log_probs) > MOST_SEARCHED:
        return None, f"The search is shown for up to {MOST_SEARCHED:,} frames; this input has {len(log_probs):,}."
    held: list[Held] = []
    plain_prefix_search(log_probs.double().tolist(), beam, 0, True, math.inf, held.append)
    tree = Beams.of_frames(held, labels.names.__getitem__, lambda ids: labels.text(ids) or "(nothing)")
    return (tree, "") if tree.nodes else (None, "The search held nothing but silence: there is no tree to draw.")
