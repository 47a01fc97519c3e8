"""`unrolled card` and `unrolled push`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from unrolled.cli.options import ModelPath, OwnTask
from unrolled.errors import UserError, note

LICENCES = "such as apache-2.0, mit, cc-by-4.0 or other"


@dataclass(frozen=True)
class Said:
    """Flags about facts that no model file knows."""

    licence: Annotated[
        str | None, typer.Option("--licence", "--license", help=f"The licence of the model, {LICENCES}; none: none.")
    ] = None
    language: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="A language of the data, such as de; repeatable.")
    ] = None
    dataset: Annotated[
        list[str] | None,
        typer.Option(metavar="ORG/NAME", help="A dataset of the hub that it was trained on; repeatable."),
    ] = None

    @property
    def facts(self) -> dict[str, Any]:
        licence = None if self.licence == "none" else self.licence
        return {"licence": licence, "language": self.language or (), "datasets": self.dataset or ()}


def card(
    model: ModelPath,
    said: Said,
    out: Annotated[Path | None, typer.Option(metavar="README.md", help="Write the card here. Default: print.")] = None,
    name: Annotated[str | None, typer.Option(metavar="ORG/NAME", help="The model's name on the hub.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out.")] = False,
    own: OwnTask = None,
) -> None:
    """Write the model card: task, data, scores, config, limits, and how to use the model."""
    from unrolled import api
    from unrolled.hub import check_repo
    from unrolled.text.files import new_file

    if out is not None and not force and out.exists():
        raise UserError(f"{out} exists already.", "Choose another name, or overwrite it with --force.")
    repo = None if name is None else check_repo(name)
    text = api.load(model, task=own).card(name=repo, **said.facts)
    if out is None:
        typer.echo(text, nl=False)
        return
    with new_file(out, force=force) as beside:
        beside.write_text(text, encoding="utf-8")
    typer.echo(f"Wrote {out}.", err=True)


def push(
    model: ModelPath,
    repo: Annotated[str, typer.Argument(metavar="ORG/NAME", help="The repository; it is made if it does not exist.")],
    said: Said,
    with_card: Annotated[
        bool, typer.Option("--card/--no-card", help="Upload a model card, README.md, beside the model.")
    ] = True,
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    revision: Annotated[
        str | None, typer.Option(metavar="BRANCH", help="A branch; it is made if it does not exist.")
    ] = None,
    message: Annotated[str | None, typer.Option(help="The message of the commit.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another card that is there.")] = False,
    own: OwnTask = None,
) -> None:
    """Upload a model file and its card to the Hugging Face hub.

    Log in before with `hf auth login`, or set HF_TOKEN.
    """
    from unrolled import api
    from unrolled.config import data_paths
    from unrolled.hub import MESSAGE, check_repo
    from unrolled.hub import push as upload
    from unrolled.model import find_file

    name = check_repo(repo)
    if said.licence is None:
        said = Said(_ask_licence(), said.language, said.dataset)
    file = find_file(model)
    loaded = api.load(file, task=own)
    if folders := [f"{key}={path}" for key, path in data_paths(loaded.config).items() if Path(path).name != path]:
        note(f"The model file tells where its data was, and so will its copy on the hub: {', '.join(folders)}.")
    text = loaded.card(name=name, **said.facts) if with_card else None
    where = upload(file, name, text, private=private, revision=revision, message=message or MESSAGE, force=force)
    typer.echo(f"Pushed {where}", err=True)
    typer.echo(f"hub:{name}" + (f"@{revision}" if revision else ""))


def _ask_licence() -> str:
    """The licence that the user types; an error where nobody can be asked."""
    if not sys.stdin.isatty():
        raise UserError(
            "Which licence has the model?",
            f"Say it, {LICENCES}: --licence apache-2.0; or publish without one: --licence none.",
        )
    return str(typer.prompt(f"The licence of the model, {LICENCES}, or none")).strip().lower()
