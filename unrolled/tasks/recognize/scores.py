"""Scores of recognised texts: what each search gives on a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from unrolled.data.readers.media.transcripts import Transcribed
from unrolled.errors import UserError, note
from unrolled.metrics.recognition import recognition_scores
from unrolled.model import Model
from unrolled.search.ctc.tuning import tune as tune_weights
from unrolled.tasks.recognize.labels import Labels, RecognizeAssets
from unrolled.tasks.recognize.predict import Heard, hear, texts_of
from unrolled.tasks.recognize.search import RecognitionOptions, Search, loaded
from unrolled.tasks.runner import table_of

GREEDY = "greedy"


def score_file(
    model: Model, examples: Sequence[Transcribed], options: RecognitionOptions, tune: bool = False
) -> dict[str, Any]:
    """Reads every example in each way that the options ask for; the scores above the table are those of the last.

    With `tune` the weights of the lexicon and the language model are first set to those with the fewest errors.
    """
    assets: RecognizeAssets = model.assets
    labels = assets.labels
    if tune and options.lexicon is None:
        raise UserError("tune is for lm_weight and word_bonus, which need a lexicon.", "Give one (--lexicon).")
    inputs = [assets.reader.given(example.input, example.place) for example in examples]
    references = [labels.reference(example.text) for example in examples]
    options = loaded(options, labels)
    heard: Iterable[Sequence[Heard]] = hear(model, inputs, options.window)
    tuned: dict[str, Any] = {}
    if tune:
        heard = list(heard)  # the network reads every input once, the searches many times
        options, tuned = _tuned(heard, references, options, labels)
    searches = {name: Search(labels, one) for name, one in ways(options).items()}
    answers = texts_of(heard, len(inputs), searches, labels.glue)
    symbols = labels.level == "symbols"
    table = {name: asdict(recognition_scores(texts, references, symbols=symbols)) for name, texts in answers.items()}
    unknown = Counter(name for example in examples for name in labels.unknown(example.text))
    if unknown:
        first = next(example for example in examples if labels.unknown(example.text))
        shown = ", ".join(repr(name) for name, _ in unknown.most_common(5))
        note(
            f"Symbols never seen in training cannot be recognised. There are {unknown.total():,}, the first at "
            f"{first.place}: {shown}."
        )
    asked = list(table)[-1] if options.searches else GREEDY
    return {
        **table[asked],
        "search": asked,
        "examples": len(examples),
        "empty": sum(not text for text in answers[asked]),
        "unknown_symbols": unknown.total(),
        **tuned,
        "searches": table,
    }


def _tuned(
    heard: Sequence[Sequence[Heard]], references: Sequence[str], options: RecognitionOptions, labels: Labels
) -> tuple[RecognitionOptions, dict[str, Any]]:
    """The options with the best weights, and what to tell of them."""

    def errors(weight: float | None, bonus: float) -> tuple[float, float]:
        search = Search(labels, replace(options, lm_weight=weight, word_bonus=bonus, n_best=1))
        texts = texts_of(heard, len(references), {"": search}, labels.glue)[""]
        scores = recognition_scores(texts, references, symbols=labels.level == "symbols")
        return scores.wer, scores.cer

    given = {"lm_weight": options.lm_weight, "word_bonus": options.word_bonus}
    found = tune_weights(errors, has_lm=options.lm is not None, **given)
    chosen = replace(options, lm_weight=found.lm_weight, word_bonus=found.word_bonus)
    if found.tie:
        note(f"Of {len(found.tried)} settings the best: {found.options}. {found.tie}")
    return chosen, {"settings_tried": len(found.tried), "tuned": found.options}


def ways(options: RecognitionOptions) -> dict[str, RecognitionOptions]:
    """From the plainest search to the one that was asked for; n-best lists have no part in scores."""
    options = replace(options, n_best=1, beam=None if options.beam == 1 else options.beam)
    plain = RecognitionOptions(window=options.window)
    found = {GREEDY: plain, "beam": replace(plain, beam=options.beam or 100)}
    if options.lexicon is not None:
        words = "lexicon" if options.unknown_penalty is None else "open lexicon"
        found[words] = replace(options, lm=None, lm_weight=None)
        if options.lm is not None:
            found[f"{words} + lm"] = options
    return found


def search_table(scores: Mapping[str, Any]) -> str:
    """Scores for a person to read: those of the search that was asked for, then those of all."""
    plain = {name: value for name, value in scores.items() if not isinstance(value, Mapping)}
    width = max(len(name) for name in [*scores["searches"], "search"])
    lines = [f"{'search':<{width}}     CER     WER  exact match"]
    for name, row in scores["searches"].items():
        lines.append(f"{name:<{width}}  {row['cer']:6.4f}  {row['wer']:6.4f}  {row['exact_match']:11.4f}")
    return f"{table_of(plain)}\n\n" + "\n".join(lines)
