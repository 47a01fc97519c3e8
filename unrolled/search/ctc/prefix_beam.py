"""CTC decoding without a dictionary: the best path, and prefix beam search."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError, note, unknown_name
from unrolled.kernels.ctc.alignment import align, align_native, spans_of
from unrolled.kernels.native_module import NATIVE
from unrolled.search.ctc.decoded import Decoded
from unrolled.search.ctc.hotwords import Hotwords
from unrolled.search.ctc.label_scores import LabelScores
from unrolled.search.ctc.posteriors import as_log_probs
from unrolled.search.limits import MERGES, check_beam, margin_for
from unrolled.search.ngram import NGram
from unrolled.search.scorers.scorer import Scorer

BACKENDS = ("auto", "native", "reference")


def best_path(posteriors: Any, blank: int = 0, kind: str = "log_probs") -> Decoded:
    """The likeliest label of each frame, repeated ones as one, without blanks (greedy decoding).

    >>> found = best_path([[0.1, 0.9], [0.2, 0.8], [0.7, 0.3]], kind="probs")
    >>> found.labels, found.spans
    ([1], [(0, 2)])
    """
    log_probs = as_log_probs(posteriors, kind)
    check_blank(blank, log_probs.shape[1])
    path = log_probs.argmax(1)
    scores = np.take_along_axis(log_probs, path[:, None], 1)
    labels, spans, frame = [], [], 0
    for label, group in itertools.groupby(path.tolist()):
        length = len(list(group))
        if label != blank:
            labels.append(label)
            spans.append((frame, frame + length))
        frame += length
    return Decoded(float(scores.astype(np.float64).sum()), labels, spans)


def prefix_search(
    posteriors: Any,
    beam: int = 100,
    *,
    blank: int = 0,
    merge: str = "sum",
    margin: float | None = None,
    n_best: int = 1,
    kind: str = "log_probs",
    backend: str = "auto",
    scorers: Sequence[Scorer] = (),
    hotwords: Hotwords | None = None,
) -> list[Decoded]:
    """The `n_best` likeliest labellings of (T, V) posteriors, best first.

    After each frame the `beam` best beginnings are kept, none more than `margin` nats below the best: 10 for the best
    labelling alone, no limit for several, unless it is given. Paths that read the same are added up (`merge="sum"`), or
    the best of them counts (`merge="max"`). With a beam as large as all labellings and `margin=math.inf` the result is
    exact. The spans are those of the best single path. With `scorers` the Python search runs.
    `hotwords` are phrases to prefer.

    >>> frames = [[0.4, 0.6], [0.6, 0.4]]  # the best path reads "a", and so do most of the others
    >>> [(one.labels, round(math.exp(one.score), 2)) for one in prefix_search(frames, kind="probs", n_best=2)]
    [([1], 0.76), ([], 0.24)]
    """
    log_probs = as_log_probs(posteriors, kind)
    check_blank(blank, log_probs.shape[1])
    check_beam(margin, beam=beam, n_best=n_best)
    limit = margin_for(margin, n_best)
    if merge not in MERGES:
        raise unknown_name("merge", merge, MERGES)
    found: Sequence[tuple[float, Sequence[int]]]
    if choose_backend(backend, scorers) == "native":
        hot = None if hotwords is None else hotwords.native
        search = NATIVE.PrefixSearch(log_probs.shape[1], blank, beam, limit, merge == "sum", hot)
        search.feed(log_probs.ctypes.data, *log_probs.shape)
        found = search.best(n_best)
    else:
        if hotwords is not None:
            scorers = (*scorers, hotwords)
        extra = LabelScores(scorers, log_probs.shape[1]) if scorers else None
        frames = log_probs.tolist()
        found = plain_prefix_search(frames, beam, blank, merge == "sum", limit, extra=extra)[:n_best]
    return [Decoded(score, list(labels), _spans(log_probs, labels, blank)) for score, labels in found]


def _spans(log_probs: NDArray[np.float32], labels: Sequence[int], blank: int) -> list[tuple[int, int]]:
    if not labels:
        return []
    _, path = align(log_probs.tolist(), labels, blank) if NATIVE is None else align_native(log_probs, labels, blank)
    return spans_of(path, len(labels))


def plain_prefix_search(
    frames: Sequence[Sequence[float]],
    beam: int,
    blank: int,
    add: bool,
    margin: float,
    watch: Callable[[list[tuple[float, tuple[int, ...]]]], None] | None = None,
    extra: LabelScores | None = None,
) -> list[tuple[float, tuple[int, ...]]]:
    """Labellings and their scores, best first; `watch` gets those that are kept after each frame.

    `extra` are the scores that scorers add. Each labelling has two scores: of its paths that end in a blank, and of
    those that end in its last label. Only after a blank does the same label count again.
    """
    Scores = tuple[float, float]

    def total(labels: tuple[int, ...], scores: Scores) -> float:
        score = merged(*scores, add)
        return score if extra is None or score == -math.inf else score + extra.total(labels)

    beginnings: dict[tuple[int, ...], Scores] = {(): (0.0, -math.inf)}
    for x in frames:
        stays: dict[tuple[int, ...], Scores] = {}
        for labels, (blank_score, label_score) in beginnings.items():
            again = label_score + x[labels[-1]] if labels else -math.inf
            stays[labels] = (merged(blank_score, label_score, add) + x[blank], again)
        longer: dict[tuple[int, ...], Scores] = {}
        for labels, (blank_score, label_score) in beginnings.items():
            for label, score in enumerate(x):
                if label == blank:
                    continue
                doubled = bool(labels) and labels[-1] == label
                arrival = (blank_score if doubled else merged(blank_score, label_score, add)) + score
                new = (*labels, label)
                if new in stays:
                    stays[new] = (stays[new][0], merged(stays[new][1], arrival, add))
                else:
                    longer[new] = (-math.inf, arrival)
        totals = [(total(labels, scores), labels) for labels, scores in (stays | longer).items()]
        totals = [one for one in totals if one[0] > -math.inf]
        totals.sort(key=lambda one: -one[0])  # stable: what stays comes before what is new
        kept = [labels for score, labels in totals[:beam] if score >= totals[0][0] - margin]
        beginnings = {labels: (stays | longer)[labels] for labels in kept}
        if watch is not None:
            watch(totals[: len(kept)])
    found = [(total(labels, scores), labels) for labels, scores in beginnings.items()]
    if extra is None:
        return found
    return sorted(((extra.final(labels, score), labels) for score, labels in found), key=lambda one: -one[0])


def merged(a: float, b: float, add: bool) -> float:
    """log(e^a + e^b), or the larger."""
    most, least = max(a, b), min(a, b)
    if not add or least == -math.inf or most - least > 40:
        return most
    return most + math.log1p(math.exp(least - most))


def choose_backend(backend: str, scorers: Sequence[Scorer] = (), lm: object = None) -> str:
    """The engine of a search: scorers and language models written in Python need the Python search."""
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    python = "Scorers run" if scorers else "This language model runs" if not isinstance(lm, NGram | None) else None
    if python is not None and backend == "native":
        raise UserError(f"{python} in the Python search alone.", "Use backend='auto' or 'reference'.")
    if python is not None:
        if backend == "auto":
            note(f"{python} in the Python search, which is slower than the C++ one.")
        return "reference"
    if backend == "native" and NATIVE is None:
        raise UserError("The backend 'native' was not built.", "Use backend='auto'.")
    return "native" if backend != "reference" and NATIVE is not None else "reference"


def check_blank(blank: int, labels: int) -> None:
    if not 0 <= blank < labels:
        raise UserError(f"blank={blank} is not one of the {labels} labels.", f"Use a number from 0 to {labels - 1}.")
