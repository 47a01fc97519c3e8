"""`unrolled run`."""

from __future__ import annotations

import csv
import itertools
import json
import sys
from typing import Annotated, Any

import typer


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A run folder or a model file.")],
    prompt: Annotated[list[str] | None, typer.Option(help="Text to continue; may be given more than once.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens to write at the most.")] = 400,
    temperature: Annotated[float, typer.Option(help="0: the likeliest token; 1: the model's own distribution.")] = 0.8,
    top_k: Annotated[int, typer.Option(help="Only the k likeliest tokens; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Only the likeliest tokens that hold this share; 1: all.")] = 1.0,
    min_p: Annotated[float, typer.Option(help="Only tokens this fraction as likely as the likeliest.")] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1: what was written is less likely again.")] = 1.0,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be given more than once.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed writes the same text.")] = None,
    weights: Annotated[str, typer.Option(help="fp32, or fp16, int16 or int8 for speed on a CPU.")] = "fp32",
    format: Annotated[str, typer.Option(help="text, jsonl or csv.")] = "text",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Use a model: it continues each prompt, or each line of standard input.

    On a terminal without a prompt it asks for one. Text is written as it comes.
    """
    from unrolled import api
    from unrolled.errors import unknown_name
    from unrolled.tasks.generate import RunOptions

    if format not in ("text", "jsonl", "csv"):
        raise unknown_name("format", format, ["text", "jsonl", "csv"])
    options = RunOptions(
        max_tokens, temperature, top_k, top_p, min_p, repetition_penalty, tuple(stop or ()), seed, weights
    )
    options.sampling  # noqa: B018  refuses bad values before anything is loaded
    loaded = api.load(model, device=device)
    prompts = prompt if prompt is not None else _prompts_from_input()
    unknown = sum(loaded.assets.unknowns(text) for text in prompts or ())
    if unknown:
        typer.echo(
            f"Note: {unknown} tokens of the prompts were never seen in training, and are read as <unk>.", err=True
        )
    if prompts is None:
        _play(loaded, options)
    elif format == "text" and len(prompts) == 1:
        _write(loaded, prompts[0], options)
    else:
        texts = loaded.predict(prompts, **vars(options))
        _print_all(prompts, texts, format)


def _prompts_from_input() -> list[str] | None:
    """Lines of standard input; None on a terminal."""
    if sys.stdin.isatty():
        return None
    lines = sys.stdin.read().splitlines()
    return lines or [""]


def _write(model: Any, prompt: str, options: Any) -> None:
    if model.config.data.direction == "backward":
        sys.stdout.write(model.predict(prompt, **vars(options)) + prompt + "\n")
        return
    pieces = model.task.write(model, [prompt], options)
    first = next(pieces, (0, ""))  # a mistake in the options is found before anything is written
    for _, piece in itertools.chain([(0, prompt), first], pieces):
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


def _print_all(prompts: list[str], texts: list[str], format: str) -> None:
    if format == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(["prompt", "text"])
        writer.writerows(zip(prompts, texts, strict=True))
        return
    for prompt, text in zip(prompts, texts, strict=True):
        if format == "jsonl":
            print(json.dumps({"prompt": prompt, "text": text}, ensure_ascii=False))
        else:
            print(prompt + text)


def _play(model: Any, options: Any) -> None:
    """A prompt to play with, until an empty line or the end of input."""
    typer.echo("Give a beginning, the model goes on. An empty line ends.", err=True)
    while True:
        try:
            prompt = input("> ")
        except (EOFError, KeyboardInterrupt):
            return
        if not prompt:
            return
        _write(model, prompt, options)
