"""Scores of recognised texts: what each search gives on a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from unrolled.data.readers.media.transcripts import Transcribed, read_transcripts, tidy
from unrolled.errors import UserError, note
from unrolled.metrics.phones import error_rate_name
from unrolled.metrics.recognition import (
    ReferenceKind,
    exact_match,
    recognition_scores,
    symbol_error_rate,
)
from unrolled.search import Lexicon
from unrolled.search.ctc.label_text import label_text
from unrolled.search.ctc.tuning import tune as tune_weights
from unrolled.tasks.recognize.labels import Labels, RecognizeAssets
from unrolled.tasks.recognize.predict import Heard, answers_of, hear, texts_of
from unrolled.tasks.recognize.search import USUAL_BEAM, RecognitionOptions, Recognized, Search, loaded
from unrolled.tasks.runner import table_of
from unrolled.tasks.shared.error_table import error_table
from unrolled.tasks.shared.options import RESCORING
from unrolled.tasks.shared.references import told_apart

if TYPE_CHECKING:
    from unrolled.model import Model
    from unrolled.tasks.recognize.config import RecognizeData

GREEDY = "greedy"


@dataclass(frozen=True)
class References:
    """The true texts of a file, and the form that answers need to be compared with them."""

    texts: list[str]
    kind: ReferenceKind | None  # None: labels are letters, so that words and labels are one text
    labels: Labels

    @classmethod
    def of(
        cls, examples: Sequence[Transcribed], labels: Labels, lexicon: Lexicon | None, asked: ReferenceKind | None
    ) -> Self:
        """Tells references of words from references of labels; `asked` is the kind that the user names."""
        texts = [labels.reference(one.text) for one in examples]
        names, lower = labels.names[1:], labels.lowercase
        kind = told_apart(texts, names, lexicon, asked, symbols=labels.symbols, lowercase=lower)
        return cls([tidy(one.text) for one in examples] if kind == "words" else texts, kind, labels)

    def answers(self, heard: Iterable[Sequence[Heard]], searches: Mapping[str, Search]) -> dict[str, list[str]]:
        """The texts of each search that can be compared with the references."""
        left_out = [name for name, search in searches.items() if self.kind == "words" and not search.reads_words]
        if left_out:
            note(
                f"The references are words; {' and '.join(left_out)} "
                f"{'reads labels, so it is' if len(left_out) == 1 else 'read labels, so they are'} left out."
            )
        kept = {name: search for name, search in searches.items() if name not in left_out}
        return texts_of(heard, len(self.texts), kept, as_labels=self.kind == "labels")

    def answer(self, found: Recognized) -> str:
        """The text of an answer that can be compared with a reference."""
        return label_text([one.text for one in found.labels], symbols=True) if self.kind == "labels" else found.text

    def scores(self, outputs: Sequence[str]) -> dict[str, float]:
        return error_rates(None if self.kind == "words" else self.labels, outputs, self.texts)

    def unknown(self, text: str, lexicon: Lexicon | None) -> list[str]:
        """The parts of a reference that cannot be recognised."""
        if self.kind != "words" or lexicon is None:
            return self.labels.unknown(text)
        words = set(lexicon.words)
        return [word for word in text.split() if word not in words]


def error_rates(labels: Labels | None, outputs: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Scores by name, the one that decides first: cer and wer of texts, phone_error_rate or label_error_rate of
    symbols. Without labels the texts are words."""
    if labels is None or not labels.symbols:
        return asdict(recognition_scores(outputs, references))
    rate = symbol_error_rate(outputs, references)
    return {error_rate_name(labels.names[1:]): rate, "exact_match": exact_match(outputs, references)}


def evaluate_file(
    model: Model,
    path: str | Path,
    tune: bool | None = None,
    reference_kind: ReferenceKind | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Error rates of the best path and of the searches that the options ask for."""
    config: Any = model.config
    examples = read_examples(config.data, path)
    return score_file(model, examples, RecognitionOptions(**options), bool(tune), reference_kind)


def read_examples(settings: RecognizeData, path: str | Path) -> list[Transcribed]:
    """The recordings or pictures of a file with their texts."""
    return read_transcripts(path, input_column=settings.input_column, text_column=settings.text_column)


def score_file(
    model: Model,
    examples: Sequence[Transcribed],
    options: RecognitionOptions,
    tune: bool = False,
    kind: ReferenceKind | None = None,
) -> dict[str, Any]:
    """Reads every example in each way that the options ask for; the scores above the table are those of the last.

    With `tune` the weights of the lexicon and the language model are first set to those with the fewest errors.
    """
    assets: RecognizeAssets = model.assets
    labels = assets.labels
    if tune and options.lexicon is None:
        raise UserError("tune is for lm_weight and word_bonus, which need a lexicon.", "Give one (--lexicon).")
    inputs = [assets.reader.given(example.input, example.place) for example in examples]
    options = loaded(options, labels)
    references = References.of(examples, labels, options.lexicon, kind)
    heard: Iterable[Sequence[Heard]] = hear(model, inputs, options.window)
    tuned: dict[str, Any] = {}
    if tune or options.rescore is not None:
        heard = list(heard)  # the network reads every input once, the searches many times
    if tune:
        options, tuned = _tuned(list(heard), references, options)
    searches = {name: Search(labels, one) for name, one in ways(options).items()}
    answers = references.answers(heard, searches)
    if options.rescore is not None:
        found = answers_of(model, heard, len(inputs), replace(options, n_best=1))
        answers[f"{list(searches)[-1]}, rescored"] = [references.answer(one) for one in found]
    table = {name: references.scores(texts) for name, texts in answers.items()}
    asked = list(table)[-1] if options.searches or options.rescore is not None else GREEDY
    return {
        **table[asked],
        "search": asked,
        "examples": len(examples),
        "empty": sum(not text for text in answers[asked]),
        **_unknown(references, examples, options),
        **tuned,
        "searches": table,
    }


def _unknown(references: References, examples: Sequence[Transcribed], options: RecognitionOptions) -> dict[str, int]:
    """The number of symbols or words of the references that cannot be recognised; a note names some."""
    words = references.kind == "words"
    by_example = [references.unknown(text, options.lexicon) for text in references.texts]
    unknown = Counter(name for one in by_example for name in one)
    if unknown and not (words and options.unknown_penalty is not None):
        first = next(example for example, one in zip(examples, by_example, strict=True) if one)
        shown = ", ".join(repr(name) for name, _ in unknown.most_common(5))
        what = "Words outside the lexicon" if words else "Symbols never seen in training"
        note(f"{what} cannot be recognised. There are {unknown.total():,}, the first at {first.place}: {shown}.")
    return {"unknown_words" if words else "unknown_symbols": unknown.total()}


def _tuned(
    heard: Sequence[Sequence[Heard]], references: References, options: RecognitionOptions
) -> tuple[RecognitionOptions, dict[str, Any]]:
    """The options with the best weights, and what to tell of them."""

    def errors(weight: float | None, bonus: float) -> tuple[float, float]:
        search = Search(references.labels, replace(options, lm_weight=weight, word_bonus=bonus, n_best=1))
        scores = references.scores(references.answers(heard, {"": search})[""])
        rates = [scores[name] for name in scores if name != "exact_match"]
        return rates[-1], rates[0]  # of words, then of characters; of labels alone

    given = {"lm_weight": options.lm_weight, "word_bonus": options.word_bonus}
    found = tune_weights(errors, has_lm=options.lm is not None, **given)
    chosen = replace(options, lm_weight=found.lm_weight, word_bonus=found.word_bonus)
    if found.tie:
        note(f"Of {len(found.tried)} settings the best: {found.options}. {found.tie}")
    return chosen, {"settings_tried": len(found.tried), "tuned": found.options}


def ways(options: RecognitionOptions) -> dict[str, RecognitionOptions]:
    """From the plainest search to the one that was asked for; n-best lists have no part in scores."""
    none: Any = dict.fromkeys(option.key for option in RESCORING)
    options = replace(options, n_best=1, beam=None if options.beam == 1 else options.beam, **none)
    plain = RecognitionOptions(window=options.window)
    found = {GREEDY: plain, "beam": replace(plain, beam=options.beam or USUAL_BEAM, merge=options.merge)}
    if options.lexicon is not None:
        words = "lexicon" if options.unknown_penalty is None else "open lexicon"
        found[words] = replace(options, lm=None, lm_weight=None)
        if options.lm is not None:
            found[f"{words} + lm"] = options
    return found


def search_table(scores: Mapping[str, Any]) -> str:
    """Scores for a person to read: those of the search that was asked for, then those of all."""
    plain = {name: value for name, value in scores.items() if not isinstance(value, Mapping)}
    return f"{table_of(plain)}\n\n{error_table(scores['searches'])}"
