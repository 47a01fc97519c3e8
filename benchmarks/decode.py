"""Decoding posteriors against flashlight-text and pyctcdecode, one thread each.

    UNROLLED_DATA=... python benchmarks/decode.py [--pyctcdecode PYTHON] [--seconds 3] [--only same,defaults,margins]
        [--models FOLDER]

Sentences of the Penn Treebank's test part become posteriors of T = 500 frames and V = 32 labels: peaky ones (spikes
between blanks, some of them wrong) and flat ones (labels over several frames in noise). The 3-gram is trained on its
training part. The lexicons are its words, without and with those of a word list. All decoders use the same beam and
margin; the table shows each decoder's word error beside its time. pyctcdecode pins numpy 1: name a Python that has it.

`defaults` runs both tools with their own defaults, and `margins` measures the errors that a margin costs. Both use
posteriors of real lines and recordings, from models that are kept in FOLDER. Parts that are not measured stay in the
file as they are.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import math
import os
import random
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from decode_defaults import at_own_defaults, what_margins_cost
from measure import RESULTS, interleaved, machine, row, show, write
from real_posteriors import real_sets

from unrolled.search import Decoder, Lexicon, NGram, prefix_search

DATA = Path(os.environ["UNROLLED_DATA"])
LETTERS = "abcdefghijklmnopqrstuvwxyz'."
LABELS = ["-", "|", *LETTERS, "0", "1"]  # the last two never occur
FRAMES, MARGIN, LM_WEIGHT = 500, 50.0, 1.0
SPELT = re.compile(f"[{LETTERS}]+")


def text_of(part: str) -> list[list[str]]:
    lines = (DATA / "ptb" / f"ptb.{part}.txt").read_text().splitlines()
    return [[word for word in line.split() if SPELT.fullmatch(word)] for line in lines]


def sentences(count: int) -> list[list[str]]:
    """Sentences of the test part, cut where their letters would not fit into 500 frames."""
    found = []
    for words in text_of("test"):
        kept: list[str] = []
        for word in words:
            if sum(len(one) + 1 for one in [*kept, word]) > 110:
                break
            kept.append(word)
        if len(kept) >= 8:
            found.append(kept)
    return random.Random(0).sample(found, count)


def posteriors(words: list[str], kind: str, seed: int) -> torch.Tensor:
    """(500, 32) log-probabilities of a sentence, a separator after each word."""
    generator = np.random.default_rng(seed)
    labels = [LABELS.index(letter) for word in words for letter in word + "|"]
    path = np.zeros(FRAMES, np.int64)
    places = np.sort(generator.choice(FRAMES // 4, len(labels), replace=False)) * 4
    for place, label in zip(places, labels, strict=True):
        wrong = generator.random() < 0.08 and label != 1
        path[place : place + (1 if kind == "peaky" else 3)] = generator.integers(2, 30) if wrong else label
    height, noise = (9.0, 1.5) if kind == "peaky" else (4.0, 1.0)
    logits = generator.normal(0, noise, (FRAMES, len(LABELS)))
    logits[np.arange(FRAMES), path] += height
    return torch.tensor(logits).log_softmax(-1).float()


def word_errors(found: list[str], expected: list[str]) -> int:
    before = list(range(len(expected) + 1))
    for i, word in enumerate(found, 1):
        now = [i]
        for j, other in enumerate(expected, 1):
            now.append(min(before[j] + 1, now[-1] + 1, before[j - 1] + (word != other)))
        before = now
    return before[-1]


def error_rate(found: list[list[str]], expected: list[list[str]]) -> float:
    errors = sum(word_errors(one, other) for one, other in zip(found, expected, strict=True))
    return errors / sum(map(len, expected))


def lexicons(sizes: list[int]) -> dict[int, list[str]]:
    words = sorted({word for line in text_of("train") for word in line})
    with gzip.open(DATA / "wordlists" / "american-english.txt.gz", "rt") as file:
        more = sorted({line.strip().lower() for line in file if SPELT.fullmatch(line.strip().lower())} - set(words))
    random.Random(1).shuffle(more)
    return {size: (words + more)[:size] for size in sizes}


def flashlight_decoder(words: list[str], arpa: Path, beam: int) -> Callable[[torch.Tensor], list[str]]:
    from flashlight.lib.text.decoder import (
        CriterionType,
        LexiconDecoder,
        LexiconDecoderOptions,
        SmearingMode,
        Trie,
    )
    from flashlight.lib.text.decoder.kenlm import KenLM
    from flashlight.lib.text.dictionary import Dictionary

    dictionary = Dictionary()
    for word in words:
        dictionary.add_entry(word)
    dictionary.add_entry("<unk>")
    lm = KenLM(str(arpa), dictionary)
    trie = Trie(len(LABELS), 1)
    start = lm.start(False)
    for number, word in enumerate(words):
        _, score = lm.score(start, number)
        trie.insert([LABELS.index(letter) for letter in word + "|"], number, score)
    trie.smear(SmearingMode.MAX)
    options = LexiconDecoderOptions(
        beam_size=beam,
        beam_size_token=len(LABELS),
        beam_threshold=MARGIN,
        lm_weight=LM_WEIGHT * math.log(10),  # its scores are log10
        word_score=0.0,
        unk_score=-math.inf,
        sil_score=0.0,
        log_add=False,
        criterion_type=CriterionType.CTC,
    )
    decoder = LexiconDecoder(options, trie, lm, 1, 0, len(words), [], False)

    def decode(frames: torch.Tensor) -> list[str]:
        best = decoder.decode(frames.data_ptr(), *frames.shape)[0]
        return [words[number] for number in best.words if number >= 0]

    return decode


def each(way: Callable[[torch.Tensor], list[str]], frames: list[torch.Tensor]) -> list[list[str]]:
    return [way(one) for one in frames]


def against_flashlight(options: argparse.Namespace, arpa: Path, lm: NGram) -> tuple[list[Any], list[Any]]:
    rows, details = [], []
    expected = sentences(options.sentences)
    for size, words in lexicons([10_000, 100_000]).items():
        lexicon = Lexicon(words, LABELS)
        for beam in (50, 100, 500):
            theirs = flashlight_decoder(words, arpa, beam)
            decoder = Decoder(LABELS, lexicon, lm, separator="|", beam=beam, margin=MARGIN, lm_weight=LM_WEIGHT)

            def ours(frames: torch.Tensor, decoder: Decoder = decoder) -> list[str]:
                return [word.text for word in decoder.decode(frames)[0].words]

            for kind in ("peaky", "flat"):
                frames = [posteriors(one, kind, seed) for seed, one in enumerate(expected)]
                ways = {"ours": ours, "flashlight": theirs}
                wrong = {name: error_rate([way(one) for one in frames], expected) for name, way in ways.items()}
                timed = frames[: 4 if beam < 500 else 2]
                runs = {name: functools.partial(each, way, timed) for name, way in ways.items()}
                times = interleaved(runs, options.seconds, least=3)
                ratio = times["flashlight"] / times["ours"]
                note = f"word error {wrong['ours']:.1%}, theirs {wrong['flashlight']:.1%}"
                note += f"; {1e3 * times['ours'] / len(timed):.1f} ms a sentence"
                rows.append(row(f"lexicon {size:,}, beam {beam}, {kind}, against flashlight", ratio, "2×", "5×", note))
                print(rows[-1], flush=True)
                details.append({"lexicon": size, "beam": beam, "kind": kind, "seconds": times, "word error": wrong})
    return rows, details


def against_lexicon_free(options: argparse.Namespace) -> tuple[list[Any], list[Any]]:
    from flashlight.lib.text.decoder import CriterionType, LexiconFreeDecoder, LexiconFreeDecoderOptions, ZeroLM

    rows, details = [], []
    expected = sentences(4)
    for beam in (50, 100, 500):
        given = LexiconFreeDecoderOptions(
            beam_size=beam,
            beam_size_token=len(LABELS),
            beam_threshold=MARGIN,
            lm_weight=0.0,
            sil_score=0.0,
            log_add=True,
            criterion_type=CriterionType.CTC,
        )
        decoder = LexiconFreeDecoder(given, ZeroLM(), 1, 0, [])
        for kind in ("peaky", "flat"):
            frames = [posteriors(one, kind, seed) for seed, one in enumerate(expected)]

            def theirs(decoder: Any = decoder, frames: list[torch.Tensor] = frames) -> list[list[int]]:
                tokens = [decoder.decode(one.data_ptr(), *one.shape)[0].tokens for one in frames]
                return [[b for a, b in zip([0, *path], path, strict=False) if b not in (-1, 0, a)] for path in tokens]

            def ours(beam: int = beam, frames: list[torch.Tensor] = frames) -> list[list[int]]:
                return [prefix_search(one, beam, margin=MARGIN)[0].labels for one in frames]

            spelt = [[LABELS.index(letter) for word in one for letter in word + "|"] for one in expected]
            wrong = {
                name: sum(word_errors(list(map(str, a)), list(map(str, b))) for a, b in zip(way(), spelt, strict=True))
                / sum(map(len, spelt))
                for name, way in (("ours", ours), ("flashlight", theirs))
            }
            times = interleaved({"ours": ours, "flashlight": theirs}, options.seconds, least=3)
            ratio = times["flashlight"] / times["ours"]
            note = f"label error {wrong['ours']:.1%}, theirs {wrong['flashlight']:.1%}"
            rows.append(row(f"no lexicon, beam {beam}, {kind}, against flashlight", ratio, "3×", "8×", note))
            print(rows[-1], flush=True)
            details.append({"lexicon": 0, "beam": beam, "kind": kind, "seconds": times, "label error": wrong})
    return rows, details


PYCTCDECODE = """
import json, sys, time, logging
logging.disable(logging.CRITICAL)
import numpy as np
from pyctcdecode import build_ctcdecoder
job = json.load(open(sys.argv[1]))
labels = ["", " ", *job["labels"][2:]]
decoder = build_ctcdecoder(labels, job["arpa"], job["words"], alpha=job["weight"], beta=0.0)
frames = np.load(job["frames"])
limits = {"beam_width": job["beam"], "beam_prune_logp": -job["margin"], "token_min_logp": -job["margin"]}
start = time.perf_counter()
found = [decoder.decode(one, **limits).split() for one in frames]
print(json.dumps({"found": found, "seconds": (time.perf_counter() - start) / len(frames)}))
"""


def against_pyctcdecode(options: argparse.Namespace, arpa: Path, lm: NGram) -> tuple[list[Any], list[Any]]:
    """Run pyctcdecode in a process of its own, once per sentence, because it is slow."""
    rows, details = [], []
    expected = sentences(3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "run.py").write_text(PYCTCDECODE)
        for size, words in lexicons([10_000, 100_000]).items():
            decoder = Decoder(LABELS, words, lm, separator="|", beam=100, margin=MARGIN, lm_weight=LM_WEIGHT)
            for kind in ("peaky", "flat"):
                frames = [posteriors(one, kind, seed) for seed, one in enumerate(expected)]
                np.save(folder / "frames.npy", torch.stack(frames).numpy())
                job = {
                    "labels": LABELS,
                    "arpa": str(arpa),
                    "words": words,
                    "weight": LM_WEIGHT,
                    "beam": 100,
                    "margin": MARGIN,
                }
                job |= {"frames": str(folder / "frames.npy")}
                (folder / "job.json").write_text(json.dumps(job))
                found = [[word.text for word in decoder.decode(one)[0].words] for one in frames]
                times = interleaved({"ours": functools.partial(decoder.decode_batch, frames)}, options.seconds)
                run = [options.pyctcdecode, folder / "run.py", folder / "job.json"]
                theirs = json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
                wrong = {"ours": error_rate(found, expected), "pyctcdecode": error_rate(theirs["found"], expected)}
                ratio = theirs["seconds"] / (times["ours"] / len(frames))
                note = f"word error {wrong['ours']:.1%}, theirs {wrong['pyctcdecode']:.1%}"
                rows.append(row(f"lexicon {size:,}, beam 100, {kind}, against pyctcdecode", ratio, "20×", "50×", note))
                print(rows[-1], flush=True)
                seconds = {"ours": times["ours"] / len(frames), "pyctcdecode": theirs["seconds"]}
                details.append({"lexicon": size, "beam": 100, "kind": kind, "seconds": seconds, "word error": wrong})
    return rows, details


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sentences", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--pyctcdecode", metavar="PYTHON", help="a Python that has pyctcdecode")
    parser.add_argument("--only", default="same,defaults,margins")
    parser.add_argument("--models", type=Path, default=Path(tempfile.gettempdir()) / "unrolled-real-posteriors")
    parser.add_argument("--inputs", type=int, default=120, help="of each real set")
    parser.add_argument("--repeats", type=int, default=3, help="of `defaults`; the middle one counts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts: dict[str, tuple[list[Any], list[Any]]] = {}
    if "same" in options.only:
        parts["same"] = at_the_same_limits(options)
    if "defaults" in options.only or "margins" in options.only:
        parts |= on_real_posteriors(options)
    show("Decoding, one thread", [row for rows, _ in parts.values() for row in rows])
    merge_results(parts)


def at_the_same_limits(options: argparse.Namespace) -> tuple[list[Any], list[Any]]:
    with tempfile.TemporaryDirectory() as folder:
        arpa = Path(folder) / "lm.arpa"
        NGram.train([" ".join(words) for words in text_of("train") if words], order=3).save(arpa)
        lm = NGram.load(arpa)
        rows, details = against_lexicon_free(options)
        for more_rows, more_details in (
            against_flashlight(options, arpa, lm),
            against_pyctcdecode(options, arpa, lm) if options.pyctcdecode else ([], []),
        ):
            rows, details = rows + more_rows, details + more_details
    return rows, details


def on_real_posteriors(options: argparse.Namespace) -> dict[str, tuple[list[Any], list[Any]]]:
    found: dict[str, tuple[list[Any], list[Any]]] = {}
    for real in real_sets(options.models, options.inputs):
        lm = NGram.train(real.sentences, order=2)
        if "defaults" in options.only and options.pyctcdecode:
            rows, details = at_own_defaults(real, lm, options.pyctcdecode, options.repeats)
            found.setdefault("defaults", ([], []))[0].extend(rows)
            found["defaults"][1].extend(details)
        if "margins" in options.only:
            found.setdefault("margins", ([], []))[1].extend(what_margins_cost(real, lm))
    return found


def merge_results(parts: dict[str, tuple[list[Any], list[Any]]]) -> None:
    """Write the measured parts; the others stay as they are in the file."""
    path = RESULTS / "decode.json"
    kept = json.loads(path.read_text()) if path.is_file() else {"table": [], "details": []}
    rows = [one for one in kept["table"] if one.get("part", "same") not in parts]
    details = [one for one in kept["details"] if one.get("part", "same") not in parts]
    for name, (more_rows, more_details) in parts.items():
        rows += [{**one, "part": name} for one in more_rows]
        details += [{**one, "part": name} for one in more_details]
    write("decode", machine(), rows, details)


if __name__ == "__main__":
    main()
