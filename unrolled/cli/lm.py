"""`unrolled lm`: n-gram language models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrolled.cli.options import AsJson
from unrolled.cli.verb import Verb
from unrolled.errors import UserError

if TYPE_CHECKING:
    from unrolled.search.ngram import Counts

lm = typer.Typer(
    name="lm",
    help="n-gram language models: train, score texts, mix.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

TextFile = Annotated[str, typer.Argument(metavar="TEXT", help="A sentence per line. Default: standard input.")]
OutFile = Annotated[Path, typer.Option(metavar="FILE", help="The ARPA file to write; .arpa.gz is compressed.")]


Memory = Annotated[str, typer.Option(help="Memory for counting: 500M, 4G.")]
Scratch = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Folder for temporary files. Default: the system's.")
]
CountWorkers = Annotated[int, typer.Option(min=1, metavar="N", help="Threads.")]


@lm.command(cls=Verb)
def train(
    out: OutFile,
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="A sentence per line; or files of `lm count`, in the order of the text. Default: standard input.",
        ),
    ] = None,
    order: Annotated[int | None, typer.Option(help="Length of the longest n-grams. Default: 3.")] = None,
    prune: Annotated[
        str, typer.Option(metavar="N,N,…", help="Leave out n-grams with this count or less, by order: 0,0,1")
    ] = "0",
    memory: Memory = "1G",
    scratch: Scratch = None,
    workers: CountWorkers = 1,
) -> None:
    """Train a model on a text: modified Kneser–Ney.

    Words are separated by spaces. <unk> in the text is the unknown word.
    """
    from unrolled.search import NGram

    thresholds = _numbers(prune, "--prune", "0,0,1")
    whole = [int(number) if number.is_integer() else number for number in thresholds]
    counts = NGram.train_to(
        out,
        _text_or_counts(text or ["-"]),
        order=order,
        prune=whole,  # type: ignore[arg-type]
        memory=memory,
        scratch=scratch,
        workers=workers,
    )
    typer.echo(f"{out}: {_counts(counts)}")


@lm.command(cls=Verb)
def count(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write; its name ends in .counts.")],
    text: TextFile = "-",
    order: Annotated[int, typer.Option(help="Length of the longest n-grams.")] = 3,
    memory: Memory = "1G",
    scratch: Scratch = None,
    workers: CountWorkers = 1,
) -> None:
    """Count a part of a text, perhaps on another machine; `lm train` takes the counts of all parts.

    The model is that of the whole text, to the last byte.
    """
    from unrolled.search import NGram

    totals = NGram.count_to(out, text, order=order, memory=memory, scratch=scratch, workers=workers)
    typer.echo(f"{out}: {totals['words']:,} words in {totals['sentences']:,} sentences")


@lm.command("eval", cls=Verb)
def evaluate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="An ARPA file, .arpa or .arpa.gz.")],
    text: TextFile = "-",
    as_json: AsJson = False,
) -> None:
    """Score a text with a model: perplexity with and without unknown words."""
    from unrolled.search import NGram

    scores = NGram.load(model).evaluate(text)
    if as_json:
        typer.echo(json.dumps(scores))
        return
    typer.echo(f"perplexity                 {scores['perplexity']:.2f}")
    typer.echo(f"  without unknown words    {scores['perplexity_known']:.2f}")
    typer.echo(f"log probability            {scores['log_prob']:.2f}")
    typer.echo(f"words                      {scores['words']:,} in {scores['sentences']:,} sentences")
    typer.echo(f"  unknown                  {scores['unknown']:,}")


@lm.command(cls=Verb)
def mix(
    models: Annotated[list[str], typer.Argument(metavar="MODEL MODEL...", help="ARPA files.")],
    out: OutFile,
    text: Annotated[str | None, typer.Option(metavar="FILE", help="Fit the weights to this held-out text.")] = None,
    weights: Annotated[str | None, typer.Option(metavar="N,N,…", help="The weights themselves: 0.7,0.3")] = None,
    as_json: AsJson = False,
) -> None:
    """Interpolate several models, with weights that fit a held-out text best, or with your own."""
    from unrolled.search import NGram
    from unrolled.text.files import check_new

    check_new(out)
    shares = None if weights is None else _numbers(weights, "--weights", "0.7,0.3")
    mixed, shares = NGram.mix([NGram.load(model) for model in models], weights=shares, text=text)
    mixed.save(out)
    if as_json:
        typer.echo(json.dumps({"weights": dict(zip(models, shares, strict=True)), "counts": mixed.counts}))
        return
    for model, share in zip(models, shares, strict=True):
        typer.echo(f"{share:.4f}  {model}")
    typer.echo(f"{out}: {_counts(mixed.counts)}")


def _text_or_counts(given: Sequence[str]) -> str | Counts:
    """The text that a command names, or its files of counts."""
    from unrolled.search.ngram import Counts

    if all(name.endswith(".counts") for name in given):
        return Counts(*given)
    if len(given) > 1:
        raise UserError(f"There are {len(given)} texts.", "Give one, or count each: unrolled lm count.")
    return given[0]


def _counts(counts: list[int]) -> str:
    return ", ".join(f"{count:,} {order}-grams" for order, count in enumerate(counts, 1))


def _numbers(text: str, option: str, example: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{option} {text} is not a list of numbers.", f"Try: {option} {example}") from None
