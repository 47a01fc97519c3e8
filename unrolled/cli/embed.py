"""`unrolled embed`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from unrolled.cli.options import AsJson, Device, FileKeys, ModelPath, OwnTask
from unrolled.errors import UserError


def embed(
    model: ModelPath,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Sentences, or other inputs, as for `run`.")],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write vectors: .npz, .jsonl or .csv. Default: print them.")
    ] = None,
    nearest: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Show the inputs of FILE nearest to this one, with cosines.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of nearest inputs.")] = 5,
    pooling: Annotated[
        str | None, typer.Option(help="From the states of an input's steps: last, mean or max. Default: the task's.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out.")] = False,
    as_json: AsJson = False,
    overrides: FileKeys = None,
    device: Device = "cpu",
    own: OwnTask = None,
) -> None:
    """Write a vector for each sentence of a file, or find the sentences nearest to one."""
    from unrolled import api
    from unrolled.tasks import Request
    from unrolled.text.sentence_vectors import check_place, nearest_rows, write_jsonl, write_vectors

    place = check_place(out, force) if out is not None else None
    loaded = api.load(model, task=own, device=device).read_as(overrides)
    inputs = list(loaded.runner.inputs(Request(files=[file])))
    if not inputs:
        raise UserError(f"{file} holds no input.", "Give a file with at least one.")
    names = [str(one) for one in inputs]
    matrix = loaded.embed(inputs, pooling=pooling)
    if place is not None:
        write_vectors(place, names, matrix, force=force)
        typer.echo(f"Wrote {len(matrix):,} vectors of {matrix.shape[1]} numbers to {place}.", err=True)
    if nearest is not None:
        found = nearest_rows(matrix, loaded.embed(nearest, pooling=pooling), count)
        if as_json:
            rows = [{"text": names[row], "cosine": cosine} for row, cosine in found]
            typer.echo(json.dumps({"query": nearest, "nearest": rows}, ensure_ascii=False))
            return
        for row, cosine in found:
            typer.echo(f"{cosine:.4f}  {names[row]}")
    elif place is None:
        write_jsonl(sys.stdout, names, matrix)
