"""Training a line recognizer: lines per second beside the same network on torch.nn.LSTM and torch's CTC loss.

    python benchmarks/recognize.py --data FOLDER [--lines 64] [--seconds 5]

FOLDER, by default $UNROLLED_DATA, holds fraktur_ocr. Both networks have the same convolutions and weights and read the
same batches of 16 lines of similar width. torch's LSTM reads packed sequences and its CTC loss time-major scores, as
its documentation recommends. "torch, padded" does not pack: it is another network, because the backward direction
begins in the padding. A step is forward, backward and AdamW. Before timing, losses and gradients must agree.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import check, interleaved, machine, row, show, write
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from unrolled import api
from unrolled.data import Batch
from unrolled.data.batching.feature_cache import FeatureCache
from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.transcripts import Transcribed
from unrolled.models.recognizer import Recognizer
from unrolled.tasks import Data, Recognize
from unrolled.tasks.recognize.batches import ExampleBatches
from unrolled.training.optimizers import make_optimizer

SIZES: dict[str, dict[str, Any]] = {
    "default: 2 × 128": {},
    "large: 3 × 256": {"model.channels": [32, 64, 128], "model.hidden_size": 256, "model.num_layers": 3},
}


class Peer(nn.Module):
    """The same network on torch.nn.LSTM."""

    def __init__(self, network: Recognizer) -> None:
        super().__init__()
        ours = network.layer
        self.input, self.dropout = network.input, network.dropout
        self.layer = nn.LSTM(
            ours.input_size,
            ours.hidden_size,
            ours.num_layers,
            batch_first=True,
            bidirectional=True,
            dropout=ours.dropout,
        )
        self.layer.load_state_dict(ours.state_dict())
        self.scores = network.scores

    def forward(self, batch: Batch, packed: bool = True) -> tuple[Tensor, Tensor]:
        assert batch.lengths is not None
        x, lengths = self.input(batch.inputs, batch.lengths)
        x = self.dropout(x)
        if packed:
            sequences = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            x, _ = pad_packed_sequence(self.layer(sequences)[0], batch_first=True)
        else:
            x, _ = self.layer(x)
        return self.scores(self.dropout(x)).log_softmax(-1), lengths

    def loss(self, batch: Batch, packed: bool = True) -> Tensor:
        log_probs, lengths = self(batch, packed)
        return torch.nn.functional.ctc_loss(
            log_probs.transpose(0, 1), batch.targets, lengths, batch.more["target_lengths"], reduction="sum"
        )


def fraktur(data: Path, number: int) -> list[Transcribed]:
    with (data / "fraktur_ocr" / "lines.tsv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row["split"] == "train"]
    archive = data / "fraktur_ocr" / "lines.zip"
    chosen = rows[:: max(1, len(rows) // number)][:number]
    return [Transcribed(Medium(archive, row["file"]), row["text"], row["file"]) for row in chosen]


def step(network: nn.Module, loss: Callable[[Batch], Tensor], settings: Any) -> Callable[[Batch], None]:
    """One update on a batch."""
    optimizer = make_optimizer(network, settings)

    def update(batch: Batch) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(batch).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    return update


def measure(name: str, examples: list[Transcribed], seconds: float) -> dict[str, Any]:
    config: Any = api.configure("recognize", [], {**SIZES[name], "train.augment": False, "train.device": "cpu"})
    task = Recognize()
    assets = task.make_assets(config, Data(examples, examples, "", ""))
    store = FeatureCache(examples, lambda one: assets.reader.base(one.input, one.place), 2**30)
    targets = [assets.labels.ids(one.text) for one in examples]
    bucketed = ExampleBatches(assets.reader, store, range(len(examples)), targets, config.train)
    batches = [bucketed[i] for i in range(len(bucketed))]
    torch.manual_seed(0)
    ours: Any = task.build(config, assets)
    other: Any = task.build(config, assets)
    theirs: Any = Peer(other)
    theirs.input.load_state_dict(ours.input.state_dict())
    theirs.layer.load_state_dict(ours.layer.state_dict())
    theirs.scores.load_state_dict(ours.scores.state_dict())
    _agree(task, ours, theirs, batches[0])
    ours.train()
    theirs.train()
    runs = {
        "unrolled": step(ours, lambda batch: task.loss(ours, batch, None).sum, config.train),
        "torch": step(theirs, theirs.loss, config.train),
        "torch, padded": step(theirs, lambda batch: theirs.loss(batch, packed=False), config.train),
    }
    times = dict.fromkeys(runs, 0.0)
    for batch in batches:
        best = interleaved({who: partial(run, batch) for who, run in runs.items()}, seconds, least=3)
        times = {who: times[who] + best[who] for who in runs}
    lines = {who: len(examples) / time for who, time in times.items()}
    return {"network": name, "lines_per_second": lines, "ratio": times["torch"] / times["unrolled"]}


def _agree(task: Any, ours: nn.Module, theirs: Any, batch: Batch) -> None:
    ours.eval()
    theirs.eval()
    mine, other = task.loss(ours, batch, None).sum, theirs.loss(batch)
    check("loss", mine.detach(), other.detach(), 1e-5)
    mine.backward()
    other.backward()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        check(f"gradient of {name}", a.grad, b.grad, 1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("UNROLLED_DATA"))
    parser.add_argument("--lines", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each batch of 16")
    options = parser.parse_args()
    if options.data is None:
        raise SystemExit("Where is the data? Give --data FOLDER, or set UNROLLED_DATA.")
    facts = machine()
    print(facts)
    examples = fraktur(Path(options.data), options.lines)
    details = [measure(name, examples, options.seconds) for name in SIZES]
    rows = []
    for one in details:
        speeds = ", ".join(f"{who} {speed:.1f} lines/s" for who, speed in one["lines_per_second"].items())
        rows.append(row(f"training, {one['network']}", one["ratio"], "1.3×", "1.6×", speeds))
    show("recognize: training lines of Fraktur, against torch.nn.LSTM and torch's CTC loss", rows)
    write("recognize", facts, rows, details)


if __name__ == "__main__":
    main()
