"""A lexicon as a prefix tree and as the minimal automaton: memory and speed on 100,000 words.

    UNROLLED_DATA=... python benchmarks/lexicon.py [--words 100000]

The words are the first of a word list, spelt by their letters. `search` is a beam of 8 over letters through a table of
random transitions, with an n-gram model of the words: 20 outputs of 60 letters at once. Both graphs must give the same
outputs to the bit before they are timed.
"""

from __future__ import annotations

import argparse
import gzip
import os
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


def measured(words: Sequence[str]) -> dict[str, Any]:
    letters = sorted({letter for word in words for letter in word})
    labels = [*letters, " ", "<eos>"]
    lm = NGram.train(words, order=1)
    tokens = WordTokens(end=len(labels) - 1, separators=[len(labels) - 2], required=True)
    rows: dict[str, Any] = {}
    lexicons, scorers = {}, {}
    for name, share in GRAPHS.items():
        lexicon = Lexicon(words, labels, share_ends=share)
        began = time.perf_counter()
        graph = lexicon.graph
        seconds = time.perf_counter() - began
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
    searched = interleaved({name: partial(search, name) for name in GRAPHS}, seconds=5, least=3)
    walked = interleaved({name: partial(walk, name) for name in GRAPHS}, seconds=3, least=3)
    for name in GRAPHS:
        letters_walked = sum(map(len, words[::10]))
        rows[name] |= {
            "search_seconds": round(searched[name], 3),
            "million_letters_per_second": round(letters_walked / walked[name] / 1e6, 2),
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
