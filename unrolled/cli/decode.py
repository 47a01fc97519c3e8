"""`unrolled decode`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unrolled.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from unrolled.search import Decoded, Decoder


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
    skip_unspellable: Annotated[bool, typer.Option(help="Leave out words with letters that are not labels.")] = False


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


def decode(
    posteriors: Annotated[
        str,
        typer.Argument(
            metavar="POSTERIORS.npz", help="An array (T, V) per utterance, or one (B, T, V); or an .npy file."
        ),
    ],
    labels: LabelOptions,
    words: WordOptions,
    search: BeamOptions,
    n_best: Annotated[int, typer.Option(min=1, help="Hypotheses per utterance.")] = 1,
    frame_seconds: Annotated[
        float | None, typer.Option(min=0, help="Seconds per frame; the JSON then has times in seconds.")
    ] = None,
    references: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The true texts, NAME TAB TEXT or one text per line, to report error rates."),
    ] = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Find the --lm-weight and --word-bonus with the fewest errors on --references."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object per utterance: hypotheses, times, confidences.")
    ] = False,
) -> None:
    """Decode CTC posteriors of any model: words of a lexicon with a language model, or labels.

    One line per utterance: its name and its text; with --n-best, the score comes between them.
    """
    from unrolled.search.ctc import files
    from unrolled.search.ctc.options import check_n_best

    _check_words(words, search, tune)
    check_n_best(n_best, search.beam)
    if tune and references is None:
        raise UserError("--tune needs the true texts.", "Give them: --references FILE.")
    utterances = files.read_posteriors(posteriors)
    names = files.read_labels(labels.labels)
    frames = _log_probs(list(utterances.values()), labels.kind, len(names) or None)
    decoder = _decoder(names, labels, words, search, frames)
    texts = None if references is None else files.read_references(references, list(utterances))
    if tune and texts is not None:
        _tune(decoder, frames, texts, words.lm_weight, words.word_bonus)
    found = decoder.decode_batch(frames, n_best, confidence=as_json)
    for name, readings in zip(utterances, found, strict=True):
        if as_json:
            typer.echo(json.dumps(_record(name, readings, decoder.labels, frame_seconds), ensure_ascii=False))
        else:
            for one in readings:
                typer.echo(f"{name}\t{one.text}" if n_best == 1 else f"{name}\t{one.score:.4f}\t{one.text}")
    if texts is not None:
        wer, cer = _errors([readings[0].text for readings in found], texts)
        typer.echo(f"{len(texts)} references: word errors {wer:.2%}, character errors {cer:.2%}", err=True)


def _check_words(words: WordOptions, search: BeamOptions, tune: bool) -> None:
    """Reject options that need a lexicon or a language model where there is none."""
    from unrolled.search.ctc.options import check_used

    check_used(
        words.lexicon,
        words.lm,
        lm_weight=words.lm_weight,
        word_bonus=words.word_bonus,
        unknown_penalty=words.unknown_penalty,
        per_node=search.per_node,
        skip_unspellable=words.skip_unspellable or None,
        tune=tune or None,
    )


def _log_probs(arrays: Sequence[Any], kind: str, columns: int | None) -> list[Tensor]:
    from unrolled.search.ctc.posteriors import as_log_probs

    return [
        as_log_probs(array, kind, columns, name=f"posteriors[{i}]" if len(arrays) > 1 else "posteriors")
        for i, array in enumerate(arrays)
    ]


def _decoder(
    names: Sequence[str], labels: LabelOptions, words: WordOptions, search: BeamOptions, frames: Sequence[Tensor]
) -> Decoder:
    from unrolled.search.ctc.files import decoder_from_files

    options = asdict(words) | asdict(search)
    return decoder_from_files(
        names,
        posteriors=frames,
        blank=labels.blank,
        separator=None if labels.separator == "none" else labels.separator,
        **{name: value for name, value in options.items() if value is not None},
    )


def _errors(found: Sequence[str], texts: Sequence[str]) -> tuple[float, float]:
    from unrolled.metrics.recognition import recognition_scores

    scores = recognition_scores(found, texts)
    return scores.wer, scores.cer


def _tune(
    decoder: Decoder, frames: Sequence[Tensor], texts: Sequence[str], lm_weight: float | None, word_bonus: float | None
) -> None:
    """Set the weights with the fewest errors, and print them."""
    from unrolled.search.ctc.tuning import tune

    def errors(weight: float | None, bonus: float) -> tuple[float, float]:
        weight = decoder.options.lm_weight if weight is None else weight
        decoder.options = replace(decoder.options, lm_weight=weight, word_bonus=bonus)
        return _errors([readings[0].text for readings in decoder.decode_batch(frames)], texts)

    found = tune(errors, has_lm=decoder.lm is not None, lm_weight=lm_weight, word_bonus=word_bonus)
    errors(found.lm_weight, found.word_bonus)
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
