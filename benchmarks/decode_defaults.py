"""Real posteriors: the errors and the time of a margin, and both tools with their own defaults."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import row
from peer_process import Peer
from real_posteriors import RealSet

from unrolled.metrics.recognition import recognition_scores
from unrolled.search import Decoder, Lexicon, NGram, prefix_search

MARGINS = (math.inf, 50.0, 30.0, 20.0, 15.0, 12.0, 10.0, 8.0, 6.0)
ROUNDS = 3  # repetitions, taking turns; the best counts
Texts = Callable[[torch.Tensor], str]


def spelt(real: RealSet, **options: Any) -> Texts:
    """Search without a lexicon: `prefix_search`."""

    def read(frames: torch.Tensor) -> str:
        found = prefix_search(frames, **options)[0]
        return " ".join("".join(real.labels[label] for label in found.labels).split())

    return read


def with_words(real: RealSet, lm: NGram | None, **options: Any) -> Texts:
    lexicon = Lexicon(real.words, real.labels, skip_unspellable=True)
    decoder = Decoder(real.labels, lexicon, lm, blank=0, separator=" ", **options)
    return lambda frames: decoder.decode(frames)[0].text


def ways(real: RealSet, lm: NGram) -> dict[str, Callable[[float], Texts]]:
    """Each kind of search for a margin."""
    open_words = {"unknown_penalty": -4.0, "word_bonus": 2.0}
    return {
        "no lexicon": lambda margin: spelt(real, margin=margin),
        "lexicon": lambda margin: with_words(real, None, margin=margin),
        "lexicon + lm": lambda margin: with_words(real, lm, margin=margin),
        "lexicon + lm, weight 2": lambda margin: with_words(real, lm, margin=margin, lm_weight=2.0, word_bonus=2.0),
        "open lexicon + lm, weight 0.5": lambda margin: with_words(
            real, lm, margin=margin, lm_weight=0.5, **open_words
        ),
    }


def what_margins_cost(real: RealSet, lm: NGram) -> list[dict[str, Any]]:
    """Errors, texts that differ from those without a margin, and milliseconds, for every search and margin."""
    found = []
    for name, make in ways(real, lm).items():
        exact: list[str] = []
        for margin in MARGINS:
            read = make(margin)
            start = time.perf_counter()
            texts = [read(frames) for frames in real.posteriors]
            spent = (time.perf_counter() - start) / len(texts)
            exact = exact or texts
            scores = recognition_scores(texts, real.texts)
            found.append(
                {
                    "set": real.name,
                    "search": name,
                    "margin": "none" if math.isinf(margin) else margin,
                    "word error": round(scores.wer, 4),
                    "character error": round(scores.cer, 4),
                    "texts changed": sum(a != b for a, b in zip(texts, exact, strict=True)),
                    "ms": round(1e3 * spent, 2),
                }
            )
    return found


def at_own_defaults(real: RealSet, lm: NGram, python: str, repeats: int) -> tuple[list[Any], list[dict[str, Any]]]:
    """Ours and pyctcdecode, each with its defaults; the median of several runs."""
    rows, details = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lm.save(folder / "lm.arpa")
        np.savez(folder / "frames.npz", *[frames.numpy() for frames in real.posteriors])
        job: dict[str, Any] = {"labels": real.labels, "frames": str(folder / "frames.npz")}
        words = {"words": real.words, "arpa": str(folder / "lm.arpa")}
        for what, theirs, ours, unlimited in (
            ("no lexicon", job, spelt(real), spelt(real, margin=math.inf)),
            ("words and a 2-gram", job | words, with_words(real, lm), with_words(real, lm, margin=math.inf)),
        ):
            runs = []
            for _ in range(repeats):
                peer = Peer(python, "decode_pyctcdecode.py", "pyctcdecode", theirs)
                runs.append(_together(peer, {"ours": ours, "ours, no margin": unlimited}, real.posteriors))
                texts = {"ours": [ours(one) for one in real.posteriors], "pyctcdecode": peer.about["texts"]}
                peer.close()
            seconds = sorted(runs, key=lambda run: run["pyctcdecode"] / run["ours"])[len(runs) // 2]
            wrong = {tool: recognition_scores(some, real.texts).cer for tool, some in texts.items()}
            ratios = [run["pyctcdecode"] / run["ours"] for run in runs]
            told = (
                f"character error {wrong['ours']:.1%}, theirs {wrong['pyctcdecode']:.1%}; "
                f"{1e3 * seconds['ours']:.2f} ms, theirs {1e3 * seconds['pyctcdecode']:.2f}, "
                f"ours without a margin {1e3 * seconds['ours, no margin']:.2f}"
            )
            title = f"{real.name}, {what}, both at their own defaults, against pyctcdecode"
            rows.append(row(title, statistics.median(ratios), "", "", told))
            print(rows[-1], flush=True)
            details.append(
                {"set": real.name, "search": what, "seconds": seconds, "ratios": ratios, "character error": wrong}
            )
    return rows, details


def _together(peer: Peer, ours: dict[str, Texts], frames: list[torch.Tensor]) -> dict[str, float]:
    """The best time of each for one matrix, taking turns."""
    best = dict.fromkeys([*ours, "pyctcdecode"], math.inf)
    for _ in range(ROUNDS):
        best["pyctcdecode"] = min(best["pyctcdecode"], float(peer.ask("again")["seconds"]))
        for name, read in ours.items():
            start = time.perf_counter()
            for one in frames:
                read(one)
            best[name] = min(best[name], (time.perf_counter() - start) / len(frames))
    return best
