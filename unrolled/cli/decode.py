"""`unrolled decode`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unrolled.errors import UserError, unknown_name

if TYPE_CHECKING:
    from unrolled.search import Decoded, Decoder
    from unrolled.search.ctc.posteriors import Frames

Errors = Callable[[Sequence[Any]], Mapping[str, float]]
"""The error rates of the best readings, by name."""


@dataclass(frozen=True)
class WordOptions:
    """Flags about words: lexicon, language model and their weights."""

    lexicon: Annotated[
        str | None, typer.Option(metavar="FILE", help="Words, one per line, each alone or followed by its labels.")
    ] = None
    lm: Annotated[str | None, typer.Option(metavar="FILE", help="An n-gram model, .arpa or .arpa.gz.")] = None
    lm_weight: Annotated[float | None, typer.Option(min=0, help="Weight of the language model. Default: 1.")] = None
    word_bonus: Annotated[float | None, typer.Option(help="Score added per word, in nats. Default: 0.")] = None
    unknown_penalty: Annotated[
        float | None,
        typer.Option(help="Score added per word outside the lexicon. Default: only words of the lexicon."),
    ] = None
    skip_unspellable: Annotated[
        bool, typer.Option("--skip-unspellable", help="Leave out words with letters that are not labels.")
    ] = False
    share_ends: Annotated[
        bool, typer.Option("--share-ends", help="Words share their ends in memory, too. The results are the same.")
    ] = False


@dataclass(frozen=True)
class HotwordOptions:
    """Flags about phrases to prefer."""

    hotwords: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Phrases to prefer, one per line, each alone or with a tab and its weight."),
    ] = None
    hotword_weight: Annotated[
        float | None, typer.Option(min=0, help="Score added for each label of a hotword, in nats. Default: 1.")
    ] = None


@dataclass(frozen=True)
class BeamOptions:
    """Flags about the search."""

    beam: Annotated[int, typer.Option(min=1, help="Maximum number of hypotheses after each frame.")] = 100
    margin: Annotated[
        float | None,
        typer.Option(
            help="Drop hypotheses this many nats below the best; inf: no limit. Default: 10, or 30 with a lexicon."
        ),
    ] = None
    per_node: Annotated[int | None, typer.Option(min=1, help="Maximum number at one node of the lexicon.")] = None
    merge: Annotated[str | None, typer.Option(help="Score of paths with the same text: max or sum. Default: max.")] = (
        None
    )


@dataclass(frozen=True)
class LabelOptions:
    """Flags about the columns of the posteriors."""

    labels: Annotated[str, typer.Option(metavar="FILE", help="The label of each column, one per line.")]
    kind: Annotated[str, typer.Option(help="What the numbers are: log_probs, probs or logits.")] = "log_probs"
    blank: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL|COLUMN",
            help="The blank's label, or its column from 0; none: the posteriors have no blank. Default: the label "
            "<blank>, [PAD], _ or the like, or the first one.",
        ),
    ] = None
    separator: Annotated[
        str,
        typer.Option(help="The label between words; auto: a space or |, if no word contains it; none: no separator."),
    ] = "auto"


@dataclass(frozen=True)
class ReferenceOptions:
    """Flags about the true texts."""

    references: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The true texts, NAME TAB TEXT or one text per line, to report error rates."),
    ] = None
    reference_kind: Annotated[
        str | None,
        typer.Option(
            metavar="words|labels",
            help="The true texts are words of the lexicon, or labels. Default: found from the texts.",
        ),
    ] = None
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Find the --lm-weight and --word-bonus with the fewest errors on --references."),
    ] = False


def decode(
    posteriors: Annotated[
        str,
        typer.Argument(
            metavar="POSTERIORS.npz", help="An array (T, V) per utterance, or one (B, T, V); or an .npy file."
        ),
    ],
    labels: LabelOptions,
    words: WordOptions,
    hot: HotwordOptions,
    search: BeamOptions,
    truth: ReferenceOptions,
    n_best: Annotated[int, typer.Option(min=1, help="Hypotheses per utterance.")] = 1,
    frame_seconds: Annotated[
        float | None, typer.Option(min=0, help="Seconds per frame; the JSON then has times in seconds.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object per utterance: hypotheses, times, confidences.")
    ] = False,
) -> None:
    """Decode CTC posteriors of any model: words of a lexicon with a language model, or labels.

    One line per utterance: its name and its text; with --n-best, the score comes between them.
    """
    from unrolled.search.ctc import files
    from unrolled.search.limits import check_n_best

    _check_words(words, search, truth.tune)
    check_n_best(n_best, search.beam)
    _check_truth(truth)
    utterances = files.read_posteriors(posteriors)
    names = files.read_labels(labels.labels)
    frames = _log_probs(list(utterances.values()), labels.kind, len(names) or None)
    if hot.hotword_weight is not None and hot.hotwords is None:
        raise UserError("--hotword-weight is for hotwords, and there are none.", "Give them: --hotwords FILE.")
    decoder = _decoder(names, labels, asdict(words) | asdict(search) | asdict(hot), frames)
    errors = None
    if truth.references is not None:
        errors = errors_of(decoder, files.read_references(truth.references, list(utterances)), truth.reference_kind)
    if truth.tune and errors is not None:
        _tune(decoder, frames, errors, words.lm_weight, words.word_bonus)
    found = decoder.decode_batch(frames, n_best, confidence=as_json)
    for name, readings in zip(utterances, found, strict=True):
        if as_json:
            typer.echo(json.dumps(_record(name, readings, decoder.labels, frame_seconds), ensure_ascii=False))
        else:
            for one in readings:
                typer.echo(f"{name}\t{one.text}" if n_best == 1 else f"{name}\t{one.score:.4f}\t{one.text}")
    if errors is not None:
        rates = ", ".join(f"{name} {rate:.2%}" for name, rate in errors([readings[0] for readings in found]).items())
        typer.echo(f"{len(found)} references: {rates}", err=True)


def _check_truth(truth: ReferenceOptions) -> None:
    if truth.tune and truth.references is None:
        raise UserError("--tune needs the true texts.", "Give them: --references FILE.")
    if truth.reference_kind not in (None, "words", "labels"):
        raise unknown_name("reference_kind", str(truth.reference_kind), ("words", "labels"))
    if truth.reference_kind is not None and truth.references is None:
        raise UserError("--reference-kind is about the true texts.", "Give them: --references FILE.")


def _check_words(words: WordOptions, search: BeamOptions, tune: bool) -> None:
    """Reject options that need a lexicon or a language model where there is none."""
    from unrolled.search.lexicon.weights import check_used

    check_used(
        words.lexicon,
        words.lm,
        lm_weight=words.lm_weight,
        word_bonus=words.word_bonus,
        unknown_penalty=words.unknown_penalty,
        per_node=search.per_node,
        skip_unspellable=words.skip_unspellable or None,
        share_ends=words.share_ends or None,
        tune=tune or None,
    )


def _log_probs(arrays: Sequence[Any], kind: str, columns: int | None) -> list[Frames]:
    from unrolled.search.ctc.posteriors import as_log_probs

    return [
        as_log_probs(array, kind, columns, name=f"posteriors[{i}]" if len(arrays) > 1 else "posteriors")
        for i, array in enumerate(arrays)
    ]


def _decoder(
    names: Sequence[str], labels: LabelOptions, options: Mapping[str, Any], frames: Sequence[Frames]
) -> Decoder:
    from unrolled.search.ctc.files import decoder_from_files

    return decoder_from_files(
        names,
        posteriors=frames,
        blank=labels.blank,
        separator=None if labels.separator == "none" else labels.separator,
        **{name: value for name, value in options.items() if value is not None},
    )


def errors_of(decoder: Decoder, texts: Sequence[str], asked: Any = None) -> Errors:
    """The error rates of readings by name: of words and characters, or of labels if the texts are labels.

    With a lexicon of labels of several letters the texts may be either: `asked`, or else told from the texts.
    """
    from unrolled.metrics.phones import are_phones
    from unrolled.metrics.recognition import recognition_scores, reference_kind, symbol_error_rate
    from unrolled.search.ctc.label_text import label_text

    lexicon = decoder.lexicon
    if asked == "words" and lexicon is None:
        raise UserError("--reference-kind words needs the words.", "Give them: --lexicon FILE.")
    if asked is not None and not decoder.symbols:
        raise UserError("--reference-kind tells words from labels, and these labels are letters.", "Leave it out.")
    names = [name for column, name in enumerate(decoder.labels) if column != decoder.blank]
    words = [] if lexicon is None else lexicon.words
    as_labels = decoder.symbols and reference_kind(texts, names, words, asked) == "labels"
    unit = "phone" if are_phones(names) else "label"

    def errors(found: Sequence[Decoded]) -> dict[str, float]:
        if as_labels:
            spelt = [label_text((decoder.labels[i] for i in one.labels), symbols=True) for one in found]
            return {f"{unit} errors": symbol_error_rate(spelt, texts)}
        scores = recognition_scores([one.text for one in found], texts)
        return {"word errors": scores.wer, "character errors": scores.cer}

    return errors


def _tune(
    decoder: Decoder, frames: Sequence[Frames], errors: Errors, lm_weight: float | None, word_bonus: float | None
) -> None:
    """Set the weights with the fewest errors, and print them."""
    from unrolled.search.ctc.tuning import tune

    def rates(weight: float | None, bonus: float) -> tuple[float, float]:
        weight = decoder.options.lm_weight if weight is None else weight
        decoder.options = replace(decoder.options, lm_weight=weight, word_bonus=bonus)
        first, *rest = errors([readings[0] for readings in decoder.decode_batch(frames)]).values()
        return first, rest[0] if rest else first

    found = tune(rates, has_lm=decoder.lm is not None, lm_weight=lm_weight, word_bonus=word_bonus)
    rates(found.lm_weight, found.word_bonus)
    typer.echo(f"Best of {len(found.tried)} settings: {found.options}", err=True)
    if found.tie:
        typer.echo(found.tie, err=True)


def _record(name: str, readings: Sequence[Decoded], labels: Sequence[str], seconds: float | None) -> dict[str, Any]:
    from unrolled.search.ctc.decoded import reading_record, utterance_record

    def moment(frame: int) -> float:
        return frame if seconds is None else round(frame * seconds, 3)

    return utterance_record(
        name,
        "frames" if seconds is None else "seconds",
        [
            reading_record(
                one.text,
                one.score,
                one.complete,
                [word._replace(start=moment(word.start), end=moment(word.end)) for word in one.words],  # type: ignore[arg-type]
                [
                    (labels[label], moment(start), moment(end))
                    for label, (start, end) in zip(one.labels, one.spans, strict=True)
                ],
            )
            for one in readings
        ],
    )
