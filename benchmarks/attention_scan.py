"""Training steps of decoders with attention: the native engine against a loop over steps in plain torch, on this CPU.

Each size is checked against `reference` in float64 before it is timed; both take turns. The first row is the decoder of
joeynmt's recurrent models: LSTM, additive score, input feeding.

    python benchmarks/attention_scan.py [--seconds 3] [--only luong]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from measure import check, geometric_mean, interleaved, machine, row, show, write
from torch import Tensor

from unrolled.kernels.attention.scan import Attended
from unrolled.nn import AttentionDecoder

# what: options, B, T, S, input, hidden, memory
SIZES: dict[str, tuple[dict[str, Any], int, int, int, int, int, int]] = {
    "luong LSTM 512, additive": ({"cell": "lstm", "form": "luong"}, 64, 14, 14, 256, 512, 512),
    "bahdanau GRU 512, additive": ({"cell": "gru"}, 64, 14, 14, 256, 512, 512),
    "luong LSTM 512, general": ({"cell": "lstm", "form": "luong", "score": "general"}, 64, 14, 14, 256, 512, 512),
    "luong LSTM 256, dot": ({"cell": "lstm", "form": "luong", "score": "dot"}, 64, 30, 30, 128, 256, 256),
    "bahdanau GRU 256, additive": ({"cell": "gru"}, 32, 30, 30, 128, 256, 512),
    "bahdanau GRU 128, additive, letters": ({"cell": "gru"}, 64, 10, 10, 64, 128, 256),
    "luong LSTM 128, additive, few": ({"cell": "lstm", "form": "luong"}, 8, 12, 12, 64, 128, 128),
    "bahdanau GRU 64, additive, alone": ({"cell": "gru"}, 1, 12, 12, 64, 64, 64),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="per size; more is steadier")
    parser.add_argument("--only", default="", help="sizes whose name has this in it")
    given = parser.parse_args()
    facts = machine()
    print(facts)
    details: list[dict[str, Any]] = []
    rows = []
    for name, size in SIZES.items():
        if given.only in name:
            rows += compare(name, *size, given.seconds, details)
    ratios = [line["measured"] for line in rows if line["what"].startswith("training")]
    rows.append(row("training, geometric mean", geometric_mean(ratios), "1.0×", note=f"least {min(ratios):.2f}×"))
    show("Attending decoders, native against the loop over steps", rows)
    write("attention_scan" if not given.only else "attention_scan_part", facts, rows, details)


def compare(
    name: str,
    options: dict[str, Any],
    batch: int,
    steps: int,
    positions: int,
    input_size: int,
    hidden: int,
    memory_size: int,
    seconds: float,
    details: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    decoder = AttentionDecoder(input_size, hidden, memory_size, **options)
    x = torch.randn(batch, steps, input_size, requires_grad=True)
    memory = torch.randn(batch, positions, memory_size, requires_grad=True)
    mask = torch.arange(positions) < torch.randint(positions // 2, positions + 1, (batch, 1))
    check_decoder(name, decoder, x, memory, mask)
    rows = []
    for what, make in (("training", training_step), ("inference", inference)):
        runs = {engine: make(decoder, engine, x, memory, mask) for engine in ("native", "reference")}
        times = interleaved(runs, seconds)
        ratio = times["reference"] / times["native"]
        rate = batch * steps / times["native"]
        details.append({"what": f"{what} {name}", "times": times, "tokens_per_second": rate})
        rows.append(row(f"{what} {name}", ratio, note=f"{rate:,.0f} tokens/s, {times['native'] * 1e3:.1f} ms"))
    return rows


def run(decoder: AttentionDecoder, engine: str, x: Tensor, memory: Tensor, mask: Tensor) -> Attended:
    decoder.backend = engine
    seen: Attended = decoder(x, memory, mask)
    return seen


def training_step(
    decoder: AttentionDecoder, engine: str, x: Tensor, memory: Tensor, mask: Tensor
) -> Callable[[], object]:
    leaves = [x, memory, *decoder.parameters()]
    weight = torch.randn(*x.shape[:2], decoder.output_size)

    def step() -> object:
        return torch.autograd.grad(run(decoder, engine, x, memory, mask).output, leaves, weight)

    return step


def inference(decoder: AttentionDecoder, engine: str, x: Tensor, memory: Tensor, mask: Tensor) -> Callable[[], object]:
    def step() -> object:
        with torch.no_grad():
            return run(decoder, engine, x, memory, mask)

    return step


def check_decoder(name: str, decoder: AttentionDecoder, x: Tensor, memory: Tensor, mask: Tensor) -> None:
    """Check output and gradients of a part of the batch against reference in float64."""

    def parts(dtype: torch.dtype, engine: str) -> dict[str, Tensor]:
        made = decoder.to(dtype)
        given = [v[:4].detach().to(dtype).requires_grad_() for v in (x, memory)]
        output = run(made, engine, given[0], given[1], mask[:4]).output
        leaves = {"x": given[0], "memory": given[1], **dict(made.named_parameters())}
        weight = torch.linspace(-1, 1, output.numel(), dtype=dtype).view(output.shape)
        gradients = torch.autograd.grad(output, list(leaves.values()), weight)
        return {"output": output, **dict(zip(leaves, gradients, strict=True))}

    expected = parts(torch.float64, "reference")
    for key, value in parts(torch.float32, "native").items():
        check(f"{name}: {key}", value, expected[key], 1e-4 if key != "output" else 1e-5)


if __name__ == "__main__":
    main()
