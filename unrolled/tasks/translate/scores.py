"""Scores of translations: on a file, by the source's length, and what it costs a model to read its own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from unrolled.data import Pair
from unrolled.metrics.translation import bleu_of, bleu_tokenizer, by_length, chrf_of, translation_scores
from unrolled.model import Model
from unrolled.tasks.shared.side import Side
from unrolled.tasks.shared.writing import FreeRun, Ids, WritingOptions
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.batches import pair_batch
from unrolled.tasks.translate.predict import translate

SHOWN = 3  # translations shown while a model learns


def score_file(model: Model, pairs: Sequence[Pair], options: WritingOptions = WritingOptions()) -> dict[str, Any]:  # noqa: B008, it is frozen
    """Translates every source and holds the results to the targets."""
    assets: TranslateAssets = model.assets
    outputs = translate(model, [pair.source for pair in pairs], options)
    texts, references = [output.text for output in outputs], [pair.target for pair in pairs]
    lowercase = assets.target.tokenizer.lowercase
    tokenize = bleu_tokenizer(references, symbols=assets.target.tokenizer.level == "symbols")
    scores = translation_scores(texts, [references], tokenize=tokenize, lowercase=lowercase)
    lengths = [source_length(assets.source, pair.source) for pair in pairs]
    return {
        **asdict(scores),
        "pairs": len(pairs),
        "empty": sum(pair.empty for pair in pairs),
        "not_ended": sum(not output.ended for output in outputs),
        "longer_than_training": sum(len(assets.source.ids(pair.source)) + 1 > assets.longest_source for pair in pairs),
        "unknown_tokens": sum(assets.source.unknowns(pair.source) for pair in pairs),
        "by_length": by_length(lengths, texts, references, tokenize=tokenize, lowercase=lowercase),
    }


def source_length(side: Side, text: str) -> int:
    """The words of a source, or its tokens where these are characters or symbols."""
    return len(side.ids(text)) if side.tokenizer.level in ("char", "symbols") else len(text.split())


def length_table(by_length: Mapping[str, Mapping[str, Any]]) -> str:
    """BLEU by the source's length, for a person to read."""
    lines = ["source length    BLEU  exact match  sentences"]
    for name, row in by_length.items():
        lines.append(f"{name:>13}  {row['bleu']:6.2f}  {row['exact_match']:11.4f}  {row['sentences']:9,}")
    return "\n".join(lines)


def exposure(model: Model, pairs: Sequence[tuple[Ids, Ids]]) -> tuple[dict[str, float], list[str]]:
    """What greedy translations of some pairs are worth, and how much worse a model is for reading its own words.

    Also, to be shown, a few sources with their references and translations.
    """
    assets: TranslateAssets = model.assets
    network: Any = model.network.eval()
    run = FreeRun(assets.target, [])
    for first in range(0, len(pairs), 64):
        part = pairs[first : first + 64]
        most = max(assets.most_tokens(len(source) + 1) for source, _ in part)
        run.add(network, pair_batch(assets, part).to(model.device), [target for _, target in part], most)
    outputs = [assets.target.text(tokens) for tokens in run.outputs]
    references = [assets.target.text(target.tolist()) for _, target in pairs]
    lowercase = assets.target.tokenizer.lowercase
    tokenize = bleu_tokenizer(references, symbols=assets.target.tokenizer.level == "symbols")
    shown = [
        f"{assets.source.text(pairs[i][0].tolist())}\n  is      {references[i]}\n  became  {outputs[i]}"
        for i in range(0, len(outputs), max(1, len(outputs) // SHOWN))
    ]
    scores = {
        "bleu": bleu_of(outputs, references, tokenize=tokenize, lowercase=lowercase),
        "chrf": chrf_of(outputs, references, lowercase=lowercase),
        "exact_match": sum(a == b for a, b in zip(outputs, references, strict=True)) / len(outputs),
        **run.rates(),
    }
    return scores, shown[:SHOWN]
