"""`unrolled decode`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from unrolled.search import Decoded


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
    blank: Annotated[str | None, typer.Option(help="The blank's name; none: the first label.")] = None,
    separator: Annotated[
        str,
        typer.Option(help="The label between words; auto: a blank or |, where no word has it; none: there is no such."),
    ] = "auto",
    lm_weight: Annotated[float | None, typer.Option(min=0, help="How much the language model counts (1).")] = None,
    word_bonus: Annotated[float | None, typer.Option(help="Added for each word, in nats (0).")] = None,
    unknown_penalty: Annotated[
        float | None, typer.Option(help="Added for each word outside the lexicon; none: there are no such words.")
    ] = None,
    margin: Annotated[float | None, typer.Option(help="Most nats below the best hypothesis.")] = None,
    per_node: Annotated[int | None, typer.Option(min=1, help="Most hypotheses at one node of the tree.")] = None,
    merge: Annotated[str | None, typer.Option(help="max or sum: of paths that read the same.")] = None,
    skip_unspellable: Annotated[bool, typer.Option(help="Leave out words with letters that are no labels.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object for each utterance, with times.")] = False,
) -> None:
    """Read CTC posteriors of any model: words of a lexicon with a language model, or labels.

    One line for each utterance: its name and its text; with several readings, the score between them.
    """
    from unrolled.search.frames import files
    from unrolled.search.frames.options import check_n_best, check_used

    of_words = {"word_bonus": word_bonus, "unknown_penalty": unknown_penalty, "per_node": per_node}
    check_used(lexicon, lm, lm_weight=lm_weight, **of_words, skip_unspellable=skip_unspellable or None)
    check_n_best(n_best, beam)
    given = {"lm_weight": lm_weight, "margin": margin, "merge": merge, **of_words}
    decoder = files.decoder_from_files(
        labels,
        lexicon,
        lm,
        blank=blank,
        separator=None if separator == "none" else separator,
        skip_unspellable=skip_unspellable,
        beam=beam,
        **{name: value for name, value in given.items() if value is not None},
    )
    utterances = files.read_posteriors(posteriors)
    for name, found in zip(utterances, decoder.decode_batch(list(utterances.values()), n_best, kind=kind), strict=True):
        if as_json:
            record = {"name": name, "hypotheses": [_record(one, decoder.labels) for one in found]}
            typer.echo(json.dumps(record, ensure_ascii=False))
        else:
            for one in found:
                typer.echo(f"{name}\t{one.text}" if n_best == 1 else f"{name}\t{one.score:.4f}\t{one.text}")


def _record(found: Decoded, labels: list[str]) -> dict[str, Any]:
    return {
        "text": found.text,
        "score": found.score,
        "complete": found.complete,
        "words": [word._asdict() for word in found.words],
        "labels": [
            {"label": labels[label], "start": start, "end": end}
            for label, (start, end) in zip(found.labels, found.spans, strict=True)
        ],
    }
