"""Training steps and batched inference of our recurrent layers beside torch.nn and onnxruntime, on this CPU.

Every result is checked against `reference` in float64 before it is timed; all times of a row are taken in turns.

    python benchmarks/recurrent_cpu.py [--seconds 2] [--only LSTM,GRU,variants,inference,fallback]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from measure import check, geometric_mean, interleaved, machine, row, show, write
from peers import inputs, session

import unrolled

SIZES = list(product((32, 64), (128, 256, 512), (35, 100)))  # B, H, T
BARS = {
    "LSTM": ("1.2×", "1.5×"),
    "GRU": ("1.7×", "2.5×"),
    "GRU reset before": ("1.7×", "2.5×"),
    "RNN": ("1.5×", "2.2×"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="per size; more is steadier")
    parser.add_argument(
        "--only", default="", help="some of: LSTM, GRU, 'GRU reset before', RNN, variants, inference, fallback"
    )
    given = parser.parse_args()
    only = given.only.split(",") if given.only else [*BARS, "variants", "inference", "fallback"]
    facts = machine()
    print(facts)
    rows: list[dict[str, Any]] = []
    details: list[dict[str, Any]] = []
    for name, (must, aim) in BARS.items():
        if name in only:
            ratios = [training(name, *size, given.seconds, details) for size in SIZES]
            note = f"least {min(ratios):.2f}×" + (" (must 0.95×)" if name == "LSTM" else "")
            rows.append(row(f"{name} training step", geometric_mean(ratios), must, aim, note))
    if "variants" in only:
        rows += variants(given.seconds, details)
    if "inference" in only:
        for name in ("LSTM", "GRU", "RNN"):
            ratios = [inference(name, *size, given.seconds, details) for size in SIZES]
            note = f"least {min(ratios):.2f}×, against the better of torch.nn and onnxruntime"
            rows.append(row(f"{name} batched inference", geometric_mean(ratios), "1.0×", "1.15×", note))
    if "fallback" in only:
        ratios = [training("LSTM", *size, given.seconds, details, backend="torch") for size in SIZES]
        note = f"least {min(ratios):.2f}×"
        rows.append(row("no compiler (backend torch)", geometric_mean(ratios), "0.95×", note=note))
    show("Recurrent layers, ratios to torch.nn unless it says otherwise", rows)
    write("recurrent_cpu" if not given.only else "recurrent_cpu_part", facts, rows, details)


def layers(name: str, hidden: int, **options: Any) -> tuple[torch.nn.RNNBase, torch.nn.RNNBase]:
    """Ours and torch.nn's with the same weights. A GRU with reset before has no peer, so it gets torch.nn.GRU."""
    torch.manual_seed(0)
    kind = name.split()[0]
    if name == "GRU reset before":
        options["reset_after"] = False
    ours = getattr(unrolled, kind)(hidden, hidden, **options)
    peer = getattr(torch.nn, kind)(hidden, hidden)
    peer.load_state_dict({key: value for key, value in ours.state_dict().items() if key in peer.state_dict()})
    return ours, peer


def training_step(
    layer: torch.nn.Module, x: torch.Tensor, dy: torch.Tensor, **given: Any
) -> Callable[[], torch.Tensor]:
    parameters = list(layer.parameters())

    def step() -> torch.Tensor:
        x.grad = None
        for parameter in parameters:
            parameter.grad = None
        output: torch.Tensor = layer(x, **given)[0]
        torch.autograd.backward(output, dy)
        return output

    return step


def check_layer(name: str, layer: Any, x: torch.Tensor, dy: torch.Tensor, **given: Any) -> None:
    """Check output and gradients against reference in float64, on a part of the batch because it is slow."""
    x, dy = x[:20, :4].detach().clone().requires_grad_(), dy[:20, :4]
    given = {k: v[:20, :4] if k == "resets" else [min(n, 20) for n in v[:4]] for k, v in given.items()}
    exact = type(layer)(layer.input_size, layer.hidden_size, **{**layer._options, "backend": "reference"}).double()
    exact.load_state_dict(layer.state_dict())
    x64 = x.detach().double().requires_grad_()
    expected = training_step(exact, x64, dy.double(), **given)()
    got = training_step(layer, x, dy, **given)()
    check(name, got, expected, 1e-5)
    check(f"{name}: gradient of x", x.grad, x64.grad, 3e-5)
    for (key, parameter), other in zip(layer.named_parameters(), exact.parameters(), strict=True):
        check(f"{name}: gradient of {key}", parameter.grad, other.grad, 3e-5)


def training(
    name: str,
    batch: int,
    hidden: int,
    steps: int,
    seconds: float,
    details: list[dict[str, Any]],
    backend: str = "native",
) -> float:
    ours, peer = layers(name, hidden, backend=backend)
    x, dy = torch.randn(steps, batch, hidden, requires_grad=True), torch.randn(steps, batch, hidden)
    check_layer(name, ours, x, dy)
    times = interleaved({"ours": training_step(ours, x, dy), "torch.nn": training_step(peer, x, dy)}, seconds)
    return note(details, f"{name} training, backend {backend}", batch, hidden, steps, times, times["torch.nn"])


def note(
    details: list[dict[str, Any]], what: str, batch: int, hidden: int, steps: int, times: dict[str, float], peer: float
) -> float:
    ratio = peer / times["ours"]
    milliseconds = {key: round(value * 1e3, 3) for key, value in times.items()}
    print(f"{what:<40} B={batch} H={hidden} T={steps:<4} {ratio:.2f}×  ms {milliseconds}", flush=True)
    size = {"batch": batch, "hidden": hidden, "steps": steps}
    details.append({"what": what, **size, "ratio": ratio, "milliseconds": milliseconds})
    return ratio


def variants(seconds: float, details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Options that torch.nn lacks, against the training step of our own plain LSTM."""
    slower: dict[str, list[float]] = {}
    for batch, hidden, steps in ((32, 128, 35), (32, 256, 100), (64, 512, 35)):
        x, dy = torch.randn(steps, batch, hidden, requires_grad=True), torch.randn(steps, batch, hidden)
        torch.manual_seed(1)
        lengths = torch.randint(steps // 2, steps + 1, (batch,)).tolist()
        resets = torch.rand(steps, batch) < 0.05
        cases: dict[str, tuple[torch.nn.Module, dict[str, Any]]] = {
            "plain": (layers("LSTM", hidden, backend="native")[0], {}),
            "peephole": (layers("LSTM", hidden, backend="native", peephole=True)[0], {}),
            "lengths": (layers("LSTM", hidden, backend="native")[0], {"lengths": lengths}),
            "resets": (layers("LSTM", hidden, backend="native")[0], {"resets": resets}),
            "layer norm": (layers("LSTM", hidden, backend="native", layer_norm=True)[0], {}),
        }
        for name, (layer, given) in cases.items():
            check_layer(f"LSTM, {name}", layer, x, dy, **given)
        times = interleaved(
            {n: training_step(layer, x, dy, **given) for n, (layer, given) in cases.items()}, 2 * seconds
        )
        print(
            f"LSTM variants B={batch} H={hidden} T={steps}: ms",
            {n: round(t * 1e3, 2) for n, t in times.items()},
            flush=True,
        )
        details.append({"what": "variants", "batch": batch, "hidden": hidden, "steps": steps, "seconds": times})
        for name in list(times)[1:]:
            slower.setdefault(name, []).append(times[name] / times["plain"])
    found = []
    for name, ratios in slower.items():
        must, aim = ("≤1.5×", "1.25×") if name == "layer norm" else ("≤1.15×", "1.05×")
        what, note = f"LSTM with {name}: time / plain LSTM's time", f"most {max(ratios):.2f}×"
        found.append(row(what, geometric_mean(ratios), must, aim, note))
    return found


def inference(name: str, batch: int, hidden: int, steps: int, seconds: float, details: list[dict[str, Any]]) -> float:
    ours, peer = layers(name, hidden, backend="native")
    x, dy = torch.randn(steps, batch, hidden), torch.randn(steps, batch, hidden)
    check_layer(name, ours, x, dy)
    onnx, feed = session(peer, threads=torch.get_num_threads()), inputs(peer, x)
    with torch.inference_mode():
        check(f"onnxruntime {name}", torch.from_numpy(onnx.run(None, feed)[0])[:, 0], ours(x)[0], 1e-4)
        times = interleaved(
            {"ours": lambda: ours(x), "torch.nn": lambda: peer(x), "onnxruntime": lambda: onnx.run(None, feed)},
            seconds,
            settle=True,
        )
    best = min(times["torch.nn"], times["onnxruntime"])
    return note(details, f"{name} inference", batch, hidden, steps, times, best)


if __name__ == "__main__":
    main()
