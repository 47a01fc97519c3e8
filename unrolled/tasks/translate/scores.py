"""Scores of translations on a file, over all and by the source's length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unrolled.data import Pair, read_pairs, read_parallel
from unrolled.metrics.phones import error_rate_name
from unrolled.metrics.recognition import ReferenceKind, nearest_error_rate
from unrolled.metrics.translation import bleu_tokenizer, by_length, translation_scores
from unrolled.search.ctc.label_text import label_text
from unrolled.tasks.shared.dictionary import with_dictionary
from unrolled.tasks.shared.references import told_apart
from unrolled.tasks.shared.side import Side
from unrolled.tasks.shared.writing import WritingOptions, named
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.predict import translate

if TYPE_CHECKING:
    from unrolled.model import Model


def evaluate_file(
    model: Model,
    path: str | Path | tuple[str | Path, ...],
    target: str | Path | Sequence[str | Path] | None = None,
    reference_kind: ReferenceKind | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Scores on a table of pairs, or on two files, sources and targets; several targets are references alike.

    Empty lines count like all others. `reference_kind` says whether targets are words or labels, where a lexicon
    makes words of labels.
    """
    config: Any = model.config
    settings = config.data
    if target is not None and not isinstance(path, tuple):
        path = (path, *([target] if isinstance(target, (str, Path)) else target))
    if isinstance(path, tuple):
        pairs = read_parallel(*path)
    else:
        pairs = read_pairs(path, source_column=settings.source_column, target_column=settings.target_column)
    return score_file(model, pairs, WritingOptions(**options), reference_kind)


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
