"""`unrolled align`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unrolled.cli.options import Device, FileKeys, ModelPath, OwnTask
from unrolled.corpus.loading import load_either
from unrolled.errors import UserError, note

if TYPE_CHECKING:
    from unrolled.tasks.recognize.timed_text import Format


@dataclass(frozen=True)
class TextOptions:
    """Flags about the text and its spelling."""

    text: Annotated[str | None, typer.Option(help="The text of the one recording or picture.")] = None
    text_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The same in a file. Default: a .txt or .lab of the recording's name."),
    ] = None
    lexicon: Annotated[
        str | None, typer.Option(metavar="FILE", help="Pronunciations of words, for a model of symbols.")
    ] = None
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out what the model or the lexicon does not know.")
    ] = False


@dataclass(frozen=True)
class OutputOptions:
    """Flags about the answers."""

    format: Annotated[
        str | None,
        typer.Option(help="text, jsonl, csv, ctm, srt, vtt or textgrid. Default: that of --out, or text."),
    ] = None
    out: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="The file to write; for srt, vtt and textgrid of several inputs a folder."),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Overwrite --out.")] = False


def align(
    model: ModelPath,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="A table of files and transcripts, or recordings, pictures or .npy frames."
        ),
    ],
    words: TextOptions,
    output: OutputOptions,
    prior: Annotated[
        float, typer.Option(min=0, max=1, help="Widens labels: the power of their frequencies, 0 to 1.")
    ] = 0.0,
    window: Annotated[
        float | None, typer.Option(help="As for `run`: seconds, or line heights of an image, read at once.")
    ] = None,
    overrides: FileKeys = None,
    device: Device = "cpu",
    own: OwnTask = None,
) -> None:
    """Find where the words of a known text stand in a recording or picture (forced alignment).

    MODEL is a recogniser, or the folder of an exported one.
    """
    from unrolled.tasks.recognize.alignment import AlignOptions, align_each
    from unrolled.tasks.recognize.timed_text import format_of

    loaded = load_either(model, own, device).read_as(overrides)
    if loaded.task.name != "recognize":
        raise UserError(f"A model of {loaded.task.name} does not align.", "Use a model of recognize.")
    how = format_of(output.format, output.out, loaded.assets.reader.unit)
    pairs = transcribed(files, words.text, words.text_file, loaded.config.data)
    places = places_of([name for name, _, _ in pairs], how, output.out, force=output.force)
    options = AlignOptions(words.lexicon, prior, words.skip_unknown, window)
    texts = []
    for (name, _, _), place, answer in zip(pairs, places, align_each(loaded, pairs, options), strict=True):
        if isinstance(answer, UserError):
            note(str(answer) if name in str(answer) else f"{name}: {answer}")
        else:
            texts.append((place, how.write(name, answer)))
    write(texts, how, force=output.force)
    if missing := len(pairs) - len(texts):
        raise UserError(f"{missing} of {len(pairs)} inputs could not be aligned.", "The reasons are above.")


def transcribed(files: Sequence[str], text: str | None, text_file: str | None, data: Any) -> list[tuple[str, Any, str]]:
    """The name, the input and the text of each input that the files name."""
    if text is not None and text_file is not None:
        raise UserError("--text and --text-file are two texts.", "Give one of them.")
    if text_file is not None:
        text = _read(Path(text_file))
    if text is not None and len(files) != 1:
        raise UserError(f"There is one text for {len(files)} files.", "Give a table of files and texts.")
    return [one for file in files for one in _of_file(file, text, data)]


def _of_file(file: str, text: str | None, data: Any) -> Iterator[tuple[str, Any, str]]:
    from unrolled.data.readers.media.archives import ARRAYS, AUDIO, IMAGES, Medium
    from unrolled.data.readers.media.transcripts import read_transcripts

    medium = Medium.named(file)
    if medium.suffix not in (*AUDIO, *IMAGES, *ARRAYS):
        if text is not None:
            raise UserError(f"{file} is a table of files and texts, and there is a text beside it.", "Leave one out.")
        for one in read_transcripts(file, input_column=data.input_column, text_column=data.text_column):
            yield one.input.name if isinstance(one.input, Medium) else one.place, one.input, one.text
        return
    if text is None:
        beside = next((path for suffix in (".txt", ".lab") if (path := Path(file).with_suffix(suffix)).is_file()), None)
        if beside is None:
            raise UserError(
                f"There is no text for {file}.", "Give it: --text, --text-file, or a .txt of the same name."
            )
        text = _read(beside)
    yield file, medium, text


def _read(path: Path) -> str:
    from unrolled.text.files import utf8_lines

    return " ".join(utf8_lines(path, "Give a text file."))


def places_of(names: Sequence[str], how: Format, out: str | None, *, force: bool) -> list[Path | None]:
    """The file of each answer; None: standard output. All share one, unless a format holds one input."""
    from unrolled.text.files import check_new

    if out is None or not how.alone or (len(names) == 1 and not Path(out).is_dir()):
        if how.alone and out is None and len(names) > 1:
            raise UserError(
                f"A {how.suffixes[0]} file holds one input, and there are {len(names)}.", "Give --out FOLDER."
            )
        place = None if out is None else Path(out)
        if place is not None and not force:
            check_new(place)
        return [place] * len(names)
    parents = [str(Path(name).absolute().parent) for name in names]
    top = Path(os.path.commonpath(parents))
    places = [Path(out) / Path(name).absolute().relative_to(top).with_suffix(how.suffixes[0]) for name in names]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise UserError(f"Two inputs would be written to {place}.", "Give the inputs names of their own.")
        if not force:
            check_new(place)
    return list(places)


def write(texts: Sequence[tuple[Path | None, str]], how: Format, *, force: bool) -> None:
    """Write answers to their files, or print them; those of one file stand below one header."""
    from unrolled.text.files import new_file

    for place in dict.fromkeys(place for place, _ in texts):
        whole = how.header + "".join(text for other, text in texts if other == place)
        if place is None:
            sys.stdout.write(whole)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        with new_file(place, force=force) as beside:
            beside.write_text(whole, encoding="utf-8")
