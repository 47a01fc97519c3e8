"""Scores of translations: on a file, by the source's length, and what it costs a model to read its own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unrolled.data import Pair
from unrolled.metrics.translation import bleu_of, bleu_tokenizer, by_length, chrf_of, translation_scores
from unrolled.model import Model
from unrolled.search import Sampling, sample
from unrolled.tasks.translate_batch import pair_batch
from unrolled.tasks.translate_run import RunOptions, translate
from unrolled.tasks.translate_text import Side, TranslateAssets

Ids = NDArray[np.int32]
SHOWN = 3  # translations shown while a model learns


def score_file(model: Model, pairs: Sequence[Pair], options: RunOptions = RunOptions()) -> dict[str, Any]:  # noqa: B008, it is frozen
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


@torch.no_grad()
def exposure(model: Model, pairs: Sequence[tuple[Ids, Ids]]) -> tuple[dict[str, float], list[str]]:
    """What greedy translations of some pairs are worth, and how much worse a model is for reading its own words.

    `forced` is the share of target tokens, ends counted, that it gets right when it reads the true ones before them,
    `free` the share that stands right when it reads its own; the gap is their difference. Also, to be shown, a few
    sources with their references and translations.
    """
    assets: TranslateAssets = model.assets
    network: Any = model.network.eval()
    forced = free = tokens = 0
    sources, outputs, references = [], [], []
    for first in range(0, len(pairs), 64):
        part = pairs[first : first + 64]
        batch = pair_batch(assets, part).to(model.device)
        best = network.scores(network(batch).features).argmax(-1).cpu()
        written = sample(
            network,
            [[assets.target.begin]] * len(part),
            max_tokens=max(assets.most_tokens(len(source) + 1) for source, _ in part),
            memory=network.encode(batch),
            sampling=Sampling(temperature=0),
            end_tokens=[assets.target.end],
            forbidden=[assets.target.begin],
        )
        for row, ((source, target), output) in enumerate(zip(part, written, strict=True)):
            truth = [*target.tolist(), assets.target.end]
            tokens += len(truth)
            forced += sum(a == b for a, b in zip(best[row].tolist(), truth, strict=False))
            free += sum(a == b for a, b in zip([*output.tokens, assets.target.end], truth, strict=False))
            sources.append(assets.source.text(source.tolist()))
            outputs.append(assets.target.text(output.tokens))
            references.append(assets.target.text(target.tolist()))
    lowercase = assets.target.tokenizer.lowercase
    tokenize = bleu_tokenizer(references, symbols=assets.target.tokenizer.level == "symbols")
    shown = [
        f"{sources[i]}\n  is      {references[i]}\n  became  {outputs[i]}"
        for i in range(0, len(outputs), max(1, len(outputs) // SHOWN))
    ]
    scores = {
        "bleu": bleu_of(outputs, references, tokenize=tokenize, lowercase=lowercase),
        "chrf": chrf_of(outputs, references, lowercase=lowercase),
        "exact_match": sum(a == b for a, b in zip(outputs, references, strict=True)) / len(outputs),
        "forced_accuracy": forced / tokens,
        "free_accuracy": free / tokens,
        "exposure_gap": (forced - free) / tokens,
    }
    return scores, shown[:SHOWN]
