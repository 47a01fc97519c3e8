"""`unrolled inspect`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from unrolled.cli.options import Device, ModelPath, OwnTask
from unrolled.errors import UserError

Several = list[str] | None


@dataclass(frozen=True)
class InputOptions:
    """Flags about the input."""

    file: Annotated[str | None, typer.Option(help="Read the input from a file: text, rows, frames.")] = None
    example: Annotated[int | None, typer.Option(min=0, help="Use this validation example, counted from 0.")] = None
    changes: Annotated[
        Several,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Set a trace option: truth=good, target=answer, hide=0,3, …; repeatable.",
        ),
    ] = None


@dataclass(frozen=True)
class Figures:
    """Flags about figures."""

    figures: Annotated[str | None, typer.Option(metavar="FOLDER", help="Draw all figures into this folder.")] = None
    format: Annotated[str, typer.Option(help="Format of the figures: png, svg or pdf.")] = "png"
    width: Annotated[
        str | None,
        typer.Option(metavar="INCHES|column|page", help="Width of the figures, in inches; column is 3.3, page is 6.9."),
    ] = None
    only: Annotated[
        Several,
        typer.Option(
            metavar="NAME,…",
            help="Draw only these: losses, forecast, states, gates, norms, gradients, flow, attention, beams, "
            "frames, lattice.",
        ),
    ] = None

    @property
    def names(self) -> list[str] | None:
        """Names with commas between, in one option or several; None: all."""
        if self.only is None:
            return None
        return [name.strip() for text in self.only for name in text.split(",") if name.strip()]


@dataclass(frozen=True)
class Unit:
    """Flags about one unit."""

    step: Annotated[int | None, typer.Option(min=0, help="Print one step by hand: the numbers of each equation.")] = (
        None
    )
    places: Annotated[
        str | None,
        typer.Option(metavar="STATE|GATE", help="Print where a unit's h, c, f, … is largest and smallest."),
    ] = None
    unit: Annotated[int, typer.Option(min=0, help="The unit of --step and --places, and the page's first one.")] = 0
    layer: Annotated[str | None, typer.Option(help="The layer of --unit, such as l0, l1_reverse, encoder.l0.")] = None

    @property
    def opens(self) -> dict[str, str]:
        """The first view of the page."""
        named = {"unit": self.unit or None, "layer": self.layer, "step": self.step}
        return {name: str(value) for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class Page:
    """Flags about the page."""

    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write one self-contained page, to mail or to show.")
    ] = None
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the page. Default: the next free one.")
    ] = None
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True


def inspect(
    model: ModelPath,
    input: InputOptions,
    figures: Figures,
    unit: Unit,
    page: Page,
    text: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="A text; for models of sounds and pictures, a file.")
    ] = None,
    others: Annotated[
        Several, typer.Option("--with", metavar="MODEL", help="Another model on the same input; repeatable.")
    ] = None,
    device: Device = "cpu",
    own: OwnTask = None,
) -> None:
    """See through a model: its states, gates, gradients, attention and search on your input.

    Without --figures, --html, --step or --places a page opens in the browser, on this machine only.
    """
    from unrolled import api
    from unrolled.see.figures.style import read_width
    from unrolled.serve.inspector import Asked, Inspection, save_report, serve

    inches = read_width(figures.width)
    if figures.figures is None and (figures.width is not None or figures.only is not None):
        name = "--width" if figures.width is not None else "--only"
        raise UserError(f"{name} is about figures.", "Give --figures FOLDER.")
    models = {name: api.load(name, task=own, device=device) for name in (model, *(others or ()))}
    changes = dict(_pair(one) for one in input.changes or ())
    asked = Asked(models, text, input.file, changes, input.example, unit.opens)
    if unit.step is not None:
        typer.echo(str(asked.trace().by_hand(unit.step, unit.unit, unit.layer)))
    if unit.places is not None:
        typer.echo(str(asked.trace().places(unit.unit, unit.layer, unit.places)))
    if figures.figures is not None:
        for path in asked.draw(Path(figures.figures), figures.format, inches, figures.names):
            typer.echo(str(path))
    if page.html is not None:
        save_report(Inspection(asked), Path(page.html))
        typer.echo(page.html)
    if unit.step is None and unit.places is None and figures.figures is None and page.html is None:
        serve(Inspection(asked), page.port, page.browser, lambda text: typer.echo(text, err=True))


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--set {text!r} has no value.", "Expected NAME=VALUE, such as --set beam=8.")
    return name.strip(), value
