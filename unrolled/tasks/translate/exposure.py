"""Scores of greedy translations in training, and the exposure gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unrolled.metrics.translation import bleu_of, bleu_tokenizer, chrf_of
from unrolled.model import Model
from unrolled.tasks.shared.free_run import FreeRun, Written, samples
from unrolled.tasks.shared.side import Ids
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.batches import pair_batch
from unrolled.tasks.translate.scores import symbol_scores
from unrolled.training import Evaluation

AT_ONCE = 64  # pairs in a batch when there are no gradients


def exposure(model: Model, pairs: Sequence[tuple[Ids, Ids]]) -> Evaluation:
    """Scores of greedy translations of some pairs, with the exposure gap; a few are shown."""
    assets: TranslateAssets = model.assets
    network: Any = model.network.eval()
    run = FreeRun(assets.target)

    def work(index: int) -> Written:
        part = pairs[index * AT_ONCE : (index + 1) * AT_ONCE]
        most = max(assets.most_tokens(len(source) + 1) for source, _ in part)
        return run.written(network, pair_batch(assets, part).to(model.device), [target for _, target in part], most)

    run.add(-(-len(pairs) // AT_ONCE), work)
    outputs = run.texts
    references = [assets.target.text(target.tolist()) for _, target in pairs]
    lowercase = assets.target.tokenizer.lowercase
    symbols = assets.target.tokenizer.level == "symbols"
    tokenize = bleu_tokenizer(references, symbols=symbols)
    scores = {
        "bleu": bleu_of(outputs, [[one] for one in references], tokenize=tokenize, lowercase=lowercase),
        "chrf": chrf_of(outputs, references, lowercase=lowercase),
        "exact_match": sum(a == b for a, b in zip(outputs, references, strict=True)) / len(outputs),
        **(symbol_scores(outputs, [[one] for one in references], assets.target) if symbols else {}),
        **run.rates(),
    }
    return Evaluation(scores, samples(references, outputs, [assets.source.text(one.tolist()) for one, _ in pairs]))
