"""A lexicon as a prefix tree and as the minimal automaton: memory and speed on 100,000 words.

    UNROLLED_DATA=... python benchmarks/lexicon.py [--words 100000]

The words are the first of a word list, spelt by their letters. `search` is a beam of 8 over letters through a table of
random transitions, with an n-gram model of the words: 20 outputs of 60 letters at once. `frames` is the C++ search over
noisy posteriors of 10 sentences, with a bigram of words drawn by Zipf's law. `megabytes` are those of the Python graph,
`native_megabytes` those of the C++ graph with its words and look-ahead. Both graphs must give the same outputs to the
bit before they are timed. Times are those of the CPU.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import interleaved, machine, write
from torch import Tensor

from unrolled.search import (
    Beam,
    Decoder,
    DictionaryScorer,
    Lexicon,
    Limits,
    NGram,
    Ranking,
    TokenStep,
    WordTokens,
    beam_search,
)

GRAPHS = {"tree": False, "automaton": True}


class Table:
    """A model whose next letter depends on the last one."""

    def __init__(self, size: int) -> None:
        self.log_probs = torch.randn(size, size, generator=torch.Generator().manual_seed(0)).log_softmax(-1)

    def start(self, memory: Any) -> Any:
        return None

    def step(self, tokens: Tensor, state: Any) -> TokenStep:
        return TokenStep(self.log_probs[tokens], state)


class Frames:
    """The C++ search over noisy posteriors of sentences, one letter and one blank at a time."""

    def __init__(self, words: Sequence[str], letters: Sequence[str]) -> None:
        draw, self.labels = random.Random(0), ["-", *letters, "|"]
        weights = [1 / rank for rank in range(1, len(words) + 1)]
        ranked = draw.sample(words, len(words))
        sentences = [draw.choices(ranked, weights, k=10) for _ in range(20_010)]
        self.lm = NGram.train([*(" ".join(one) for one in sentences[10:]), *words], order=2)
        noise = torch.Generator().manual_seed(0)
        numbers = {label: number for number, label in enumerate(self.labels)}
        self.posteriors = []
        for sentence in sentences[:10]:
            path = torch.tensor([number for letter in "|".join(sentence) for number in (numbers[letter], 0)])
            scores = torch.randn(len(path), len(self.labels), generator=noise)
            scores[torch.arange(len(path)), path] += 3.5
            self.posteriors.append(scores.log_softmax(-1))

    def decoder(self, words: Sequence[str], share_ends: bool, **options: Any) -> Decoder:
        lexicon = Lexicon(words, self.labels, share_ends=share_ends)
        return Decoder(self.labels, lexicon, self.lm, separator="|", backend="native", **options)


def on_frames(words: Sequence[str], letters: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Memory of the C++ graphs and microseconds for each frame, with a closed and an open vocabulary."""
    frames = Frames(words, letters)
    rows: dict[str, dict[str, Any]] = {name: {} for name in GRAPHS}
    count = sum(map(len, frames.posteriors))
    for column, options in (("frame", {}), ("open_frame", {"unknown_penalty": -6.0})):
        decoders = {name: frames.decoder(words, share, **options) for name, share in GRAPHS.items()}
        n_best = [one.decode_batch(frames.posteriors, 5) for one in decoders.values()]
        assert n_best[0] == n_best[1]
        runs = {name: partial(one.decode_batch, frames.posteriors) for name, one in decoders.items()}
        for name, seconds in interleaved(runs, seconds=6, least=5, clock=time.process_time).items():
            lexicon = decoders[name].lexicon
            assert lexicon is not None
            rows[name]["native_megabytes"] = round(lexicon.native(frames.lm).bytes() / 2**20, 3)
            rows[name][f"{column}_microseconds"] = round(seconds / count * 1e6, 1)
    return rows


def measured(words: Sequence[str]) -> dict[str, Any]:
    letters = sorted({letter for word in words for letter in word})
    labels = [*letters, " ", "<eos>"]
    lm = NGram.train(words, order=1)
    tokens = WordTokens(end=len(labels) - 1, separators=[len(labels) - 2], required=True)
    rows: dict[str, Any] = {}
    lexicons, scorers = {}, {}
    for name, share in GRAPHS.items():
        lexicon = Lexicon(words, labels, share_ends=share)
        began = time.process_time()
        graph = lexicon.graph
        seconds = time.process_time() - began
        rows[name] = {
            "nodes": graph.size,
            "arcs": graph.arcs,
            "megabytes": round(graph.memory / 2**20, 3),
            "build_seconds": round(seconds, 2),
        }
        lexicons[name], scorers[name] = lexicon, DictionaryScorer(lexicon, lm, tokens)
    model = Table(len(labels))

    def search(name: str) -> list[Any]:
        limits = Limits(60, tokens.end, min_tokens=50, scorers=[scorers[name]])
        beam = Beam(8, 4, Ranking("none"))
        return [h for one in beam_search(model, 20, limits, start=0, beam=beam) for h in one.hypotheses]

    def walk(name: str) -> int:
        """Every word from the root to its end."""
        graph, numbers = lexicons[name].graph, {label: number for number, label in enumerate(labels)}
        found = 0
        for word in words[::10]:
            place: Any = graph.root
            for letter in word:
                place = graph.find(place, numbers[letter])
            found += graph.rank(place) is not None
        return found

    assert search("tree") == search("automaton")
    assert walk("tree") == walk("automaton") == len(words[::10])
    searched = interleaved(
        {name: partial(search, name) for name in GRAPHS}, seconds=5, least=3, clock=time.process_time
    )
    walked = interleaved({name: partial(walk, name) for name in GRAPHS}, seconds=3, least=3, clock=time.process_time)
    for name, row in on_frames(words, letters).items():
        letters_walked = sum(map(len, words[::10]))
        rows[name] |= {
            "search_seconds": round(searched[name], 3),
            "million_letters_per_second": round(letters_walked / walked[name] / 1e6, 2),
            **row,
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=100_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = []
    for name in ("american-english", "ngerman"):
        with gzip.open(Path(os.environ["UNROLLED_DATA"]) / "wordlists" / f"{name}.txt.gz", "rt") as file:
            words = sorted({line.strip() for line in file if line.strip()})[: options.words]
        for graph, row in measured(words).items():
            table.append({"list": name, "words": len(words), "graph": graph, **row})
            print(table[-1], flush=True)
    write("lexicon", machine(), table, [])


if __name__ == "__main__":
    main()
