"""Hotwords: what they cost the search over frames, and what they bring, beside pyctcdecode.

    python benchmarks/hotwords.py [--peer] [--lines 40]

Posteriors of invented sentences, a letter and a blank at a time with noise, so that about one letter in eight is wrong.
Words come from a list of 4,000 made of syllables. Names to find, the rare words, are a tenth of each sentence. Phrases
are those names and others that never occur, up to the number of the row. Times are CPU times of one thread, the best of
five; `recall` is the share of the names that were read. `--peer` decodes with pyctcdecode too (package pyctcdecode),
with the same beam and its own weight of hotwords.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from measure import load, machine, row, show, write
from numpy.typing import NDArray

from unrolled.search import Lexicon, NGram
from unrolled.search.ctc import Decoder

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LABELS = ["-", *LETTERS, " "]
BEAM = 100
COUNTS = (0, 10, 200, 1000)
Frames = NDArray[np.float32]


def word(draw: random.Random, syllables: int) -> str:
    return "".join(draw.choice("bcdfghjklmnprstvwz") + draw.choice("aeiou") for _ in range(syllables))


def corpus(lines: int) -> tuple[list[str], list[str], list[str], list[Frames]]:
    """Common words, names, sentences, and posteriors of the sentences."""
    draw = random.Random(0)
    common = sorted({word(draw, draw.randint(1, 3)) for _ in range(4000)})
    names = sorted({f"{word(draw, 3)} {word(draw, 2)}" for _ in range(1000)})
    sentences = []
    for _ in range(lines):
        words = draw.choices(common, k=9)
        words.insert(draw.randrange(10), draw.choice(names[:10]))
        sentences.append(" ".join(words))
    noise = torch.Generator().manual_seed(0)
    frames = []
    for sentence in sentences:
        path = torch.tensor([number for letter in sentence for number in (LABELS.index(letter), 0)])
        scores = 1.2 * torch.randn(len(path), len(LABELS), generator=noise)
        scores[torch.arange(len(path)), path] += 4.0
        frames.append(scores.log_softmax(-1).numpy())
    return common, names, sentences, frames


def recall(texts: Sequence[str], sentences: Sequence[str], names: Sequence[str]) -> float:
    """The share of the names that stand in the texts where they were said."""
    found = total = 0
    for text, sentence in zip(texts, sentences, strict=True):
        for name in names:
            if f" {name} " in f" {sentence} ":
                total += 1
                found += f" {name} " in f" {text} "
    return found / total


def best(run: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def measured(decode: Callable[[], list[str]], sentences: Sequence[str], names: Sequence[str]) -> dict[str, float]:
    texts = decode()
    return {"ms": 1000 * best(decode) / len(sentences), "recall": recall(texts, sentences, names)}


def texts_of(decoder: Decoder, frames: Sequence[Frames]) -> list[str]:
    return [one[0].text for one in decoder.decode_batch(frames)]


def texts_of_peer(decoder: Any, frames: Sequence[Frames], hot: dict[str, Any]) -> list[str]:
    return [decoder.decode(one, beam_width=BEAM, **hot) for one in frames]


def ours(lines: int) -> dict[str, dict[int, dict[str, float]]]:
    common, names, sentences, frames = corpus(lines)
    draw = random.Random(1)
    lm = NGram.train([" ".join(draw.choices(common, k=10)) for _ in range(3000)], order=2)
    words = [*common, *sorted({part for name in names for part in name.split()})]
    lexicon = Lexicon({one: [one] for one in words}, LABELS)
    found: dict[str, dict[int, dict[str, float]]] = {"labels": {}, "words": {}}
    for count in COUNTS:
        hot: dict[str, Any] = {"hotwords": names[:count]} if count else {}
        decoders = {
            "labels": Decoder(LABELS, separator=" ", beam=BEAM, **hot),
            "words": Decoder(LABELS, lexicon, lm, separator=" ", beam=BEAM, lm_weight=0.5, **hot),
        }
        for kind, decoder in decoders.items():
            found[kind][count] = measured(partial(texts_of, decoder, frames), sentences, names)
    return found


def peer(lines: int) -> dict[int, dict[str, float]]:
    from pyctcdecode import build_ctcdecoder

    _, names, sentences, frames = corpus(lines)
    decoder = build_ctcdecoder(["", *LABELS[1:]])
    found = {}
    for count in COUNTS[:3]:
        hot: dict[str, Any] = {"hotwords": names[:count]} if count else {}
        found[count] = measured(partial(texts_of_peer, decoder, frames, hot), sentences, names)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--peer", action="store_true")
    options.add_argument("--lines", type=int, default=40)
    given = options.parse_args()
    torch.set_num_threads(1)
    details: dict[str, Any] = dict(ours(given.lines))
    if given.peer:
        details["pyctcdecode"] = peer(given.lines)
    table = []
    for kind, rows in details.items():
        for count, one in rows.items():
            cost = one["ms"] / rows[0]["ms"]
            must = "1.3×" if kind != "pyctcdecode" and count == COUNTS[-1] else ""
            table.append(
                row(f"{kind}, {count:,} phrases", cost, must, note=f"{one['ms']:.2f} ms, recall {one['recall']:.0%}")
            )
    show("hotwords: time over that without", table)
    write("hotwords", machine() | {"load": load()}, table, [details])


if __name__ == "__main__":
    main()
