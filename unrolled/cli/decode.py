"""`unrolled decode`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unrolled.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from unrolled.search import Decoded, Decoder


def decode(
    posteriors: Annotated[
        str,
        typer.Argument(
            metavar="POSTERIORS.npz", help="An array (T, V) for each utterance, or one (B, T, V); or an .npy file."
        ),
    ],
    labels: Annotated[str, typer.Option(metavar="FILE", help="The name of each column, one in each line.")],
    lexicon: Annotated[
        str | None, typer.Option(metavar="FILE", help="A word in each line, alone or followed by its labels.")
    ] = None,
    lm: Annotated[str | None, typer.Option(metavar="FILE", help="An n-gram model, .arpa or .arpa.gz.")] = None,
    beam: Annotated[int, typer.Option(min=1, help="Most hypotheses after each frame.")] = 100,
    n_best: Annotated[int, typer.Option(min=1, help="How many readings to give.")] = 1,
    kind: Annotated[str, typer.Option(help="What the numbers are: log_probs, probs or logits.")] = "log_probs",
    blank: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL|COLUMN",
            help="The blank's name, or its column from 0 on; none: the label named <blank>, [PAD], _ or the like, or "
            "the first one.",
        ),
    ] = None,
    separator: Annotated[
        str,
        typer.Option(help="The label between words; auto: a blank or |, where no word has it; none: there is no such."),
    ] = "auto",
    lm_weight: Annotated[float | None, typer.Option(min=0, help="How much the language model counts (1).")] = None,
    word_bonus: Annotated[float | None, typer.Option(help="Added for each word, in nats (0).")] = None,
    unknown_penalty: Annotated[
        float | None, typer.Option(help="Added for each word outside the lexicon; none: there are no such words.")
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="Most nats below the best hypothesis; inf: no limit (10; with a lexicon 30 and more)."),
    ] = None,
    per_node: Annotated[int | None, typer.Option(min=1, help="Most hypotheses at one node of the tree.")] = None,
    merge: Annotated[str | None, typer.Option(help="max or sum: of paths that read the same.")] = None,
    skip_unspellable: Annotated[bool, typer.Option(help="Leave out words with letters that are no labels.")] = False,
    frame_seconds: Annotated[
        float | None, typer.Option(min=0, help="How long a frame is: times in the JSON are seconds then, not frames.")
    ] = None,
    references: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="What each utterance says, NAME TAB TEXT or one text in each line: errors are told."
        ),
    ] = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Find --lm-weight and --word-bonus with the fewest errors against --references."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object for each utterance: readings, times, confidences.")
    ] = False,
) -> None:
    """Read CTC posteriors of any model: words of a lexicon with a language model, or labels.

    One line for each utterance: its name and its text; with several readings, the score between them.
    """
    from unrolled.search.ctc import files
    from unrolled.search.ctc.options import check_n_best, check_used
    from unrolled.search.ctc.posteriors import as_log_probs

    of_words = {"word_bonus": word_bonus, "unknown_penalty": unknown_penalty, "per_node": per_node}
    check_used(
        lexicon, lm, lm_weight=lm_weight, **of_words, skip_unspellable=skip_unspellable or None, tune=tune or None
    )
    check_n_best(n_best, beam)
    if tune and references is None:
        raise UserError("--tune needs to know what the utterances say.", "Give their texts: --references FILE.")
    utterances = files.read_posteriors(posteriors)
    several, columns = len(utterances) > 1, len(files.read_labels(labels)) or None
    frames = [
        as_log_probs(array, kind, columns, name=f"posteriors[{i}]" if several else "posteriors")
        for i, array in enumerate(utterances.values())
    ]
    given = {"lm_weight": lm_weight, "margin": margin, "merge": merge, **of_words}
    decoder = files.decoder_from_files(
        labels,
        lexicon,
        lm,
        posteriors=frames,
        blank=blank,
        separator=None if separator == "none" else separator,
        skip_unspellable=skip_unspellable,
        beam=beam,
        **{name: value for name, value in given.items() if value is not None},
    )
    texts = None if references is None else files.read_references(references, list(utterances))
    if tune and texts is not None:
        _tune(decoder, frames, texts, lm_weight, word_bonus)
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


def _errors(found: Sequence[str], texts: Sequence[str]) -> tuple[float, float]:
    from unrolled.metrics.recognition import recognition_scores

    scores = recognition_scores(found, texts)
    return scores.wer, scores.cer


def _tune(
    decoder: Decoder, frames: Sequence[Tensor], texts: Sequence[str], lm_weight: float | None, word_bonus: float | None
) -> None:
    """Sets the weights with the fewest errors, and says them."""
    from unrolled.search.ctc.tuning import tune

    def errors(weight: float | None, bonus: float) -> tuple[float, float]:
        weight = decoder.options.lm_weight if weight is None else weight
        decoder.options = replace(decoder.options, lm_weight=weight, word_bonus=bonus)
        return _errors([readings[0].text for readings in decoder.decode_batch(frames)], texts)

    found = tune(errors, has_lm=decoder.lm is not None, lm_weight=lm_weight, word_bonus=word_bonus)
    errors(found.lm_weight, found.word_bonus)
    typer.echo(f"Of {len(found.tried)} settings the best: {found.options}", err=True)
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
