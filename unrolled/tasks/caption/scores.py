"""Scores of captions: on a file, and with greedy decoding in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from unrolled.data.batching.ragged import Ragged
from unrolled.data.readers.media.captions import Captioned
from unrolled.metrics.captions import CaptionScores, caption_scores
from unrolled.metrics.translation import bleu_tokenizer
from unrolled.model import Model
from unrolled.tasks.caption.assets import CaptionAssets, view_arrays
from unrolled.tasks.caption.batches import PictureCaption
from unrolled.tasks.caption.predict import CaptionAnswer, describe
from unrolled.tasks.shared.free_run import FreeRun, samples
from unrolled.tasks.shared.side import with_targets
from unrolled.tasks.shared.writing import WritingOptions, named
from unrolled.training import Evaluation

AT_ONCE = 64  # pictures in a batch when there are no gradients
SHOWN_SCORES = ("bleu1", "bleu4", "chrf", "cider", "words")  # of each search


def score_pictures(model: Model, examples: Sequence[Captioned], options: WritingOptions) -> dict[str, Any]:
    """Scores of a search, and a table with those of greedy captions beside them."""
    views = [example.view for example in examples]
    searches = {named(one): one for one in (WritingOptions(beam=1), options)}
    found = {name: describe(model, views, one) for name, one in searches.items()}
    table = {name: _scores(model, [one.text for one in answers], examples) for name, answers in found.items()}
    search = named(options)
    return {
        **asdict(table[search]),
        "search": search,
        "pictures": len(examples),
        "captions": sum(len(example.captions) for example in examples),
        "not_ended": sum(not answer.ended for answer in found[search]),
        "searches": {name: {**_numbers(scores), "words": _mean_words(found[name])} for name, scores in table.items()},
    }


def search_table(table: Mapping[str, Mapping[str, float]]) -> str:
    """The scores of each search for a person to read."""
    width = max(map(len, [*table, "search"]))
    lines = [f"{'search':<{width}}  " + "  ".join(f"{name:>6}" for name in SHOWN_SCORES)]
    lines += [
        f"{name:<{width}}  " + "  ".join(f"{row[one]:6.2f}" for one in SHOWN_SCORES) for name, row in table.items()
    ]
    return "\n".join(lines)


def exposure(model: Model, captions: Sequence[PictureCaption]) -> Evaluation:
    """Scores of greedy captions of pictures, each with its first caption, and the exposure gap; a few are shown."""
    assets: CaptionAssets = model.assets
    run = FreeRun(assets.target, forbid_unknown=True)  # as `eval --beam 1` writes
    for first in range(0, len(captions), AT_ONCE):
        part = captions[first : first + AT_ONCE]
        ids = [one.ids for one in part]
        batch = with_targets(view_arrays([one.example.view for one in part]), assets.target, Ragged.of(ids))
        run.add(model.network.eval(), batch.to(model.device), ids, assets.most_tokens)
    outputs, pictures = run.texts, [one.example for one in captions]
    shown = samples([one.captions[0] for one in pictures], outputs, [one.name for one in pictures])
    return Evaluation({**_numbers(_scores(model, outputs, pictures)), **run.rates()}, shown)


def _scores(model: Model, outputs: Sequence[str], examples: Sequence[Captioned]) -> CaptionScores:
    references = [example.captions for example in examples]
    tokenize = bleu_tokenizer([texts[0] for texts in references])
    return caption_scores(outputs, references, tokenize=tokenize, lowercase=model.assets.target.tokenizer.lowercase)


def _numbers(scores: CaptionScores) -> dict[str, float]:
    return {name: value for name, value in asdict(scores).items() if isinstance(value, float)}


def _mean_words(answers: Sequence[CaptionAnswer]) -> float:
    return sum(len(answer.text.split()) for answer in answers) / max(1, len(answers))
