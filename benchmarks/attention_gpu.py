"""Decoders with attention on an NVIDIA GPU: the cuda engine against the same loop in plain torch.

Every shape is checked against `reference` in float64 before it is timed: outputs and gradients of all parameters. Both
sides run under autocast to bfloat16, forward and backward, from Python and captured in a CUDA graph, taking turns.

    python benchmarks/attention_gpu.py [--seconds 0.3]
"""

from __future__ import annotations

import argparse
import copy
from typing import Any

import torch
from measure import check, geometric_mean, machine, row, show, write
from recurrent_gpu import Run, _read_by_graphs, graphed, timed
from torch import Tensor, nn
from torch.nn import functional as F

from unrolled.nn.attention_decoder import AttentionDecoder

TOLERANCE = 1.6e-2  # bfloat16, tests/tolerances.py
BATCH, SOURCE, TARGET, EMBEDDING, ENCODER, HIDDEN, WORDS = 180, 20, 22, 256, 256, 512, 8000
details: list[dict[str, Any]] = []


class PlainDecoder(nn.Module):
    """The loop that one writes in torch: nn.LSTMCell and additive attention, one step after the other."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        cell, score = decoder.rnn.single_cell(1), decoder.attention.score()
        inputs, feed, hidden = cell.weight_ih.shape[1], decoder.weight_feed.shape[1], cell.weight_hh.shape[1]
        self.cell = nn.LSTMCell(inputs + feed, hidden)
        self.key, self.query = copy.deepcopy(decoder.attention.key), copy.deepcopy(decoder.attention.query)
        self.vector = nn.Parameter(score.vector.detach().clone())
        with torch.no_grad():
            self.cell.weight_ih.copy_(torch.cat([cell.weight_ih, decoder.weight_feed], dim=1))
            for name in ("weight_hh", "bias_ih", "bias_hh"):
                getattr(self.cell, name).copy_(getattr(cell, name))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """x (B, T, D), memory (B, S, M) → outputs (B, T, H)."""
        keys, outputs = self.key(memory), []
        h = c = x.new_zeros(len(x), self.cell.hidden_size)
        for step in x.unbind(1):
            scores = torch.tanh(self.query(h)[:, None] + keys) @ self.vector  # (B, S)
            weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
            context = torch.bmm(weights[:, None].to(memory.dtype), memory)[:, 0]
            h, c = self.cell(torch.cat([step, context.to(step.dtype)], dim=1), (h, c))
            outputs.append(h)
        return torch.stack(outputs, dim=1)


class Translator(nn.Module):
    """A BiLSTM encoder, a decoder with attention, and the words' loss."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, EMBEDDING), nn.Embedding(WORDS, EMBEDDING)
        self.encoder = nn.LSTM(EMBEDDING, ENCODER, bidirectional=True, batch_first=True)
        self.decoder, self.words = decoder, nn.Linear(HIDDEN, WORDS)

    def forward(self, source: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        """The loss of target words (B, T + 1)."""
        memory = self.encoder(self.source(source))[0]
        seen = self.decoder(self.target(target[:, :-1]), memory, mask)
        output = seen if isinstance(seen, Tensor) else seen.output
        return F.cross_entropy(self.words(output).flatten(0, 1), target[:, 1:].flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each shape; more is steadier")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no NVIDIA GPU here.")
    facts = machine() | {"gpu": torch.cuda.get_device_name()}
    print(facts)
    rows = [*decoder_alone(given.seconds), *forms(given.seconds), *translator(given.seconds)]
    show("Decoders with attention on the cuda engine, ratios to loops in plain torch, bfloat16 autocast", rows)
    write("attention_gpu", facts, rows, details)


def made(backend: str = "cuda", **options: Any) -> Any:
    """A decoder of the translator's size."""
    torch.manual_seed(0)
    return AttentionDecoder(EMBEDDING, HIDDEN, 2 * ENCODER, backend=backend, **options).cuda()


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """x (B, T, D), a memory (B, S, M) and its mask."""
    torch.manual_seed(1)
    x, memory = torch.randn(BATCH, TARGET, EMBEDDING), torch.randn(BATCH, SOURCE, 2 * ENCODER)
    mask = torch.arange(SOURCE) < torch.randint(5, SOURCE + 1, (BATCH, 1))
    return x.cuda().requires_grad_(), memory.cuda().requires_grad_(), mask.cuda()


def training_step(decoder: Any, x: Tensor, memory: Tensor, mask: Tensor) -> Run:
    """Forward and backward of a decoder."""
    leaves = [x, memory, *decoder.parameters()]
    torch.manual_seed(2)
    dy = torch.randn(BATCH, TARGET, HIDDEN, device="cuda")

    def step() -> tuple[Tensor, ...]:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            seen = decoder(x, memory, mask)
        output = seen if isinstance(seen, Tensor) else seen.output
        return output, *torch.autograd.grad(output, leaves, dy.to(output.dtype))

    return step


def checked(name: str, decoder: Any) -> None:
    """Compare outputs and gradients with `reference` in float64."""
    x, memory, mask = batch()
    exact = copy.deepcopy(decoder).double()
    exact.backend = "reference"
    found = training_step(decoder, x, memory, mask)()
    wide = [part.detach().double().requires_grad_() for part in (x, memory)]
    torch.manual_seed(2)
    dy = torch.randn(BATCH, TARGET, HIDDEN, device="cuda").double()
    output = exact(*wide, mask).output
    expected = (output, *torch.autograd.grad(output, [*wide, *exact.parameters()], dy))
    assert isinstance(found, tuple)
    for i, (f, e) in enumerate(zip(found, expected, strict=True)):
        check(f"{name}: {'output' if i == 0 else f'gradient {i - 1}'}", f, e, TOLERANCE * (2 if i else 1))


def compare(what: str, ours: Run, theirs: Run, seconds: float) -> dict[str, float]:
    """Ratios of times, from Python and in a graph, and our graph against their calls from Python."""
    eager = timed({"ours": ours, "theirs": theirs}, seconds)
    graph = timed({"ours": graphed(ours), "theirs": graphed(theirs)}, seconds)
    _read_by_graphs.clear()
    details.append({"what": what, "eager": eager, "graph": graph})
    print(f"{what}: eager {eager}, graph {graph}", flush=True)
    return {
        "graph": graph["theirs"] / graph["ours"],
        "eager": eager["theirs"] / eager["ours"],
        "both": eager["theirs"] / graph["ours"],
        "ours_ms": graph["ours"] * 1e3,
    }


def decoder_alone(seconds: float) -> list[dict[str, Any]]:
    """Additive attention and an LSTM, against nn.LSTMCell in a loop."""
    decoder = made(cell="lstm")
    checked("additive, LSTM", decoder)
    inputs = batch()
    plain = PlainDecoder(decoder).cuda()
    ratios = compare("decoder", training_step(decoder, *inputs), training_step(plain, *inputs), seconds)
    what = f"decoder LSTM {HIDDEN}, additive, B {BATCH}, S {SOURCE}, T {TARGET}, forward and backward"
    note = f"{ratios['ours_ms']:.2f} ms, {ratios['ours_ms'] / TARGET * 1e3:.0f} µs a step"
    return [
        row(f"{what}, both in a graph", ratios["graph"], "1.5×", "3×", note),
        row("the same, both from Python", ratios["eager"], "report"),
        row("the same, ours in a graph, the loop from Python", ratios["both"], "7×", "15×"),
    ]


def forms(seconds: float) -> list[dict[str, Any]]:
    """Other cells, scores and forms against our own loop in torch, which `auto` took before."""
    ratios, least = [], ("", float("inf"))
    for cell, form, score in (
        ("gru", "bahdanau", "additive"),
        ("lstm", "luong", "general"),
        ("gru", "luong", "scaled"),
    ):
        name = f"{form}, {score}, {cell}"
        decoder = made(cell=cell, form=form, score=score)
        checked(name, decoder)
        plain = copy.deepcopy(decoder)
        plain.backend = "reference"
        inputs = batch()
        ratio = compare(name, training_step(decoder, *inputs), training_step(plain, *inputs), seconds)["graph"]
        ratios.append(ratio)
        least = min(least, (name, ratio), key=lambda pair: pair[1])
    return [row("other forms, against `reference`, both in a graph", geometric_mean(ratios), "report", "", str(least))]


def translator(seconds: float) -> list[dict[str, Any]]:
    """A whole update with Adam; the encoder is the same on both sides."""
    torch.manual_seed(3)
    source = torch.randint(WORDS, (BATCH, SOURCE), device="cuda")
    target = torch.randint(WORDS, (BATCH, TARGET + 1), device="cuda")
    mask = batch()[2]

    def update_of(decoder: nn.Module) -> Run:
        torch.manual_seed(4)
        model = Translator(decoder).cuda()
        optimizer = torch.optim.Adam(model.parameters(), fused=True, capturable=True)

        def update() -> None:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(source, target, mask)
            loss.backward()
            optimizer.step()

        return update

    decoder = made(cell="lstm")
    plain = PlainDecoder(decoder).cuda()
    ratios = compare("translator", update_of(decoder), update_of(plain), seconds)
    what = f"translator's update, encoder BiLSTM {ENCODER}, V {WORDS}"
    return [
        row(f"{what}, both in a graph", ratios["graph"], "1.5×", "", f"{ratios['ours_ms']:.2f} ms"),
        row("the same, ours in a graph, the loop from Python", ratios["both"], "7×"),
        row("the same, both from Python", ratios["eager"], "report"),
    ]


if __name__ == "__main__":
    main()
