"""The command itself: its verbs, and how an error ends it."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command

from unrolled import __version__
from unrolled.cli.align import align
from unrolled.cli.config import check, info, new
from unrolled.cli.decode import decode
from unrolled.cli.doctor import doctor
from unrolled.cli.embed import embed
from unrolled.cli.evaluate import evaluate
from unrolled.cli.export import export
from unrolled.cli.inspect import inspect
from unrolled.cli.lm import lm
from unrolled.cli.options import with_options
from unrolled.cli.ranks import is_first, may_speak, tell_torchrun
from unrolled.cli.reproduce import reproduce
from unrolled.cli.run import run
from unrolled.cli.serve import serve
from unrolled.cli.share import card, push
from unrolled.cli.sweep import sweep
from unrolled.cli.train import train
from unrolled.cli.verb import Verb
from unrolled.cli.words import words
from unrolled.errors import Note, UserError, remedy
from unrolled.tasks import options

if TYPE_CHECKING:
    from unrolled.tasks import Task

app = typer.Typer(
    name="unrolled",
    help="Sequence models you can see through.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Commands that take a task of the user's, and whose options of tasks they have.
TASK_COMMANDS: dict[str, tuple[Callable[..., None], options.Verb | None]] = {
    "train": (train, "train"),
    "sweep": (sweep, "train"),
    "run": (run, "run"),
    "eval": (evaluate, "eval"),
    "align": (align, None),
    "embed": (embed, None),
    "inspect": (inspect, None),
    "new": (new, None),
    "check": (check, "train"),
    "info": (info, None),
    "export": (export, None),
    "card": (card, None),
    "push": (push, None),
}
PLAIN_COMMANDS = (serve, words, decode, reproduce, doctor)


class TaskVerb(Verb):
    """A command whose flags include those of a task of the user's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        task = own_task(args, positional=self.name in ("train", "sweep", "new", "check"))
        if task is not None:
            function, verb = TASK_COMMANDS[str(self.name)]
            alone = typer.Typer()
            alone.command(self.name)(with_options(function, verb, task))
            fresh = get_command(alone)
            self.params, self.callback = fresh.params, fresh.callback  # typer builds its commands for each call
        return super().parse_args(ctx, args)


def own_task(args: Sequence[str], *, positional: bool) -> Task | None:
    """The user's task that the arguments name: --task FILE.py:CLASS, or an argument of that form."""
    text = None
    for place, word in enumerate(args):
        if word == "--task" and place + 1 < len(args):
            text = args[place + 1]
        elif word.startswith("--task="):
            text = word.removeprefix("--task=")
    if text is None and positional:
        before = ["", *args]
        words = (word for word, option in zip(args, before, strict=False) if option != "--callback")
        text = next((word for word in words if re.fullmatch(r"[^-].*\.py:\w+", word)), None)
    if text is None:
        return None
    from unrolled.tasks.own import load_task

    return load_task(text)


for name, (function, verb) in TASK_COMMANDS.items():
    app.command(name, cls=TaskVerb)(with_options(function, verb))
for function in PLAIN_COMMANDS:
    app.command(cls=Verb)(with_options(function))
app.add_typer(lm)


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
    """Print our own warnings as lines a user can read; leave others to Python."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, Note):
            if is_first():
                typer.echo(f"Note: {message}", err=True)
        else:
            usual(message, category, *place, **more)

    warnings.showwarning = show


def _tell(message: str) -> None:
    typer.echo(f"unrolled: {message}", err=True)
    tell_torchrun(f"unrolled: {message}")


def main() -> None:
    """Run the command; a user's mistake is one message on stderr and exit code 2."""
    _show_notes()
    try:
        app()
    except UserError as error:
        if may_speak():
            _tell(str(error))
        sys.exit(2)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        typer.echo(
            "unrolled: This needs torch, which is not installed. Install it: pip install torch. "
            "Without it, `unrolled run` and `unrolled eval` take the folder of an exported model.",
            err=True,
        )
        sys.exit(2)
    except OSError as error:  # such as a full disk
        if may_speak():
            _tell(f"{error}.{f' {fix}.' if (fix := remedy(error)) else ''}")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
