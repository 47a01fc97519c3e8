"""Beam search and sampling on an NVIDIA GPU: ours in CUDA graphs against the same in plain torch (plain_search.py).

Both sides have the same untrained network, batches and dtype. Translations have 24 words and an end, since an untrained
network does not know when to stop. Before it is timed, ours must write what plain torch writes, in fp32.

    PYTHONPATH=. python benchmarks/search_gpu.py [--only attention,transformer,…] [--rounds 3]
    PYTHONPATH=. python benchmarks/search_gpu.py --tiny        # small sizes, on a CPU too: that it works
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import plain_search as plain
import torch
from measure import machine, row, show, write

from unrolled.data import RowBuckets
from unrolled.data.batching.ragged import Ragged
from unrolled.jobs.target import configure
from unrolled.jobs.train import TrainingJob
from unrolled.model import Model
from unrolled.search import Limits, Sampling, sample
from unrolled.tasks.translate.batches import source_arrays
from unrolled.tasks.translate.predict import tokens_at_once

BEAM, LENGTH, TEMPERATURE = 5, 25, 0.8
OPTIONS: dict[str, Any] = {"beam": BEAM, "min_tokens": LENGTH - 1, "max_tokens": LENGTH, "unknown": "keep"}
details: list[dict[str, Any]] = []


class Sizes:
    """The sizes of the models: those of the table, or tiny ones."""

    def __init__(self, tiny: bool) -> None:
        self.words, self.sentences = (60, 20) if tiny else (8_000, 1_000)
        self.width, self.decoder, self.blocks = (16, 32, 2) if tiny else (256, 512, 4)
        self.streams, self.characters = (8, 40) if tiny else (256, 500)
        self.small, self.large = (16, 24) if tiny else (256, 512)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"some of: {', '.join(ROWS)}")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many is taken")
    parser.add_argument("--tiny", action="store_true", help="small sizes, nothing is written")
    given = parser.parse_args()
    if not torch.cuda.is_available() and not given.tiny:
        raise SystemExit("torch finds no NVIDIA GPU here. Try --tiny.")
    facts = machine() | ({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {})
    print(facts)
    sizes, rows = Sizes(given.tiny), []
    for name in given.only.split(",") if given.only else list(ROWS):
        rows += ROWS[name](sizes, given.rounds)
    show("Search: plain torch's time over ours", rows)
    if not given.tiny:
        write("search_gpu" if not given.only else "search_gpu_part", facts, rows, details)


def best_seconds(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The best time of each, after one run that is not timed; they take turns."""
    found = dict.fromkeys(runs, float("inf"))
    for number in range(rounds + 1):
        for name, run in runs.items():
            _wait()
            began = time.perf_counter()
            run()
            _wait()
            if number:
                found[name] = min(found[name], time.perf_counter() - began)
    return found


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def a_translator(sizes: Sizes, **keys: Any) -> tuple[Model, list[str]]:
    """An untrained translator of words, and sources of 5 to 35 words."""
    draw = random.Random(0)
    words = [f"w{number}" for number in range(sizes.words)]
    sources = [" ".join(draw.choices(words, k=draw.randint(5, 35))) for _ in range(sizes.sentences)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.tsv"
        lines = [" ".join(words[first : first + 20]) for first in range(0, len(words), 20)]
        path.write_text("".join(f"{line}\t{line}\n" for line in lines))
        changes = {"data.train": str(path), "data.level": "word", "model.tied": False, "train.device": sizes.device}
        torch.manual_seed(0)
        job = TrainingJob(configure("translate", [], {**changes, **keys}))
    model = job.model.to(sizes.device)
    model.network.eval()
    return model, sources


def sharpen(model: Model) -> None:
    """Scale the scores of an untrained network: the best tokens differ by more than rounding."""
    network: Any = model.network
    with torch.no_grad():
        network.scores.weight.mul_(12.0 / float(network.scores.weight.std() * network.scores.in_features**0.5))


def translating(kind: str, **keys: Any) -> Callable[[Sizes, int], list[dict[str, Any]]]:
    """The row of a translator: 1,000 sentences, beam 5, bf16."""

    def compare(sizes: Sizes, rounds: int) -> list[dict[str, Any]]:
        own = {key: value(sizes) if callable(value) else value for key, value in keys.items()}
        model, sources = a_translator(sizes, **own)
        sharpen(model)
        network: Any = model.network
        steps: Any = (
            plain.TransformerSteps(network, network.decoder, network.target_positions)
            if kind == "transformer"
            else plain.AttentionDecoder(network)
        )
        check_equal(model, steps, sources[:100])

        def ours(graph: str, precision: str = "auto") -> Callable[[], object]:
            return lambda: model.predict(sources, **OPTIONS, precision=precision, graph=graph)

        target = model.assets.target
        runs = {
            "ours": ours("auto"),
            "ours without graphs": ours("off"),
            "plain": lambda: [target.text(ids) for ids in plain_translate(model, steps, sources, "auto")],
        }
        seconds = best_seconds(runs, rounds)
        graphs = len(network.graphs)
        details.append({"model": kind, "graphs": graphs, **seconds})
        print(details[-1], flush=True)
        what = f"{kind} translator, beam {BEAM}, {len(sources):,} sentences"
        return [
            row(what, seconds["plain"] / seconds["ours"], "5×", "10×", f"{seconds['ours']:.3f} s, {graphs} graphs"),
            row("  ours without graphs over ours", seconds["ours without graphs"] / seconds["ours"]),
        ]

    return compare


def check_equal(model: Model, steps: Any, sources: list[str]) -> None:
    """In fp32 at least 97 % of the outputs must be equal: of two nearly equal ones rounding decides."""
    ours = [one.target_tokens for one in model.predict(sources, **OPTIONS, precision="fp32")]
    theirs = plain_translate(model, steps, sources, "fp32")
    same = sum(model.assets.target.shown(b) == a for a, b in zip(ours, theirs, strict=True))
    if same < 0.97 * len(sources):
        raise SystemExit(f"Only {same} of {len(sources)} outputs are those of plain torch.")


def plain_translate(model: Model, steps: Any, texts: list[str], precision: str) -> list[list[int]]:
    """The translations of plain torch, in the batches that ours has."""
    assets, network = model.assets, model.network
    ids = [assets.source.ids(text) for text in texts]
    sources = Ragged.of(ids)
    room = tokens_at_once(model.device) // BEAM
    batches = RowBuckets(
        ids, sources.lengths + 1, lambda some: source_arrays(assets, sources, some), batch_size=1, batch_tokens=room
    )
    answers: dict[int, list[int]] = {}
    with model.answering(precision):
        for index in range(len(batches)):
            batch = model.placed(batches[index])
            state = steps.start(network.encode(batch), BEAM)  # type: ignore[operator]
            target, rows = assets.target, len(batch.inputs)
            found = plain.beam_search(steps, state, rows, LENGTH, BEAM, target.begin, target.end, [target.begin])
            answers |= dict(zip(batches.rows(index), found, strict=True))
    return [answers[place] for place in range(len(texts))]


def drawing(kind: str, **keys: Any) -> Callable[[Sizes, int], list[dict[str, Any]]]:
    """The rows of a language model of characters: many streams, and one."""

    def compare(sizes: Sizes, rounds: int) -> list[dict[str, Any]]:
        own = {key: value(sizes) if callable(value) else value for key, value in keys.items()}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "text.txt"
            path.write_text(
                "".join(chr(33 + number % 90) + ("\n" if number % 60 == 0 else "") for number in range(9000))
            )
            torch.manual_seed(0)
            job = TrainingJob(configure("generate", [], {"data.train": str(path), "train.device": sizes.device, **own}))
        network: Any = job.model.to(sizes.device).network.eval()
        lines = []
        for streams in (sizes.streams, 1):
            found = compare_drawing(network, streams, sizes.characters, rounds)
            details.append({"model": kind, "streams": streams, **found})
            print(details[-1], flush=True)
            rate = streams * sizes.characters / found["ours"]
            bars = ("5×", "10×") if streams > 1 else ("", "")
            what = f"{kind}, {streams} streams × {sizes.characters}"
            lines.append(row(what, found["plain"] / found["ours"], *bars, f"{rate:,.0f} tokens/s"))
        return lines

    return compare


def compare_drawing(network: Any, streams: int, count: int, rounds: int) -> dict[str, float]:
    """Seconds of both sides; greedily they must write the same."""
    recurrent = hasattr(network, "layer")
    step: Any = (
        plain.RecurrentSteps(network)
        if recurrent
        else plain.TransformerSteps(network, network.encoder, network.positions)
    )
    begin = network.start_token

    def theirs(temperature: float, tokens: int = count) -> list[list[int]]:
        state = None if recurrent else step.empty(streams, torch.float32)
        return plain.sample(step, state, streams, tokens, begin, [0], temperature)

    def ours(temperature: float, tokens: int = count, graph: Any = "auto") -> list[list[int]]:
        limits = Limits(tokens, forbidden=[0])
        found = sample(network, [[begin]] * streams, limits, sampling=Sampling(temperature), seeds=0, graph=graph)
        return [one.tokens for one in found]

    with torch.no_grad():
        if ours(0, 8) != theirs(0, 8):
            raise SystemExit("Greedily ours does not write what plain torch writes.")
    runs = {
        "ours": lambda: ours(TEMPERATURE),
        "plain": lambda: theirs(TEMPERATURE),
        "ours without graphs": lambda: ours(TEMPERATURE, graph="off"),
    }
    return best_seconds(runs, rounds)


ROWS: dict[str, Callable[[Sizes, int], list[dict[str, Any]]]] = {
    "attention": translating(
        "attention",
        **{
            "model.embedding_size": lambda sizes: sizes.width,
            "model.encoder.hidden_size": lambda sizes: sizes.width,
            "model.decoder.hidden_size": lambda sizes: sizes.decoder,
        },
    ),
    "transformer": translating(
        "transformer",
        **{
            "model.kind": "transformer",
            "model.encoder.hidden_size": lambda sizes: sizes.width,
            "model.encoder.blocks": lambda sizes: sizes.blocks,
            "model.decoder.blocks": lambda sizes: sizes.blocks,
        },
    ),
    "lstm": drawing("LSTM 1×256", **{"model.hidden_size": lambda sizes: sizes.small}),
    "lstm2": drawing("LSTM 2×512", **{"model.hidden_size": lambda sizes: sizes.large, "model.num_layers": 2}),
    "blocks": drawing(
        "Transformer 4×256",
        **{
            "model.kind": "transformer",
            "model.hidden_size": lambda sizes: sizes.small,
            "model.blocks": lambda sizes: sizes.blocks,
            "model.context": lambda sizes: sizes.characters + 20,
        },
    ),
}


if __name__ == "__main__":
    main()
