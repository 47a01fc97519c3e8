"""Whole training updates on an NVIDIA GPU: the loop of `unrolled train` against plain torch, eager and in a CUDA graph.

Our side is the installed command's own loop: batches from a file, update, log and report. Plain torch has its batch on
the GPU already. Sizes and dtype (bf16 autocast) are equal. Before it is timed, our update in a graph is compared with
the one without.

    PYTHONPATH=. python benchmarks/whole_update_gpu.py [--updates 300] [--only PTB,attention,…]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import plain_networks as plain
import torch
from measure import machine, row, show, write
from torch import nn

from unrolled.jobs.target import configure
from unrolled.jobs.train import TrainingJob
from unrolled.training import Run
from unrolled.training.run import Origin

details: list[dict[str, Any]] = []
BUSY = "GPU busy"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=300, help="timed, of each kind")
    parser.add_argument("--only", default="", help=f"some of: {', '.join(ROWS)}")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no NVIDIA GPU here.")
    facts = machine() | {"gpu": torch.cuda.get_device_name()}
    print(facts)
    rows = []
    for name in given.only.split(",") if given.only else list(ROWS):
        with tempfile.TemporaryDirectory() as folder:
            rows += compare(name, Path(folder), given.updates)
    show("Whole updates: plain torch's time over ours", rows)
    write("whole_update_gpu" if not given.only else "whole_update_gpu_part", facts, rows, details)


def compare(name: str, folder: Path, updates: int) -> list[dict[str, Any]]:
    """The ratios of one kind of model."""
    made = ROWS[name]
    task, changes, peer, bars = made(folder)
    keys = {"train.device": "cuda", **changes}
    for file in list(folder.iterdir()):  # none: data that the task has itself
        keys |= {"data.train": str(file), "data.valid": str(_head(file))}
    check_graph(task, keys)
    job = TrainingJob(configure(task, [], {**keys, "train.max_steps": 10**6, "train.eval_every": 10**6}))
    found: dict[str, Any] = {"model": name, **loop_ms(job, folder / "run", updates)}
    ours, bare = found["loop_ms"], found["bare_ms"]
    lines = []
    if peer is not None:
        step = peer()
        found["torch_eager_ms"] = milliseconds(step, updates)
        lines.append(row(f"{name}, against plain torch", found["torch_eager_ms"] / ours, *bars[0]))
        if bars[1] is not None:
            found["torch_graph_ms"] = milliseconds(plain.in_graph(step), updates)
            lines.append(row(f"{name}, against plain torch in a graph", found["torch_graph_ms"] / ours, *bars[1]))
    if bare is not None:
        lines.append(row(f"{name}, {BUSY}", f"{100 * bare / ours:.0f} %", "90 %"))
    print(found, flush=True)
    details.append(found)
    return lines


def check_graph(task: str, keys: Mapping[str, Any]) -> None:
    """Twelve updates with and without graphs must have the same losses.

    To 1e-4: torch's gradient of an embedding is not deterministic for over 3,072 tokens. tests/gpu compares bits.
    """
    losses = []
    for graph in ("off", "auto"):
        job = TrainingJob(configure(task, [], {**keys, "train.graph": graph, "train.max_steps": 1000}))
        trainer = job.trainer()
        torch.manual_seed(0)
        losses.append(torch.tensor([trainer.update().loss for _ in range(12)]))
    if not torch.allclose(losses[0], losses[1], rtol=1e-4, atol=0):
        raise SystemExit(f"{task}: losses differ between updates in graphs and without: {losses}.")


def loop_ms(job: TrainingJob, folder: Path, updates: int) -> dict[str, Any]:
    """Milliseconds of an update in the command's loop, and of its graph alone; how many graphs, and new ones in it."""
    trainer = job.trainer()
    folder.mkdir()
    steps = Run(folder, trainer, job.model.save, Origin()).steps()
    warm = max(30, min(2 * len(trainer.batches), 400))
    for _ in range(warm):
        next(steps)
    graphs: Any = trainer.updater
    before = graphs.graphs.count
    torch.cuda.synchronize()
    start, busy = time.perf_counter(), time.thread_time()
    for _ in range(updates):
        next(steps)
    busy = (time.thread_time() - busy) / updates * 1e3
    torch.cuda.synchronize()
    ours = (time.perf_counter() - start) / updates * 1e3
    recorded = list(graphs.graphs._recorded.values())
    bare = None
    if recorded and graphs.graphs.reason is None:  # the mean over the graphs, each as often as it was used
        times = [milliseconds(one.graph.replay, max(3, updates // len(recorded))) * one.uses for one in recorded]
        bare = sum(times) / sum(one.uses for one in recorded)
    return {
        "loop_ms": ours, "bare_ms": bare, "eager": trainer.eager_reason, "graphs": len(recorded),
        "recorded_meanwhile": len(recorded) - before, "main_thread_ms": busy,
    }  # fmt: skip


def milliseconds(step: Callable[[], object], updates: int) -> float:
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(updates):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / updates * 1e3


Row = tuple[str, dict[str, Any], Callable[[], plain.Step] | None, tuple[Any, Any]]


def words(count: int) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [letters[i % 26] + letters[i // 26 % 26] + letters[i // 676 % 26] + letters[i % 7] for i in range(count)]


def ptb(folder: Path) -> Row:
    draw = random.Random(0)
    (folder / "text.txt").write_text(" ".join([*words(9_997), *draw.choices(words(9_997), k=400_000)]))
    changes = {
        "data.level": "word", "model.hidden_size": 650, "model.num_layers": 2, "model.dropout": 0.5,
        "train.batch_size": 20, "train.k1": 35, "train.optimizer": "sgd", "train.lr": 1.0, "train.clip_norm": 5.0,
    }  # fmt: skip
    return "generate", changes, lambda: _language(10_000, 650, 650, 2, 20, 35, 0.5, "sgd"), (
        ("4.5×", "6×"), ("1.6×", "2×"))  # fmt: skip


def characters(folder: Path) -> Row:
    _letters(folder)
    changes = {
        "model.hidden_size": 512, "model.num_layers": 2, "model.embedding_size": 64, "train.batch_size": 64,
        "train.k1": 128,
    }  # fmt: skip
    return "generate", changes, lambda: _language(60, 64, 512, 2, 64, 128, 0.1, "adamw"), (("6×", "8×"), ("1.7×", ""))


def usual(folder: Path) -> Row:
    _letters(folder)
    return "generate", {}, lambda: _language(60, 64, 256, 1, 32, 100, 0.1, "adamw"), (("10×", "14×"), ("2.5×", ""))


def transformer(folder: Path) -> Row:
    _letters(folder)
    changes = {
        "model.kind": "transformer", "model.hidden_size": 256, "model.blocks": 4, "model.heads": 4,
        "train.batch_size": 32, "train.k1": 128, "model.positions": "learned",
    }  # fmt: skip

    def peer() -> plain.Step:
        network = plain.TransformerLM(60, 256, 4, 4, 128, 0.1).cuda()
        return plain.language_update(network, torch.randint(60, (32, 129), device="cuda"), "adamw")

    return "generate", changes, peer, (("3.5×", "5×"), ("1.0×", "1.2×"))


def _letters(folder: Path) -> None:
    draw = random.Random(0)
    symbols = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,;!?"
    (folder / "text.txt").write_text("".join(draw.choices(symbols, k=2_000_000)))


def _language(v: int, e: int, h: int, layers: int, b: int, t: int, dropout: float, optimizer: str) -> plain.Step:
    network = plain.LanguageModel(v, e, h, layers, dropout).cuda()
    state = tuple(torch.zeros(layers, b, h, device="cuda") for _ in "hc")
    return plain.language_update(network, torch.randint(v, (b, t + 1), device="cuda"), optimizer, state)


def _pairs(folder: Path, ragged: bool = False) -> None:
    """Sentences of 20 words in and 21 out; with `ragged` of 5 to 35."""
    draw, known = random.Random(0), words(7_990)
    lines = [f"{' '.join(known[i : i + 20])}\t{' '.join(known[i : i + 21])}" for i in range(0, 7_960, 20)]
    for _ in range(12_000):
        size = draw.randint(5, 35) if ragged else 20
        lines.append(f"{' '.join(draw.choices(known, k=size))}\t{' '.join(draw.choices(known, k=size + 1))}")
    (folder / "pairs.tsv").write_text("\n".join(lines))


TRANSLATE = {"data.level": "word", "train.batch_tokens": 4096, "train.valid_free": 1}


def attention(folder: Path) -> Row:
    _pairs(folder)
    changes = {
        **TRANSLATE, "model.encoder.hidden_size": 256, "model.decoder.hidden_size": 512, "model.tied": False,
    }  # fmt: skip

    def peer() -> plain.Step:
        return _translator(plain.AttentionTranslator(8000, 256, 256, 512).cuda())

    return "translate", changes, peer, (("7×", "12×"), ("1.5×", ""))


def ragged_attention(folder: Path) -> Row:
    task, changes, _, bars = attention(folder)
    _pairs(folder, ragged=True)
    return task, changes, None, bars


def transformer_translator(folder: Path) -> Row:
    _pairs(folder)
    changes = {
        **TRANSLATE, "model.kind": "transformer", "model.encoder.hidden_size": 256, "model.encoder.blocks": 4,
        "model.decoder.blocks": 4, "model.encoder.feedforward": 512, "model.decoder.feedforward": 512,
        "model.tied": False,
    }  # fmt: skip

    def peer() -> plain.Step:
        return _translator(plain.TransformerTranslator(8000, 256, 4, 4, 512, 22).cuda())

    return "translate", changes, peer, (("3.5×", "5×"), ("1.0×", "1.2×"))


def _translator(network: nn.Module) -> plain.Step:
    source = torch.randint(8000, (184, 20), device="cuda")
    return plain.translator_update(network, source, torch.randint(8000, (184, 23), device="cuda"))


def classifier(folder: Path) -> Row:
    draw, known = random.Random(0), words(5_000)
    lines = [draw.choices(known, k=draw.randint(5, 40)) for _ in range(6_000)]
    (folder / "texts.tsv").write_text("\n".join(f"{line[0][0]}\t{' '.join(line)}" for line in lines))
    changes = {
        "data.level": "word", "model.hidden_size": 256, "model.embedding_size": 256, "train.batch_size": 32,
        "model.letter_hidden": 0, "model.wide": "off",
    }  # fmt: skip

    def peer() -> plain.Step:
        network = plain.Reader(nn.Embedding(5000, 256), 256, 256, 1, 26, whole=True).cuda()
        return _reader(network, torch.randint(5000, (32, 40), device="cuda"), whole=True)

    return "classify", changes, peer, (("3×", "6×"), None)


def tagger(folder: Path) -> Row:
    draw, known = random.Random(0), words(5_000)
    lines = [draw.choices(known, k=draw.randint(5, 40)) for _ in range(6_000)]
    text = "\n\n".join("\n".join(f"{word}\t{word[0].upper()}" for word in line) for line in lines)
    (folder / "tags.tsv").write_text(text + "\n")
    changes = {
        "model.hidden_size": 256, "model.embedding_size": 256, "train.batch_size": 32, "model.letter_hidden": 0,
    }  # fmt: skip

    def peer() -> plain.Step:
        network = plain.Reader(nn.Embedding(5000, 256), 256, 256, 1, 26, whole=False).cuda()
        return _reader(network, torch.randint(5000, (32, 40), device="cuda"), whole=False)

    return "tag", changes, peer, (("3×", "6×"), None)


def _reader(network: nn.Module, x: torch.Tensor, whole: bool) -> plain.Step:
    lengths = torch.randint(5, x.shape[1] + 1, (len(x),)).clamp(max=x.shape[1])
    lengths[0] = x.shape[1]
    shape = (len(x),) if whole else x.shape[:2]
    targets = torch.randint(26, shape, device="cuda")

    def loss() -> torch.Tensor:
        return nn.functional.cross_entropy(network(x, lengths).flatten(0, -2), targets.flatten())

    return plain.update_of(network, loss, "adamw")


def forecaster(folder: Path) -> Row:
    draw = random.Random(0)
    values = [draw.gauss(0, 1) for _ in range(60_000)]
    (folder / "series.csv").write_text("y\n" + "\n".join(f"{one:.5f}" for one in values))

    def peer() -> plain.Step:
        network = plain.SeriesModel(2, 64).cuda()
        x, y = torch.randn(32, 100, 2, device="cuda"), torch.randn(32, 100, 1, device="cuda")
        state = tuple(torch.zeros(1, 32, 64, device="cuda") for _ in "hc")
        return plain.update_of(network, lambda: nn.functional.mse_loss(network(x, state), y), "adamw")

    return "forecast", {"data.target_columns": ["y"], "train.rollout_steps": 10}, peer, (("3×", "6×"), ("", ""))


def recognizer(folder: Path) -> Row:
    def peer() -> plain.Step:
        network = plain.LineReader(24, 128, 11).cuda()
        x, targets = torch.randn(16, 68, 24, device="cuda"), torch.randint(1, 11, (16, 4), device="cuda")
        steps, sizes = torch.full((16,), 17), torch.full((16,), 4)

        def loss() -> torch.Tensor:
            log_probs = network(x, steps).float().log_softmax(-1).transpose(0, 1)
            return nn.functional.ctc_loss(log_probs, targets, steps, sizes)

        return plain.update_of(network, loss, "adamw")

    return "recognize", {}, peer, (("3×", "6×"), None)


def captioner(folder: Path) -> Row:
    def peer() -> plain.Step:
        network = plain.PictureWriter(192, 256).cuda()
        pictures, target = torch.rand(64, 32, 32, 3, device="cuda"), torch.randint(192, (64, 8), device="cuda")
        return plain.translator_update(network, pictures, target)

    return "caption", {}, peer, (("3×", "6×"), ("", ""))


ROWS: dict[str, Callable[[Path], Row]] = {
    "PTB": ptb,
    "characters": characters,
    "default": usual,
    "attention": attention,
    "attention, ragged": ragged_attention,
    "Transformer translator": transformer_translator,
    "Transformer language model": transformer,
    "classifier": classifier,
    "tagger": tagger,
    "forecaster": forecaster,
    "recogniser": recognizer,
    "captioner": captioner,
}


def _head(file: Path) -> Path:
    """A small validation file."""
    head = file.with_name(f"valid{file.suffix}")
    text = file.read_text()
    if file.suffix == ".txt":
        head.write_text(text[:20_000])
    else:
        cut = "\n\n" if file.name == "tags.tsv" else "\n"
        head.write_text(cut.join(text.split(cut)[:200]) + "\n")
    return head


if __name__ == "__main__":
    main()
