"""torch.compile against eager calls of the same networks with our layers, on this CPU.

The default backend, `fullgraph=True` and free batch and length. Each network is checked against eager before it is
timed, at two lengths that share a graph; both take turns. A ratio is the CPU time of eager calls by that of the
compiled network: 0.98 or more is no slower. Networks of torch alone show what torch's compiler costs by itself; they
are not in the mean.

    python benchmarks/compiled.py [--seconds 3] [--only LSTM]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import check, geometric_mean, interleaved, machine, row, show, write
from torch import Tensor, nn
from torch._dynamo.utils import counters

import unrolled
from unrolled.nn.crf import CRF
from unrolled.nn.ctc import ctc_loss

Batch = tuple[Tensor, ...]
WANTED = "0.98×"
ALONE = "torch alone"


class Tagger(nn.Module):
    """Embedded words, a recurrent layer in both directions, and a linear layer."""

    def __init__(self, layer: Any, out: int) -> None:
        super().__init__()
        self.words = nn.Embedding(5000, layer.input_size)
        self.rnn = layer
        self.out = nn.Linear((2 if layer.bidirectional else 1) * layer.hidden_size, out)

    def forward(self, words: Tensor, lengths: Tensor | None = None) -> Tensor:
        output: Tensor = self.out(self.rnn(self.words(words), lengths=lengths)[0])
        return output


class WithoutLayers(nn.Module):
    """A tagger of torch's own modules: what torch's compiler costs without our layers."""

    def __init__(self, hidden: int, activation: nn.Module) -> None:
        super().__init__()
        self.words, self.hidden, self.activation = nn.Embedding(5000, 128), nn.Linear(128, hidden), activation
        self.out = nn.Linear(hidden, 20)

    def forward(self, words: Tensor) -> Tensor:
        output: Tensor = self.out(self.activation(self.hidden(self.words(words))))
        return output


class WithLoss(nn.Module):
    """A tagger with the loss behind it."""

    def __init__(self, tagger: Tagger, loss: Callable[..., Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.tagger, self.loss, self.parts = tagger, loss, nn.ModuleList(parts)

    def forward(self, words: Tensor, targets: Tensor, lengths: Tensor) -> Tensor:
        return self.loss(self.tagger(words, lengths), targets, lengths)


class Translator(nn.Module):
    """A decoder with attention over a memory."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = unrolled.nn.AttentionDecoder(128, 256, 256, cell="lstm", form="luong")

    def forward(self, x: Tensor, memory: Tensor, lengths: Tensor) -> Tensor:
        output: Tensor = self.decoder(x, memory, lengths=lengths).output
        return output


def words(batch: int, steps: int) -> Batch:
    return (torch.randint(0, 5000, (batch, steps)),)


def ragged(batch: int, steps: int) -> Batch:
    return *words(batch, steps), torch.randint(steps // 2, steps + 1, (batch,))


def tagged(batch: int, steps: int) -> Batch:
    given, lengths = ragged(batch, steps)
    return given, torch.randint(0, 20, (batch, steps)), lengths


def spelled(batch: int, steps: int) -> Batch:
    given, lengths = ragged(batch, steps)
    return given, torch.randint(1, 20, (batch, 9)), lengths


def translated(batch: int, steps: int) -> Batch:
    lengths = torch.randint(steps // 2, steps + 1, (batch,))
    return torch.randn(batch, steps, 128), torch.randn(batch, steps + 3, 256), lengths


def frames(batch: int, steps: int) -> Batch:
    return torch.randn(batch, steps, 256), torch.arange(steps) < torch.randint(steps // 2, steps + 1, (batch, 1))


def tagger(name: str, hidden: int, **options: Any) -> Tagger:
    return Tagger(getattr(unrolled, name)(128, hidden, batch_first=True, **options), 20)


def with_crf() -> nn.Module:
    crf = CRF(20)
    return WithLoss(tagger("LSTM", 128, bidirectional=True), lambda e, t, lengths: -crf(e, t, lengths).sum(), crf)


def with_ctc() -> nn.Module:
    return WithLoss(
        tagger("GRU", 128, bidirectional=True), lambda e, t, lengths: ctc_loss(e.log_softmax(-1), t, lengths)
    )


BOTH: dict[str, Any] = {"num_layers": 2, "bidirectional": True}
# what: network, batches, B, T
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[..., Batch], int, int]] = {
    "LSTM 256": (lambda: tagger("LSTM", 256), words, 32, 40),
    "GRU 256": (lambda: tagger("GRU", 256), words, 32, 40),
    "RNN 256": (lambda: tagger("RNN", 256), words, 32, 40),
    "LSTM 128, two layers, both directions, lengths": (lambda: tagger("LSTM", 128, **BOTH), ragged, 32, 40),
    "LSTM 128, layer norm, peepholes": (lambda: tagger("LSTM", 128, layer_norm=True, peephole=True), words, 32, 40),
    "LSTM 64, few": (lambda: tagger("LSTM", 64), words, 4, 12),
    "LSTM and CRF": (with_crf, tagged, 32, 40),
    "GRU and CTC": (with_ctc, spelled, 16, 60),
    "decoder, Luong's": (Translator, translated, 32, 20),
    f"{ALONE}, ReLU": (lambda: WithoutLayers(256, nn.ReLU()), words, 32, 40),
    f"{ALONE}, few": (lambda: WithoutLayers(64, nn.Identity()), words, 4, 12),
    "Transformer": (lambda: unrolled.nn.TransformerEncoder(256, 4, 2, dropout=0.0), frames, 16, 40),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="per network; more is steadier")
    parser.add_argument("--only", default="", help="networks whose name has this in it")
    given = parser.parse_args()
    facts = {**machine(), "clock": "CPU time", "load before": round(os.getloadavg()[0], 1)}
    print(facts)
    details: list[dict[str, Any]] = []
    rows = []
    for name, network in NETWORKS.items():
        if given.only in name:
            rows += compare(name, *network, given.seconds, details)
            print(rows[-2:], flush=True)
    ratios = [line["measured"] for line in rows if line["must"] == WANTED]
    rows.append(row("geometric mean", geometric_mean(ratios), WANTED, note=f"least {min(ratios):.2f}×"))
    show("Compiled networks against eager ones", rows)
    write("compiled" if not given.only else "compiled_part", facts, rows, details)


def compare(
    name: str,
    build: Callable[[], nn.Module],
    make: Callable[..., Batch],
    batch: int,
    steps: int,
    seconds: float,
    details: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    counters.clear()
    network = build()
    compiled = torch.compile(network, fullgraph=True, dynamic=True)
    arguments = make(batch, steps)
    rows = []
    for what, run in (("training", training), ("inference", inference)):
        for given in (make(batch + 1, steps + 5), arguments):
            for found, expected in zip(run(compiled, given), run(network, given), strict=True):
                check(f"{what} {name}", found.double(), expected.double(), 1e-3)
        calls = {"eager": lambda run=run: run(network, arguments), "compiled": lambda run=run: run(compiled, arguments)}
        times = interleaved(calls, seconds, clock=time.process_time)
        ratio = times["eager"] / times["compiled"]
        details.append({"what": f"{what} {name}", "times": times})
        wanted = "–" if name.startswith(ALONE) else WANTED
        rows.append(row(f"{what} {name}", ratio, wanted, note=f"{times['compiled'] * 1e3:.2f} ms"))
    graphs = counters["stats"]["unique_graphs"]
    assert graphs == 2, f"{name}: {graphs} graphs, expected one for training and one for inference"
    return rows


def training(network: Any, arguments: Batch) -> list[Tensor]:
    """The output, and the gradients of all parameters."""
    output = network(*arguments)
    parameters = [p for p in network.parameters() if p.requires_grad]
    loss = output.float().sin().mean()  # a plain mean behind a layer norm has no gradient, only noise
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [output.detach(), *(g for g in gradients if g is not None)]


def inference(network: Any, arguments: Batch) -> list[Tensor]:
    with torch.no_grad():
        return [network(*arguments)]


if __name__ == "__main__":
    main()
