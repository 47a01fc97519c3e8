"""Facts and warnings about the text of a language model."""

from __future__ import annotations

from typing import Any

from unrolled.data import ContiguousWindows, ShuffledWindows
from unrolled.hub import Usage
from unrolled.model import Model
from unrolled.tasks.contract import Data, Description
from unrolled.tasks.generate.config import GenerateConfig, sized
from unrolled.tasks.generate.texts import count, ids_of
from unrolled.text import Tokenizer
from unrolled.training import Batches


class GenerateDescription(Description):
    def usage(self, model: Model) -> Usage:
        tokens: Tokenizer = model.assets
        return Usage(
            "It is a language model: it continues a text, and gives texts their probability.",
            "text-generation",
            '--prompt "It was"',
            'model.predict("It was")',
            (
                "It writes what is probable after a text, not what is true, and can repeat its training data.",
                f"Its tokens are of level {tokens.level}; it knows {len(tokens):,} of them.",
            ),
        )

    def warnings(self, config: GenerateConfig, batches: Batches) -> list[str]:
        steps, context = config.train.k1, sized(config).context or 0
        if isinstance(batches, ShuffledWindows):
            if batches.steps >= context:
                return []
            return [
                f"Note: training windows have {batches.steps} tokens and model.context={context}: the model does not "
                f"learn to use tokens further back. Use train.k1={context}, or a smaller model.context."
            ]
        assert isinstance(batches, ContiguousWindows)
        if batches.row_length >= steps:
            return []
        return [
            f"Note: the text makes rows of only {batches.row_length} tokens, fewer than train.k1={steps}. "
            "A smaller train.batch_size makes longer rows and more updates."
        ]

    def statistics(self, config: GenerateConfig, data: Data, assets: Tokenizer) -> dict[str, Any]:
        train, valid = (
            ids_of(assets, text, config.data.cache, config.data.cache_workers) for text in (data.train, data.valid)
        )
        facts = {
            "vocabulary": len(assets),
            "train tokens": len(train),
            "valid tokens": len(valid),
            "valid tokens unknown": count(valid, assets.vocabulary.unk),
        }
        return facts | (_line_facts(data) if isinstance(data.train, str) and isinstance(data.valid, str) else {})


def _line_facts(data: Data) -> dict[str, Any]:
    known, lines = set(data.train.splitlines()), [line for line in data.valid.splitlines() if line.strip()]
    lengths = [len(line) for line in data.train.splitlines()] or [0]
    shared = sum(line in known for line in lines)
    return {
        "line length, mean / longest": f"{sum(lengths) / len(lengths):.0f} / {max(lengths)} characters",
        "valid lines also in train": f"{shared} of {len(lines)}",
    }
