"""`unrolled export`."""

from __future__ import annotations

from typing import Annotated

import typer

from unrolled.cli.options import ModelPath, OwnTask


def export(
    model: ModelPath,
    onnx: Annotated[
        str, typer.Option("--onnx", metavar="DIR", help="The folder to write: ONNX graphs, manifest.json.")
    ],
    weights: Annotated[str, typer.Option(help="Bits of the stored weights: fp32, fp16 or int8.")] = "fp32",
    compare: Annotated[
        bool, typer.Option("--check/--no-check", help="Compare every graph with the network on 100 random batches.")
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Replace an exported model in DIR.")] = False,
    own: OwnTask = None,
) -> None:
    """Write a model as ONNX graphs, to run it without torch: `unrolled run DIR`."""
    from unrolled import api

    written = api.export_onnx(api.load(model, task=own), onnx, weights=weights, check=compare, force=force)
    for name, size in written.sizes.items():
        compared = f", differs by at most {written.differences[name]:.1e}" if name in written.differences else ""
        typer.echo(f"{name}.onnx: {size / 1e6:,.2f} MB{compared}")
    typer.echo(f"Wrote {written.folder}. Run it: unrolled run {written.folder}", err=True)
