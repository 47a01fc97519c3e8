"""The command itself: options of all verbs, and how a mistake ends."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

import typer

from unrolled import __version__
from unrolled.cli.config import check, info, new
from unrolled.cli.decode import decode
from unrolled.cli.doctor import doctor
from unrolled.cli.evaluate import evaluate
from unrolled.cli.inspect import inspect
from unrolled.cli.lm import lm
from unrolled.cli.reproduce import reproduce
from unrolled.cli.run import run
from unrolled.cli.train import train
from unrolled.cli.verb import Verb
from unrolled.cli.words import words
from unrolled.errors import Note, UserError, remedy

app = typer.Typer(
    name="unrolled",
    help="Sequence models you can see through.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(cls=Verb)(train)
app.command(cls=Verb)(run)
app.command("eval", cls=Verb)(evaluate)
app.command(cls=Verb)(inspect)
app.command(cls=Verb)(words)
app.add_typer(lm)
app.command(cls=Verb)(decode)
app.command(cls=Verb)(reproduce)
app.command(cls=Verb)(new)
app.command(cls=Verb)(check)
app.command(cls=Verb)(info)
app.command(cls=Verb)(doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"unrolled {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def _show_notes() -> None:
    """Our own warnings become lines a user can read, each once; others are shown as Python shows them."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, Note):
            typer.echo(f"Note: {message}", err=True)
        else:
            usual(message, category, *place, **more)

    warnings.showwarning = show


def main() -> None:
    """Runs the command; a user's mistake is one message on stderr and exit code 2."""
    _show_notes()
    try:
        app()
    except UserError as error:
        typer.echo(f"unrolled: {error}", err=True)
        sys.exit(2)
    except OSError as error:  # a full disk, say
        fix = remedy(error)
        typer.echo(f"unrolled: {error}.{f' {fix}.' if fix else ''}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
