"""`unrolled words`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unrolled.cli.options import AsJson
from unrolled.errors import UserError

if TYPE_CHECKING:
    from unrolled.text import Vectors


def words(
    source: Annotated[str, typer.Argument(metavar="MODEL|VECTORS", help="A model; a word2vec, GloVe or npz file.")],
    terms: Annotated[
        list[str] | None, typer.Argument(metavar="WORD", help="A word, or a sum: king - man + woman")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of words to show.")] = 10,
    analogies: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Score on a file of analogies, such as questions-words.txt."),
    ] = None,
    most: Annotated[int | None, typer.Option(min=1, help="Read only the first rows of a vectors file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the words nearest to a word or to a sum of words, with their cosines.

    The answer leaves out the words of the question. Put -- before a word that begins with -.
    """
    if bool(terms) == (analogies is not None):
        raise UserError("Give either words, such as king - man + woman, or --analogies FILE.")
    vectors = _vectors(source, most)
    if analogies is not None:
        scores = vectors.analogies(analogies)
        typer.echo(json.dumps(scores, ensure_ascii=False) if as_json else _table(scores))
        return
    assert terms
    if len(terms) == 1 and terms[0] not in vectors:  # a whole sum in quotes
        terms = terms[0].split() or terms
    found = vectors.nearest(terms[0], count) if len(terms) == 1 else vectors.analogy(terms, count)
    if as_json:
        nearest = [{"word": word, "cosine": cosine} for word, cosine in found]
        typer.echo(json.dumps({"query": " ".join(terms), "nearest": nearest}, ensure_ascii=False))
        return
    shown = [word if word.isprintable() and word == word.strip() else repr(word) for word, _ in found]
    width = max(map(len, shown), default=0)
    for word, (_, cosine) in zip(shown, found, strict=True):
        typer.echo(f"{word:<{width}}  {cosine:.4f}")


def _vectors(source: str, most: int | None) -> Vectors:
    path, on_hub = Path(source), source.startswith("hub:")
    if not on_hub and not path.exists():
        raise UserError(f"{path} does not exist.", "Give a run folder, a model file, or a file of word vectors.")
    if on_hub or path.is_dir() or path.suffix == ".safetensors":
        from unrolled import api

        return api.load(source).word_vectors()
    from unrolled.text import Vectors

    return Vectors.read(path, most)


def _table(scores: Mapping[str, Any]) -> str:
    """The accuracy of each group of analogies, then of all."""
    rows = [(name, group["accuracy"], group["asked"], group["skipped"]) for name, group in scores["groups"].items()]
    rows += [(name, scores[name], None, None) for name in ("semantic", "syntactic")]
    rows.append(("total", scores["total"], scores["asked"], scores["skipped"]))
    width = max(len(name) for name, *_ in rows)
    lines = [f"{'':<{width}}  {'right':>7}  {'asked':>6}  {'skipped':>7}"]
    for name, accuracy, *counts in rows:
        right = "–" if accuracy is None else f"{accuracy:.2%}"
        asked, skipped = ("" if number is None else f"{number:,}" for number in counts)
        lines.append(f"{name:<{width}}  {right:>7}  {asked:>6}  {skipped:>7}".rstrip())
    return "\n".join(lines)
