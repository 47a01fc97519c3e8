"""Scores of captions on a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unrolled.data.readers.media.captions import Captioned, read_captioned, read_captions
from unrolled.data.signals.views import Shape
from unrolled.metrics.captions import CaptionScores, caption_scores
from unrolled.metrics.translation import bleu_tokenizer
from unrolled.tasks.caption.predict import CaptionAnswer, describe
from unrolled.tasks.shared.writing import WritingOptions, named

if TYPE_CHECKING:
    from unrolled.model import Model
    from unrolled.tasks.caption.config import CaptionData

SHOWN_SCORES = ("bleu1", "bleu4", "chrf", "cider", "words")  # of each search


def evaluate_file(model: Model, path: Any, images: str | Path | None = None, **options: Any) -> dict[str, Any]:
    """Scores on a file of captions, or on (file, pictures), with the search of `WritingOptions` and greedily."""
    config: Any = model.config
    table, images = path if isinstance(path, tuple) else (path, images or config.data.images)
    examples = read_examples(config.data, table, images, model.assets.shape)
    return score_pictures(model, examples, WritingOptions(**options))


def read_examples(
    settings: CaptionData, table: str | Path, images: str | Path | None, shape: Shape | None = None
) -> list[Captioned]:
    columns = {"image_column": settings.image_column, "caption_column": settings.caption_column}
    return read_captioned(read_captions(table, **columns), images, table, shape=shape, size=settings.size)


def score_pictures(model: Model, examples: Sequence[Captioned], options: WritingOptions) -> dict[str, Any]:
    """Scores of a search, and a table with those of greedy captions beside them."""
    views = [example.view for example in examples]
    searches = {named(one): one for one in (WritingOptions(beam=1), options)}
    found = {name: describe(model, views, one) for name, one in searches.items()}
    table = {name: caption_rates(model, [one.text for one in answers], examples) for name, answers in found.items()}
    search = named(options)
    return {
        **asdict(table[search]),
        "search": search,
        "pictures": len(examples),
        "captions": sum(len(example.captions) for example in examples),
        "not_ended": sum(not answer.ended for answer in found[search]),
        "searches": {
            name: {**plain_numbers(scores), "words": _mean_words(found[name])} for name, scores in table.items()
        },
    }


def search_table(table: Mapping[str, Mapping[str, float]]) -> str:
    """The scores of each search for a person to read."""
    width = max(map(len, [*table, "search"]))
    lines = [f"{'search':<{width}}  " + "  ".join(f"{name:>6}" for name in SHOWN_SCORES)]
    lines += [
        f"{name:<{width}}  " + "  ".join(f"{row[one]:6.2f}" for one in SHOWN_SCORES) for name, row in table.items()
    ]
    return "\n".join(lines)


def caption_rates(model: Model, outputs: Sequence[str], examples: Sequence[Captioned]) -> CaptionScores:
    """The scores of captions by all captions of their pictures."""
    references = [example.captions for example in examples]
    tokenize = bleu_tokenizer([texts[0] for texts in references])
    return caption_scores(outputs, references, tokenize=tokenize, lowercase=model.assets.target.tokenizer.lowercase)


def plain_numbers(scores: CaptionScores) -> dict[str, float]:
    """The scores that are numbers."""
    return {name: value for name, value in asdict(scores).items() if isinstance(value, float)}


def _mean_words(answers: Sequence[CaptionAnswer]) -> float:
    return sum(len(answer.text.split()) for answer in answers) / max(1, len(answers))
