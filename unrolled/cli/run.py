"""`unrolled run`."""

from __future__ import annotations

import io
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Annotated, Any

import typer

from unrolled.errors import UnknownOption, UserError, unknown_name

FORMATS = ("text", "jsonl", "csv")
FILES = (b"RIFF", b"RF64", b"fLaC", b"OggS", b"ID3", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*")
Several = list[str] | None
Lexicon = Annotated[
    str | None, typer.Option(metavar="FILE", help="recognize: only words of this file, one in each line.")
]
LanguageModel = Annotated[
    str | None, typer.Option(metavar="FILE", help="recognize: an n-gram model of words, .arpa or .arpa.gz.")
]
LanguageModelWeight = Annotated[float | None, typer.Option(min=0, help="recognize: how much it counts (1).")]
WordBonus = Annotated[float | None, typer.Option(help="recognize: added for each word, in nats (0).")]
UnknownPenalty = Annotated[
    float | None,
    typer.Option(help="recognize: added for each word outside the lexicon; none: there are no such words."),
]
Window = Annotated[
    float | None,
    typer.Option(
        help="recognize: longer inputs are cut at silence or white space; seconds (30), or line heights (60)."
    ),
]
FileKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="How the file is read, where it has other columns: --set data.text_column=body; again and again.",
    ),
]
GENERATE = ("max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "words", "weights")
TRANSLATE = (
    "beam",
    "n_best",
    "length_penalty",
    "alpha",
    "coverage",
    "search_stop",
    "no_repeat_ngram",
    "min_tokens",
    "prefix",
    "unknown",
    "precision",
    "picture",
)
RECOGNIZE = ("lexicon", "lm", "lm_weight", "word_bonus", "unknown_penalty", "window")
FORECAST = ("steps", "sample", "hold_inputs", "interval")
OPTIONS = (*GENERATE, *TRANSLATE, *RECOGNIZE, "rate", *FORECAST)


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A run folder or a model file.")],
    files: Annotated[Several, typer.Argument(metavar="[FILE]...", help="Inputs; none or -: standard input.")] = None,
    text: Annotated[
        Several, typer.Option("--text", "--prompt", help="An input itself, to continue or to answer; again and again.")
    ] = None,
    format: Annotated[str | None, typer.Option(help="text, jsonl or csv (text).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
    keep: Annotated[
        str | None,
        typer.Option(metavar="COLUMNS", help="Columns of an input table to carry into jsonl or csv: id,date"),
    ] = None,
    overrides: FileKeys = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens to write at the most (generate: 400).")] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            help="0: the likeliest; 1: the model's distribution (generate: 0.8; translate, caption: draw, not search)."
        ),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="With a temperature: draw from the k likeliest tokens only; 0: all.")
    ] = None,
    top_p: Annotated[float | None, typer.Option(help="The same, from the likeliest that hold this share.")] = None,
    min_p: Annotated[
        float | None, typer.Option(help="The same, from those this fraction as likely as the best.")
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="generate: above 1, what was written is less likely again.")
    ] = None,
    stop: Annotated[Several, typer.Option(help="generate: end before this text; again and again.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of what is drawn: the same seed draws the same.")] = None,
    words: Annotated[
        str | None, typer.Option(metavar="FILE", help="generate, translate: only words of this file, one in each line.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="generate: fp32, or fp16, int16 or int8 for speed on a CPU.")
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(
            min=1, help="Hypotheses side by side; 1: greedy (translate, caption: 5; recognize: 1, with a lexicon 100)."
        ),
    ] = None,
    n_best: Annotated[
        int | None, typer.Option(min=1, help="translate, caption, recognize: so many outputs for each input (1).")
    ] = None,
    length_penalty: Annotated[
        str | None, typer.Option(help="translate, caption: none, average or gnmt, what log P is divided by (gnmt).")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="translate, caption: exponent of gnmt; more: longer outputs (1).")
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(help="translate, caption: above 0, what was left unread counts against an output (0)."),
    ] = None,
    search_stop: Annotated[
        str | None,
        typer.Option(help="translate, caption: safe: nothing better can come; enough: as many as the beam (safe)."),
    ] = None,
    no_repeat_ngram: Annotated[
        int | None, typer.Option(min=0, help="translate, caption: so many tokens in a row never come twice; 0: off.")
    ] = None,
    min_tokens: Annotated[int | None, typer.Option(min=0, help="translate, caption: tokens before an end (0).")] = None,
    prefix: Annotated[str | None, typer.Option(help="translate, caption: what every output begins with.")] = None,
    unknown: Annotated[
        str | None,
        typer.Option(help="translate: keep, forbid, or replace unknown words by attention; caption: keep or forbid."),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="translate, caption: fp32, or bf16, faster where the processor has it (fp32).")
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option(
            "--picture",
            "--attention",
            metavar="FILE",
            help="translate, caption: draw where the words of one input looked; recognize: labels over time.",
        ),
    ] = None,
    lexicon: Lexicon = None,
    lm: LanguageModel = None,
    lm_weight: LanguageModelWeight = None,
    word_bonus: WordBonus = None,
    unknown_penalty: UnknownPenalty = None,
    window: Window = None,
    rate: Annotated[
        float | None,
        typer.Option(help="recognize: samples a second of raw 16-bit sound, from standard input (-) or a .raw file."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="forecast: go on so far from its own predictions.")] = None,
    sample: Annotated[
        bool | None, typer.Option("--sample", help="forecast, with --steps: draw from the model's distribution.")
    ] = None,
    hold_inputs: Annotated[
        bool | None,
        typer.Option("--hold-inputs", help="forecast, with --steps: inputs it does not predict stay as they are."),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(metavar="P", help="forecast: also the bounds that hold so much of the distribution, such as 0.9."),
    ] = None,
) -> None:
    """Use a model on texts, files or the lines of standard input; answers keep their order.

    On a terminal without any input it asks for one. A model that writes does so as the text comes.
    """
    from unrolled import api
    from unrolled.tasks import Request

    given = dict(locals())
    options = {name: given[name] for name in OPTIONS if given[name] is not None}
    if stop:
        options["stop"] = tuple(stop)
    if format is not None and format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    if as_json and format not in (None, "jsonl"):
        raise UserError(f"--json and --format {format} are two formats.", "Give one of them.")
    format = "jsonl" if as_json else format or "text"
    loaded = api.load(model, device=device).read_as(overrides)
    if files and "-" in files and files != ["-"]:
        raise UserError("- is standard input, and there are files beside it.", "Give one or the other.")
    piped = files == ["-"]
    kept = kept_columns(keep, format, loaded, [] if piped else files or [])
    if text is not None or (files and not piped):
        request = Request(texts=text, files=files or (), format=format, keep=kept)  # type: ignore[arg-type]
        _answer(loaded, request, options)
    elif sys.stdin.isatty() and not files:
        _play(loaded, format, options)
    elif loaded.runner.reads_bytes and holds_a_file(asked=bool(files) or rate is not None):
        _answer(loaded, Request(raw=sys.stdin.buffer, format=format), options)  # type: ignore[arg-type]
    else:
        _answer(loaded, Request(lines=standard_input(), format=format, keep=kept), options)  # type: ignore[arg-type]


def kept_columns(keep: str | None, format: str, model: Any, files: Sequence[str]) -> list[str]:
    """The columns that --keep names; an error where there is nothing that they could go into, or come from."""
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
    """Whether standard input is a recording or picture itself: it was asked for, or its first bytes say so."""
    if not hasattr(sys.stdin, "buffer"):
        return False
    begins = sys.stdin.buffer.peek(4) if hasattr(sys.stdin.buffer, "peek") else b""
    return asked or begins.startswith(FILES)


def standard_input() -> Iterator[str]:
    """Its lines, as they come: UTF-8 with a byte order mark or without, or UTF-16 with one."""
    if not hasattr(sys.stdin, "buffer"):  # somebody put a text in its place
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


@contextmanager
def options_of(task: str, ours: Iterable[str]) -> Iterator[None]:
    """What a model does not take is said as it was typed, with those of `ours` that it does take."""
    try:
        yield
    except UnknownOption as error:
        taken = [flag(name) for name in ours if name in error.known]
        fix = f"It takes {', '.join(taken)}." if taken else "Leave it out."
        raise UserError(f"{flag(error.name)} is not for a model of {task}.", fix) from None


def flag(name: str) -> str:
    """An option as it is typed."""
    return "--" + name.replace("_", "-")


def _answer(model: Any, request: Any, options: Mapping[str, Any]) -> None:
    with options_of(model.task.name, OPTIONS):
        for piece in model.runner.run(request, **options):
            sys.stdout.write(piece)
            sys.stdout.flush()


def _play(model: Any, format: str, options: Mapping[str, Any]) -> None:
    """An input to play with, until an empty line or the end of input."""
    from unrolled.tasks import Request

    typer.echo("Give an input, the model answers. An empty line ends.", err=True)
    while True:
        try:
            line = input("> ")
        except (EOFError, KeyboardInterrupt):
            return
        if not line:
            return
        _answer(model, Request(texts=[line], format=format), options)  # type: ignore[arg-type]
