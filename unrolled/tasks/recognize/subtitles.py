"""Words with times as cues of subtitles: SubRip and WebVTT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from unrolled.tasks.recognize.search import TimeSpan

MOST_LETTERS = 84  # two lines of a subtitle
MOST_SECONDS = 7.0
PAUSE = 0.8  # seconds of silence that end a cue


class Cue(NamedTuple):
    """A piece of a transcript with its times in seconds, and the numbers of its words."""

    start: float
    end: float
    text: str
    words: range


def cues_of(words: Sequence[TimeSpan], text: str, seconds: float) -> list[Cue]:
    """Words in cues, divided at pauses, where one grows too long, and where there are most words, at ends of sentences.

    A text without words is one cue.

    >>> spans = [TimeSpan("yes", 0.0, 0.4), TimeSpan("no", 2.0, 2.3), TimeSpan("way", 2.4, 2.6)]
    >>> [(cue.start, cue.end, cue.text) for cue in cues_of(spans, "yes no way", 3.0)]
    [(0.0, 0.4, 'yes'), (2.0, 2.6, 'no way')]
    """
    if not words:
        return [Cue(0.0, seconds, text, range(0))] if text else []
    return list(_divided(words))


def _divided(words: Sequence[TimeSpan]) -> Iterator[Cue]:
    first = 0
    for number in range(1, len(words) + 1):
        if number < len(words) and not _ends(words[first:number], words[number]):
            continue
        some = words[first:number]
        yield Cue(some[0].start, max(one.end for one in some), " ".join(one.text for one in some), range(first, number))
        first = number


def _ends(some: Sequence[TimeSpan], following: TimeSpan) -> bool:
    letters = sum(len(one.text) + 1 for one in some)
    return (
        following.start - some[-1].end >= PAUSE
        or letters + len(following.text) > MOST_LETTERS
        or following.end - some[0].start > MOST_SECONDS
        or (letters > MOST_LETTERS // 2 and some[-1].text.endswith((".", "!", "?")))
    )


def srt(cues: Sequence[Cue]) -> str:
    """The cues as a SubRip file.

    >>> print(srt([Cue(0.5, 61.25, "one two", range(2))]), end="")
    1
    00:00:00,500 --> 00:01:01,250
    one two
    <BLANKLINE>
    """
    parts = [
        f"{number}\n{_clock(cue.start, ',')} --> {_clock(cue.end, ',')}\n{_line(cue.text)}\n"
        for number, cue in enumerate(cues, 1)
    ]
    return "\n".join(parts)


def vtt(cues: Sequence[Cue]) -> str:
    """The cues as a WebVTT file.

    >>> print(vtt([Cue(0.5, 3661.25, "a < b", range(2))]), end="")
    WEBVTT
    <BLANKLINE>
    00:00:00.500 --> 01:01:01.250
    a &lt; b
    """
    parts = [f"{_clock(cue.start, '.')} --> {_clock(cue.end, '.')}\n{_escaped(_line(cue.text))}\n" for cue in cues]
    return "\n".join(["WEBVTT\n", *parts])


def _clock(seconds: float, point: str) -> str:
    whole = round(seconds * 1000)
    return f"{whole // 3_600_000:02}:{whole // 60_000 % 60:02}:{whole // 1000 % 60:02}{point}{whole % 1000:03}"


def _line(text: str) -> str:
    return " ".join(text.split())


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
