"""Alignments as text: lines, CSV, JSON, CTM, subtitles, and Praat's TextGrid."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from unrolled.errors import UserError, unknown_name
from unrolled.tasks.answer_lines import csv_line
from unrolled.tasks.recognize.alignment import Aligned
from unrolled.tasks.recognize.search import TimeSpan
from unrolled.tasks.recognize.subtitles import cues_of, srt, vtt

HEADER = ("input", "tier", "text", "start", "end", "confidence")


class Format(NamedTuple):
    """A way to write alignments."""

    write: Callable[[str, Aligned], str]  # of the name of an input and its alignment
    suffixes: tuple[str, ...]  # of files; the first is ours
    header: str = ""
    alone: bool = False  # a file holds one input
    seconds: bool = False  # only for times in seconds


def lines(name: str, found: Aligned) -> str:
    """Start, end, confidence and text of each word."""
    rows = (f"{one.start:g}\t{one.end:g}\t{one.confidence:.3f}\t{one.text}\n" for one in found.words)
    return f"# {name}\n" + "".join(rows)


def table(name: str, found: Aligned) -> str:
    """Rows of words, then of labels."""
    tiers = (("word", found.words), ("label", found.labels))
    return "".join(
        csv_line([name, tier, one.text, one.start, one.end, one.confidence]) for tier, spans in tiers for one in spans
    )


def record(name: str, found: Aligned) -> dict[str, Any]:
    """An alignment for a program to read."""
    return {
        "input": name,
        "unit": found.unit,
        "end": found.end,
        "text": found.text,
        "score": found.score,
        "words": [_span("text", one) for one in found.words],
        "labels": [_span("label", one) for one in found.labels],
    }


def _span(key: str, one: TimeSpan) -> dict[str, Any]:
    return {key: one.text, "start": one.start, "end": one.end, "confidence": one.confidence}


def json_line(name: str, found: Aligned) -> str:
    return json.dumps(record(name, found), ensure_ascii=False) + "\n"


def ctm(name: str, found: Aligned) -> str:
    """NIST's lines of words: recording, channel, start, duration, word, confidence."""
    recording = "_".join(name.split())
    return "".join(
        f"{recording} 1 {one.start:.3f} {one.end - one.start:.3f} {one.text} {one.confidence:.3f}\n"
        for one in found.words
    )


def textgrid(name: str, found: Aligned) -> str:
    """A TextGrid of Praat with tiers for words and labels. Intervals without text fill the time between them."""
    tiers = {"words": found.words, "labels": found.labels}
    head = (
        f'File type = "ooTextFile"\nObject class = "TextGrid"\n\nxmin = 0\nxmax = {found.end}\n'
        f"tiers? <exists>\nsize = {len(tiers)}\nitem []:\n"
    )
    return head + "".join(
        _tier(number, tier, spans, found.end) for number, (tier, spans) in enumerate(tiers.items(), 1)
    )


def _tier(number: int, name: str, spans: Sequence[TimeSpan], end: float) -> str:
    intervals: list[tuple[float, float, str]] = []
    at = 0.0
    for one in spans:
        if one.start > at:
            intervals.append((at, one.start, ""))
        intervals.append((one.start, one.end, one.text.replace('"', '""')))
        at = one.end
    if end > at:
        intervals.append((at, end, ""))
    rows = "".join(
        f"        intervals [{row}]:\n            xmin = {start}\n            xmax = {stop}\n"
        f'            text = "{text}"\n'
        for row, (start, stop, text) in enumerate(intervals, 1)
    )
    return (
        f'    item [{number}]:\n        class = "IntervalTier"\n        name = "{name}"\n        xmin = 0\n'
        f"        xmax = {end}\n        intervals: size = {len(intervals)}\n{rows}"
    )


def _subtitles(write: Callable[[Any], str]) -> Callable[[str, Aligned], str]:
    return lambda name, found: write(cues_of(found.words, found.text, found.end))


FORMATS: dict[str, Format] = {
    "text": Format(lines, (".txt", ".tsv")),
    "jsonl": Format(json_line, (".jsonl", ".json")),
    "csv": Format(table, (".csv",), header=csv_line(list(HEADER))),
    "ctm": Format(ctm, (".ctm",), seconds=True),
    "srt": Format(_subtitles(srt), (".srt",), alone=True, seconds=True),
    "vtt": Format(_subtitles(vtt), (".vtt",), alone=True, seconds=True),
    "textgrid": Format(textgrid, (".TextGrid",), alone=True, seconds=True),
}


def format_of(name: str | None, path: str | None, unit: str) -> Format:
    """The format of this name, or of a file's ending; text by default."""
    if name is None and path is not None:
        endings = {suffix.lower(): key for key, one in FORMATS.items() for suffix in one.suffixes}
        name = next((key for ending, key in endings.items() if path.lower().endswith(ending)), None)
    if name is not None and name not in FORMATS:
        raise unknown_name("format", name, FORMATS)
    found = FORMATS[name or "text"]
    if found.seconds and unit != "seconds":
        raise UserError(f"{name} holds seconds, and this model's places are {unit}.", "Use text, jsonl or csv.")
    return found
