"""`unrolled run`."""

from __future__ import annotations

import io
import shlex
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from unrolled.cli.options import Device, FileKeys, ModelPath, OwnTask, chosen_options
from unrolled.corpus.loading import format_of, load_either, with_text_scorer
from unrolled.errors import UserError, unknown_name

if TYPE_CHECKING:
    from unrolled.tasks import Request

FORMATS = ("text", "jsonl", "csv")
FILES = (b"RIFF", b"RF64", b"fLaC", b"OggS", b"ID3", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*")


@dataclass(frozen=True)
class AnswerFile:
    """The file of the answers, and the processes that make them."""

    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write here; the same command goes on after a stop (docs/corpus.md)."),
    ] = None
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Processes that answer at the same time.")] = 1
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out.")] = False


def run(
    model: ModelPath,
    answers: AnswerFile,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Inputs; none or -: standard input.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option("--text", "--prompt", help="An input, to continue or to answer; repeatable.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="text, jsonl or csv. Default: by the name of --out, or text.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
    keep: Annotated[
        str | None,
        typer.Option(metavar="COLUMNS", help="Columns of the input table to copy to jsonl or csv output: id,date"),
    ] = None,
    overrides: FileKeys = None,
    device: Device = "cpu",
    own: OwnTask = None,
    **values: Any,
) -> None:
    """Use a model on texts, files or the lines of standard input; answers keep their order.

    MODEL may be the folder of an exported model: it runs without torch (see `unrolled export`).

    On a terminal without input, it prompts for one. Generated text appears as it is written.
    """
    from unrolled.tasks import Request

    form = _format(format, as_json, answers.out)
    loaded = load_either(model, own, device).read_as(overrides)
    options = chosen_options("run", loaded.task, values)
    if hasattr(loaded.task, "check"):  # of an exported model, which lacks some
        loaded.task.check(options)
    if files and "-" in files and files != ["-"]:
        raise UserError("- is standard input, and there are files beside it.", "Give one or the other.")
    check_files(files or [])
    piped = files == ["-"]
    kept = kept_columns(keep, form, loaded, [] if piped else files or [])
    if answers.out is not None or answers.workers > 1:
        from unrolled.corpus import CorpusRun, CorpusWork, run_corpus
        from unrolled.corpus.work import place_of

        lines = standard_input() if text is None and (piped or not files) else ()
        request = Request(texts=text, files=[] if piped else files or [], lines=lines, format=form, keep=kept)
        work = CorpusWork(model, form, options, overrides, device, place_of(own))
        run_corpus(CorpusRun(work, request, answers.out, answers.workers, answers.force), loaded)
        return
    if answers.force:
        raise UserError("--force is for --out.", "Give the file to write, or leave it out.")
    options = with_text_scorer(options, device)
    if text is not None or (files and not piped):
        _answer(loaded, Request(texts=text, files=files or (), format=form, keep=kept), options)
    elif sys.stdin.isatty() and not files:
        _play(loaded, form, options)
    elif loaded.runner.reads_bytes and holds_a_file(asked=bool(files) or "rate" in options):
        _answer(loaded, Request(raw=sys.stdin.buffer, format=form), options)
    else:
        _answer(loaded, Request(lines=standard_input(), format=form, keep=kept), options)


def _format(format: str | None, as_json: bool, out: Path | None) -> Any:
    """The output format that --format and --json name, or else the name of --out."""
    if format is not None and format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    if as_json and format not in (None, "jsonl"):
        raise UserError(f"--json and --format {format} are two formats.", "Give one of them.")
    return "jsonl" if as_json else format or format_of(out)


def check_files(files: Sequence[str]) -> None:
    """An error where a text stands in the place of a file."""
    for name in files:
        if " " in name and not Path(name).exists():
            raise UserError(f"There is no file {name!r}.", f"If it is a text, write: --text {shlex.quote(name)}")


def kept_columns(keep: str | None, format: str, model: Any, files: Sequence[str]) -> list[str]:
    """The columns that --keep names; an error where the output has no columns, or the input none."""
    if keep is None:
        return []
    names = [name.strip() for name in keep.split(",") if name.strip()]
    if not names:
        raise UserError("--keep names no column.", "Give names with commas between: --keep id,date")
    if not model.runner.keeps:
        raise UserError(f"--keep is not for a model of {model.task.name}.", "Leave it out.")
    if format == "text":
        raise UserError("--keep is for records.", "Ask for them with --format jsonl or csv.")
    if not files and not model.runner.keeps_lines:
        raise UserError("--keep is for the columns of tables, and there is no file.", "Give one, or leave it out.")
    return names


def holds_a_file(*, asked: bool) -> bool:
    """True if standard input is itself a recording or picture: the user says so, or its first bytes do."""
    if not hasattr(sys.stdin, "buffer"):
        return False
    begins = sys.stdin.buffer.peek(4) if hasattr(sys.stdin.buffer, "peek") else b""
    return asked or begins.startswith(FILES)


def standard_input() -> Iterator[str]:
    """Lines of standard input as they come: UTF-8 with or without a byte order mark, or UTF-16 with one."""
    if not hasattr(sys.stdin, "buffer"):  # replaced by a text stream
        yield from sys.stdin
        return
    if hasattr(sys.stdin.buffer, "peek") and sys.stdin.buffer.peek(2)[:2] in (BOM_UTF16_LE, BOM_UTF16_BE):
        yield from _utf16_lines(sys.stdin.buffer)
        return
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"Standard input, line {number} is not UTF-8: byte 0x{line[error.start]:02x}.",
                "Convert it, for example: iconv -f latin1 -t utf-8",
            ) from None
        yield text


def _utf16_lines(file: IO[bytes]) -> Iterator[str]:
    text = io.TextIOWrapper(file, encoding="utf-16", newline="\n")
    try:
        yield from text
    except UnicodeDecodeError as error:
        raise UserError(f"Standard input is not whole UTF-16: {error.reason}.", "Convert it to UTF-8.") from None
    finally:
        text.detach()


def _answer(model: Any, request: Request, options: Mapping[str, Any]) -> None:
    for piece in model.runner.run(request, **options):
        sys.stdout.write(piece)
        sys.stdout.flush()


def _play(model: Any, format: Any, options: Mapping[str, Any]) -> None:
    """Ask for inputs until an empty line or the end of input."""
    from unrolled.tasks import Request

    typer.echo("Give an input, the model answers. An empty line ends.", err=True)
    while True:
        try:
            line = input("> ")
        except (EOFError, KeyboardInterrupt):
            return
        if not line:
            return
        _answer(model, Request(texts=[line], format=format), options)
