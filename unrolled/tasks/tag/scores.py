"""Scores of a tagger, and their report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.metrics import class_scores
from unrolled.metrics.spans import span_scores
from unrolled.model import Model
from unrolled.tasks.runner import plain_scores, table_of
from unrolled.tasks.tag.assets import TagAssets


def score_tags(
    model: Model, sentences: Sequence[Sentence], paths: list[list[int]]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Numbers, and tables by tag and by kind of span."""
    assets: TagAssets = model.assets
    named = [assets.names(path) for path in paths]
    truth = np.array([tag for s in sentences for tag in assets.tag_ids(s.tags or ())])
    answers = np.array([tag for tags in named for tag in assets.tag_ids(tags)])
    tags, _ = class_scores(truth, answers, len(assets.tags))
    scores = {"accuracy": tags.accuracy, "macro_f1": tags.macro_f1}
    tables: dict[str, Any] = {}
    if assets.scheme is not None:
        spans, tables["spans"] = span_scores([s.tags or () for s in sentences], named)
        scores = spans | scores
    seen = {*truth.tolist(), *answers.tolist()}
    rows = zip(assets.tags, tags.precision, tags.recall, tags.f1, tags.support, strict=True)
    tables["tags"] = {
        tag: {"precision": float(p), "recall": float(r), "f1": float(f), "count": int(n)}
        for number, (tag, p, r, f, n) in enumerate(rows)
        if number in seen
    }
    trained = np.concatenate([assets.trained(s.words) for s in sentences])
    for name, chosen in (("known", trained), ("unknown", ~trained)):
        if chosen.any():
            scores[f"{name}_word_accuracy"] = float((truth == answers)[chosen].mean())
    scores |= {"sentences": len(sentences), "tokens": len(truth), "unknown_words": int((~trained).sum())}
    return scores | {"unknown_labels": int((truth < 0).sum())}, tables


def report(scores: Mapping[str, Any]) -> str:
    """The scores of a file for a person to read: overall, by kind of span and by tag."""
    tables = [_table(name, scores[name]) for name in ("spans", "tags") if name in scores]
    return "\n\n".join([table_of(plain_scores(scores)), *tables])


def _table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    width = max([len(title), *map(len, rows)])
    lines = [f"{title:<{width}}  precision  recall      f1   count"]
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["count"]):
        numbers = f"{row['precision']:9.4f}  {row['recall']:6.4f}  {row['f1']:6.4f}  {row['count']:6,}"
        lines.append(f"{name:<{width}}  {numbers}")
    return "\n".join(lines)
