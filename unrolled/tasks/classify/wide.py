"""The wide path of a classifier: which n-grams it reads, and its fit before training."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from unrolled.config.stored import DAMAGED, Size, stored_as
from unrolled.data.batching.ngrams import NgramCounts
from unrolled.errors import UserError
from unrolled.metrics.calibration import fit_temperature, fit_temperature_of_labels
from unrolled.text.ngrams import NgramKinds

if TYPE_CHECKING:
    from torch import Tensor

    from unrolled.models.linear_fit import Link, SparseRows
    from unrolled.models.wide import WidePath

MOST_FITTED = 200_000  # texts that the wide path is fitted on
MOST_SCORES = 50_000_000  # of these texts
MOST_WEIGHTS = 20_000_000
MOST_JUDGED = 20_000  # validation texts that choose the penalty
STRENGTHS = (1.0, 4.0, 16.0, 64.0, 256.0)  # 1 / (penalty · texts), as scikit-learn's C
FIRST = 2  # of these, with which the search begins
FOLDS = 5
PIECE = 20_000  # texts scored at once


@dataclass(frozen=True)
class WideShape:
    """The n-grams that the wide path reads, and how many of them it has seen. Stored in the model file."""

    kinds: NgramKinds
    rows: int

    def to_json(self) -> dict[str, Any]:
        words, letters, buckets, apart = self.kinds
        return {"words": words, "letters": list(letters), "buckets": buckets, "apart": apart, "rows": self.rows}

    @classmethod
    def from_json(cls, stored: Any) -> WideShape:
        found = stored_as(dict[str, Any], stored, "wide path")
        names = ("words", "buckets", "rows")
        if not {*names, "letters", "apart"} <= found.keys():
            raise UserError("The stored wide path is damaged: some of its sizes are missing.", DAMAGED)
        words, buckets, rows = (stored_as(Size, found[name], f"wide path ({name})") for name in names)
        letters = stored_as(tuple[Size, ...], found["letters"], "wide path (letters)")
        if rows > buckets or words > 5 or buckets > 2**24 or len(letters) not in (0, 2) or max(letters, default=1) > 10:
            raise UserError("The stored wide path is damaged: its sizes do not fit each other.", DAMAGED)
        return cls(NgramKinds(words, letters, buckets, stored_as(bool, found["apart"], "wide path (apart)")), rows)


@dataclass(frozen=True)
class WideTexts:
    """The n-grams of training texts, and those of them that the fit sees."""

    counts: NgramCounts
    fitted: NDArray[np.int64]  # numbers of the texts that it is fitted on
    entries: dict[str, NDArray[Any]]  # of these texts
    seen: NDArray[np.int64]  # buckets of n-grams in enough texts, rising
    scale: NDArray[np.float32]
    """Of each: ln((1 + N) / (1 + texts with it)) + 1, so that rare ones are penalised less; in names its root."""

    @classmethod
    def of(cls, counts: NgramCounts, least: int, outputs: int = 1) -> WideTexts:
        """`least` texts must have an n-gram; if there would be too many weights, rarer n-grams are left out."""
        kinds, most = counts.kinds, min(MOST_FITTED, max(1000, MOST_SCORES // outputs))
        fitted = np.arange(0, len(counts), -(-len(counts) // most))
        entries = counts.gather(fitted)
        seen, numbers = np.unique(entries["wide_ngrams"], return_counts=True)
        if not len(seen):  # all texts are empty
            seen, numbers = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
        enough = numbers >= min(least, max(1, len(fitted) // 20), int(numbers.max()))
        if enough.sum() > (rows := max(1, MOST_WEIGHTS // outputs)):
            enough[np.argsort(-numbers, kind="stable")[rows:]] = False
        scale = (np.log((1 + len(fitted)) / (1 + numbers[enough])) + 1) ** (1 if kinds.apart else 0.5)
        places, known = places_of(entries["wide_ngrams"], seen[enough])
        squares = float((np.where(known, entries["wide_weights"] * scale[places], 0.0) ** 2).sum())
        scale /= np.sqrt(max(squares, 1e-12) / len(fitted))  # rows of X have the length 1 on average
        return cls(counts, fitted, entries, seen[enough], scale.astype(np.float32))

    def matrix(self, entries: dict[str, NDArray[Any]]) -> SparseRows:
        """Rows of n-grams as a sparse matrix, scaled."""
        import torch

        from unrolled.models.linear_fit import SparseRows

        rows, known = places_of(entries["wide_ngrams"], self.seen)
        values = np.where(known, entries["wide_weights"] * self.scale[rows], np.float32(0))
        return SparseRows.of(rows, entries["wide_starts"], values, len(self.seen), torch.float32)


def places_of(ids: NDArray[Any], seen: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The place of each id among those seen, and whether it is there."""
    rows = np.minimum(np.searchsorted(seen, ids), len(seen) - 1)
    return rows, seen[rows] == ids


@dataclass(frozen=True)
class Answers:
    """The targets of the wide path, as `LinearProblem` takes them, and weights of examples or labels."""

    train: Tensor
    valid: Tensor
    link: Link
    weights: Tensor | None = None


def fit_wide(
    path: WidePath,
    texts: WideTexts,
    valid: NgramCounts,
    answers: Answers,
    penalty: float | None,
    *,
    unseen: bool,
) -> NDArray[np.float32] | None:
    """Fit the wide path; returns, if asked for, the scores of every training text by a fit that did not see it.

    The penalty is the one whose scores of the validation texts are best, at the best temperature. If none is better
    than the scores without n-grams, those are kept.
    """
    import torch

    from unrolled.models.linear_fit import LinearProblem

    chosen = torch.from_numpy(texts.fitted)
    weights = None if answers.weights is None else answers.weights[chosen]
    outputs = path.bias.numel()
    problem = LinearProblem(texts.matrix(texts.entries), answers.train[chosen], answers.link, outputs, weights)
    some = np.arange(0, len(valid), -(-len(valid) // MOST_JUDGED))
    judge = texts.matrix(valid.gather(some))
    penalty, point = _chosen(problem, judge, answers.valid[torch.from_numpy(some)], penalty)
    _store(path, texts, point)
    if not unseen:
        return None
    parts = np.array_split(np.arange(len(texts.counts)), -(-len(texts.counts) // PIECE))
    each = [texts.matrix(texts.counts.gather(part)).times(point[:-1]) + point[-1] for part in parts]
    scores = torch.cat(each).numpy()
    return scores if penalty is None else _unseen(problem, texts, penalty, scores)


def _store(path: WidePath, texts: WideTexts, point: Tensor) -> None:
    import torch

    path.places.zero_()
    path.places[torch.from_numpy(texts.seen)] = torch.arange(1, len(texts.seen) + 1, dtype=torch.int32)
    with torch.no_grad():
        path.weight.zero_()
        path.weight[1:] = point[:-1] * torch.from_numpy(texts.scale)[:, None]
        path.bias.copy_(point[-1])


def _chosen(problem: Any, judge: SparseRows, truth: Tensor, given: float | None) -> tuple[float | None, Tensor]:
    """The best penalty and a rough fit with it; None if the scores without n-grams are the best."""
    from unrolled.models.linear_fit import fit_linear

    number = problem.rows.shape[0]
    without = problem.without_rows()
    tried: dict[float, tuple[float, Tensor]] = {}

    def fit(penalty: float, start: Tensor) -> tuple[float, Tensor]:
        if penalty not in tried:
            point = fit_linear(problem, penalty, start)
            tried[penalty] = judged(judge.times(point[:-1]) + point[-1], truth, problem.link), point
        return tried[penalty]

    if given is not None:
        return given, fit(given, without)[1]
    penalties, at = [1 / (strength * number) for strength in STRENGTHS], FIRST
    best = fit(penalties[at], without)
    for step in (1, -1):  # on to weaker penalties while they are better; if the first is not, to stronger ones
        while 0 <= (place := at + step) < len(penalties):
            found = fit(penalties[place], best[1])
            if found[0] >= best[0]:
                break
            best, at = found, place
        if at != FIRST:
            break
    if judged(without[-1].expand(len(truth), -1), truth, problem.link) <= best[0]:
        return None, without
    return penalties[at], best[1]


def judged(scores: Tensor, truth: Tensor, link: str) -> float:
    """The mean loss of scores at their best temperature; the mean squared error of numbers."""
    import torch.nn.functional as F

    if link == "squared":
        return float((scores - truth).square().mean())
    if link == "sigmoid":
        scores = scores / fit_temperature_of_labels(scores.numpy(), truth.numpy())
        return float(F.binary_cross_entropy_with_logits(scores, truth))
    known = truth >= 0
    if not bool(known.any()):
        return 0.0
    return float(F.cross_entropy(scores[known] / fit_temperature(scores.numpy(), truth.numpy()), truth[known]))


def _unseen(problem: Any, texts: WideTexts, penalty: float, scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """The scores, each replaced by that of a fit on other texts; equal texts are in one fold."""
    import torch

    from unrolled.models.linear_fit import LinearProblem, fit_linear

    folds = fold_of(texts)
    if len(np.unique(folds)) < FOLDS:
        return scores
    for fold in range(FOLDS):
        inside, outside = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        matrix = texts.matrix(texts.counts.gather(texts.fitted[inside]))
        weights = None if problem.weights is None else problem.weights[torch.from_numpy(inside)]
        part = LinearProblem(matrix, problem.targets[torch.from_numpy(inside)], problem.link, problem.outputs, weights)
        point = fit_linear(part, penalty, part.without_rows())
        held = texts.matrix(texts.counts.gather(texts.fitted[outside]))
        scores[texts.fitted[outside]] = (held.times(point[:-1]) + point[-1]).numpy()
    return scores


def fold_of(texts: WideTexts) -> NDArray[np.int64]:
    """The fold of each fitted text, by its n-grams."""
    entries, bounds = texts.entries["wide_ngrams"], [*texts.entries["wide_starts"], len(texts.entries["wide_ngrams"])]
    return np.array([crc32(entries[a:b].tobytes()) % FOLDS for a, b in pairwise(bounds)])
