"""`unrolled inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unrolled.errors import UserError

Several = list[str] | None


def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A run folder or a model file.")],
    text: Annotated[
        str | None, typer.Argument(metavar="[INPUT]", help="A text; for models of sounds and pictures, a file.")
    ] = None,
    file: Annotated[str | None, typer.Option(help="Read the input from a file: text, rows, frames.")] = None,
    example: Annotated[
        int | None, typer.Option(min=0, help="Take an example of the validation data, by its number from 0.")
    ] = None,
    figures: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Draw everything there is to see into this folder.")
    ] = None,
    format: Annotated[str, typer.Option(help="Of the figures: png, svg or pdf.")] = "png",
    width: Annotated[
        str | None,
        typer.Option(metavar="INCHES|column|page", help="Of the figures: column is 3.3 in, page 6.9 in of a paper."),
    ] = None,
    only: Annotated[
        Several,
        typer.Option(
            metavar="NAME,…",
            help="Draw these alone, of losses, forecast, states, gates, norms, gradients, flow, attention, beams, "
            "frames and lattice.",
        ),
    ] = None,
    others: Annotated[
        Several, typer.Option("--with", metavar="MODEL", help="Another model beside it, on the same input; repeat.")
    ] = None,
    step: Annotated[int | None, typer.Option(min=0, help="Print one step by hand: every equation's numbers.")] = None,
    places: Annotated[
        str | None,
        typer.Option(
            metavar="STATE|GATE", help="Print where in the input a unit's h, c, f, … is largest, and where smallest."
        ),
    ] = None,
    unit: Annotated[int, typer.Option(min=0, help="Which unit: of --step and --places, and the page's first.")] = 0,
    layer: Annotated[str | None, typer.Option(help="Which layer, likewise: l0, l1_reverse, encoder.l0.")] = None,
    changes: Annotated[
        Several,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="What if: truth=good, target=answer, hide=0,3, beam=8, …; repeat."
        ),
    ] = None,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write one self-contained page, to mail or to show in a lecture.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Of the page; none: the next free one.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """See through a model: its states, gates, gradients, attention and search on an input of yours.

    Without --figures, --html, --step or --places a page opens in the browser, on this machine alone.
    """
    from unrolled import api
    from unrolled.see.figures.style import read_width
    from unrolled.serve import Asked, Inspection, save_report, serve

    inches, named = read_width(width), _names(only)
    if figures is None and (width is not None or only is not None):
        raise UserError(f"{'--width' if width is not None else '--only'} is about figures.", "Give --figures FOLDER.")
    asked = Asked(
        {name: api.load(name, device=device) for name in (model, *(others or ()))},
        text,
        file,
        dict(_pair(one) for one in changes or ()),
        example,
        {
            name: str(value)
            for name, value in (("unit", unit or None), ("layer", layer), ("step", step))
            if value is not None
        },
    )
    if step is not None:
        typer.echo(str(asked.trace().by_hand(step, unit, layer)))
    if places is not None:
        typer.echo(str(asked.trace().places(unit, layer, places)))
    if figures is not None:
        for path in asked.draw(Path(figures), format, inches, named):
            typer.echo(str(path))
    if html is not None:
        save_report(Inspection(asked), Path(html))
        typer.echo(html)
    if step is None and places is None and figures is None and html is None:
        serve(Inspection(asked), port, browser, lambda text: typer.echo(text, err=True))


def _names(given: Several) -> list[str] | None:
    """Names with commas between, in one option or several; None: all."""
    if given is None:
        return None
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--set {text!r} says no value.", "Expected NAME=VALUE, such as --set beam=8.")
    return name.strip(), value
