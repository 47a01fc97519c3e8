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
    web: Annotated[bool, typer.Option("--web", help="Add a page that runs the model in a browser.")] = False,
    onnxruntime_web: Annotated[
        str | None,
        typer.Option(
            "--onnxruntime-web", metavar="PATH", help="onnxruntime-web for --web: a folder or .tgz; without it, npm's."
        ),
    ] = None,
    score_on: Annotated[
        str | None,
        typer.Option("--score-on", metavar="FILE", help="Score the model and its export on FILE: what weights cost."),
    ] = None,
    own: OwnTask = None,
) -> None:
    """Write a model as ONNX graphs, to run it without torch: `unrolled run DIR`, or with --web in a browser."""
    from unrolled import api

    written = api.export_onnx(
        api.load(model, task=own),
        onnx,
        weights=weights,
        check=compare,
        force=force,
        web=web,
        onnxruntime_web=onnxruntime_web,
        score_on=score_on,
    )
    for name, size in written.sizes.items():
        compared = f", differs by at most {written.differences[name]:.1e}" if name in written.differences else ""
        typer.echo(f"{name}.onnx: {size / 1e6:,.2f} MB{compared}")
    for name, (model_score, exported) in written.scores.items():
        typer.echo(f"{name}: {model_score:.4f} the model, {exported:.4f} exported ({exported - model_score:+.4f})")
    if weights != "fp32" and score_on is None:
        typer.echo(f"What {weights} weights cost: unrolled eval {written.folder} FILE, or --score-on FILE.", err=True)
    typer.echo(f"Wrote {written.folder}. Run it: unrolled run {written.folder}", err=True)
    if web:
        typer.echo(
            f"Its page: python -m http.server --bind 127.0.0.1 --directory {written.folder} 8000, "
            "then open http://127.0.0.1:8000",
            err=True,
        )
