"""Scores of a tagger, and their report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.tagged.frames import Tagged
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.metrics import class_scores
from unrolled.metrics.spans import overlap_f1, runs_of, span_scores, spans_of
from unrolled.model import Model
from unrolled.tasks.runner import plain_scores, table_of
from unrolled.tasks.tag.assets import TagAssets


def score_tags(
    model: Model, examples: Sequence[Tagged], paths: list[list[int]]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Numbers, and tables by tag and by kind of span."""
    assets: TagAssets = model.assets
    named = [assets.names(path) for path in paths]
    true = [one.tags or () for one in examples]
    truth = np.array([tag for tags in true for tag in assets.tag_ids(tags)])
    answers = np.array([tag for tags in named for tag in assets.tag_ids(tags)])
    tags, _ = class_scores(truth, answers, len(assets.tags))
    scores = {"accuracy": tags.accuracy, "macro_f1": tags.macro_f1}
    tables: dict[str, Any] = {}
    if assets.scheme is not None:
        spans, tables["spans"] = span_scores(true, named)
        scores = spans | scores
    elif assets.frames:
        segments, tables["segments"] = span_scores(true, named, runs_of, "segment")
        scores |= segments
    if assets.frames:
        scores["overlap_f1"] = overlap_f1(true, named, runs_of if assets.scheme is None else spans_of)
    seen = {*truth.tolist(), *answers.tolist()}
    rows = zip(assets.tags, tags.precision, tags.recall, tags.f1, tags.support, strict=True)
    tables["tags"] = {
        tag: {"precision": float(p), "recall": float(r), "f1": float(f), "count": int(n)}
        for number, (tag, p, r, f, n) in enumerate(rows)
        if number in seen
    }
    if assets.frames:
        scores |= {"sequences": len(examples), "frames": len(truth)}
    else:
        scores |= _word_scores(assets, [one for one in examples if isinstance(one, Sentence)], truth == answers)
    return scores | {"unknown_labels": int((truth < 0).sum())}, tables


def _word_scores(assets: TagAssets, sentences: Sequence[Sentence], right: NDArray[np.bool_]) -> dict[str, float]:
    """Accuracy on words that training saw, and on others."""
    trained = np.concatenate([assets.trained(s.words) for s in sentences])
    scores: dict[str, float] = {}
    for name, chosen in (("known", trained), ("unknown", ~trained)):
        if chosen.any():
            scores[f"{name}_word_accuracy"] = float(right[chosen].mean())
    return scores | {"sentences": len(sentences), "tokens": len(right), "unknown_words": int((~trained).sum())}


def report(scores: Mapping[str, Any]) -> str:
    """The scores of a file for a person to read: overall, by kind of span and by tag."""
    tables = [_table(name, scores[name]) for name in ("spans", "segments", "tags") if name in scores]
    return "\n\n".join([table_of(plain_scores(scores)), *tables])


def _table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    width = max([len(title), *map(len, rows)])
    lines = [f"{title:<{width}}  precision  recall      f1   count"]
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["count"]):
        numbers = f"{row['precision']:9.4f}  {row['recall']:6.4f}  {row['f1']:6.4f}  {row['count']:6,}"
        lines.append(f"{name:<{width}}  {numbers}")
    return "\n".join(lines)
