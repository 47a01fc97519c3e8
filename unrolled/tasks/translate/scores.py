"""Scores of translations: on a file, by the source's length, and with greedy decoding in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from unrolled.data import Pair
from unrolled.metrics.phones import error_rate_name
from unrolled.metrics.recognition import ReferenceKind, nearest_error_rate
from unrolled.metrics.translation import bleu_of, bleu_tokenizer, by_length, chrf_of, translation_scores
from unrolled.model import Model
from unrolled.search.ctc.label_text import label_text
from unrolled.tasks.shared.dictionary import with_dictionary
from unrolled.tasks.shared.free_run import FreeRun, samples
from unrolled.tasks.shared.references import told_apart
from unrolled.tasks.shared.side import Ids, Side
from unrolled.tasks.shared.writing import WritingOptions, named
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.batches import pair_batch
from unrolled.tasks.translate.predict import translate
from unrolled.training import Evaluation


def score_file(
    model: Model,
    pairs: Sequence[Pair],
    options: WritingOptions = WritingOptions(),  # noqa: B008, it is frozen
    kind: ReferenceKind | None = None,
) -> dict[str, Any]:
    """Translate every source and compare the results with the targets, one or more for each.

    With a lexicon a model of symbols writes words. `kind` says whether the targets are words or symbols too; otherwise
    it is found from them.
    """
    assets: TranslateAssets = model.assets
    target = assets.target
    options = with_dictionary(options, target.tokenizer, form=target.form, end=target.end)
    references, lowercase = [pair.targets for pair in pairs], target.tokenizer.lowercase
    kind = _kind([text.lower() if lowercase else text for one in references for text in one], target, options, kind)
    outputs = translate(model, [pair.source for pair in pairs], options)
    spelt = kind == "labels" and options.lexicon is not None
    texts = [label_text(one.target_tokens, symbols=True) if spelt else one.text for one in outputs]
    tokenize = bleu_tokenizer([pair.target for pair in pairs], symbols=kind == "labels")
    scores = translation_scores(texts, references, tokenize=tokenize, lowercase=lowercase)
    sources = [assets.source.ids(pair.source) for pair in pairs]
    lengths = [source_length(assets.source, pair.source) for pair in pairs]
    return {
        **asdict(scores),
        **(symbol_scores(texts, references, target) if kind == "labels" else {}),
        **({"wer": nearest_error_rate(texts, references)} if kind == "words" else {}),
        "search": named(options),
        "pairs": len(pairs),
        **({"references": total} if (total := sum(map(len, references))) > len(pairs) else {}),
        "empty": sum(pair.empty for pair in pairs),
        "not_ended": sum(not output.ended for output in outputs),
        "longer_than_training": sum(len(ids) + 1 > assets.longest_source for ids in sources),
        "unknown_tokens": sum(map(assets.source.count_unknown, sources)),
        "by_length": by_length(lengths, texts, references, tokenize=tokenize, lowercase=lowercase),
    }


def _kind(
    references: Sequence[str], side: Side, options: WritingOptions, asked: ReferenceKind | None
) -> ReferenceKind | None:
    """The kind of the references; None if the model's tokens are no symbols."""
    lexicon = None if options.lexicon is None else options.lexicon.lexicon
    symbols, lowercase = side.tokenizer.level == "symbols", side.tokenizer.lowercase
    return told_apart(references, _symbols(side), lexicon, asked, symbols=symbols, lowercase=lowercase)


def _symbols(side: Side) -> tuple[str, ...]:
    vocabulary = side.tokenizer.vocabulary
    return vocabulary.tokens[len(vocabulary.specials) :]


def symbol_scores(outputs: Sequence[str], references: Sequence[Sequence[str]], side: Side) -> dict[str, float]:
    """The error rate of symbols by its name: `phone_error_rate`, or `label_error_rate` if they are not phones."""
    return {error_rate_name(_symbols(side)): nearest_error_rate(outputs, references)}


def source_length(side: Side, text: str) -> int:
    """The words of a source, or its tokens where these are characters or symbols."""
    return len(side.ids(text)) if side.tokenizer.level in ("char", "symbols") else len(text.split())


def length_table(by_length: Mapping[str, Mapping[str, Any]]) -> str:
    """BLEU by the source's length, for a person to read."""
    lines = ["source length    BLEU  exact match  sentences"]
    for name, row in by_length.items():
        lines.append(f"{name:>13}  {row['bleu']:6.2f}  {row['exact_match']:11.4f}  {row['sentences']:9,}")
    return "\n".join(lines)


def exposure(model: Model, pairs: Sequence[tuple[Ids, Ids]]) -> Evaluation:
    """Scores of greedy translations of some pairs, with the exposure gap; a few are shown."""
    assets: TranslateAssets = model.assets
    network: Any = model.network.eval()
    run = FreeRun(assets.target)
    for first in range(0, len(pairs), 64):
        part = pairs[first : first + 64]
        most = max(assets.most_tokens(len(source) + 1) for source, _ in part)
        run.add(network, pair_batch(assets, part).to(model.device), [target for _, target in part], most)
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
