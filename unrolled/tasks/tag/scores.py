"""Scores of a tagger, and their report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.config import title_of
from unrolled.data.readers.tagged.frames import Tagged, holds_frames, read_tagged_frames
from unrolled.data.readers.tagged.read_sentences import format_of, read_sentences
from unrolled.data.readers.tagged.sentences import Sentence
from unrolled.errors import note
from unrolled.metrics import class_scores
from unrolled.metrics.spans import overlap_f1, runs_of, span_scores, spans_of
from unrolled.tasks.runner import plain_scores, table_of
from unrolled.tasks.tag.assets import TagAssets, check_kind
from unrolled.tasks.tag.batches import unlabelled
from unrolled.tasks.tag.columns import columns_of, frame_columns_of
from unrolled.tasks.tag.predict import paths_of, settings_of

if TYPE_CHECKING:
    from unrolled.model import Model
    from unrolled.tasks.tag.config import TagData


def evaluate_file(model: Model, path: str | Path) -> dict[str, Any]:
    """Scores on a file; tables of them are dictionaries."""
    settings = settings_of(model)
    examples = not_empty(settings, path, model.assets.frame_columns)
    check_kind(examples, model.assets.frames)
    if settings.tag_column is not None and not model.assets.frames and format_of(Path(path)) == "conllu":
        note(f"{path} is CoNLL-U: its column {settings.column} is compared, and data.tag_column does not apply.")
    scores, tables = score_tags(model, examples, paths_of(model, unlabelled(model, examples)))
    known = set(model.assets.tags.tokens)
    strange = next((one for one in examples if not known.issuperset(one.tags or ())), None)
    if strange is not None:
        names = sorted({tag for one in examples for tag in one.tags or ()} - known)
        note(
            f"{scores['unknown_labels']} tags were never seen in training, and count as wrong: "
            f"{', '.join(names[:5])} (first: {strange.place})."
        )
    return {**scores, **tables}


def not_empty(settings: TagData, path: str | Path, features: tuple[str, ...] = ()) -> Sequence[Tagged]:
    """The sentences or frames of a file, without empty ones; `features` are the columns of frames that were learnt."""
    examples: Sequence[Tagged]
    if holds_frames(path):
        columns = frame_columns_of(settings)
        examples, what = read_tagged_frames(path, replace(columns, features=features or columns.features)), "sequences"
    else:
        examples, what = read_sentences(path, columns_of(settings)), "sentences"
    found = [one for one in examples if len(one)]
    if len(found) < len(examples):
        note(f"{len(examples) - len(found)} empty {what} of {title_of(path)} are left out.")
    return found


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
