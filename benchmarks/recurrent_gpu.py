"""The cuda engine against cuDNN (torch.nn) on an NVIDIA GPU: training steps, inference, one step at a time.

Every shape is checked against `reference` in float64 before it is timed. Both sides are captured in a CUDA graph, in
one dtype and one run, taking turns; the details also have times without a graph.

    python benchmarks/recurrent_gpu.py [--seconds 0.3] [--only LSTM,inference,…]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from itertools import product
from typing import Any

import flashrnn_peer
import torch
from measure import check, geometric_mean, interleaved, machine, row, show, write
from torch import Tensor, nn

import unrolled

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}  # tests/tolerances.py
SHAPES = list(product((128, 256, 512, 1024), (16, 64), (35, 128, 512)))  # H, B, T
PARTS = (
    "LSTM", "inference", "cells", "GRU", "others", "layers", "directions", "PTB", "large", "streaming", "model", "norm",
    "float32", "FlashRNN",
)  # fmt: skip

Run = Callable[[], object]
details: list[dict[str, Any]] = []
_read_by_graphs: list[Run] = []  # runs whose tensors must live as long as the graphs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each shape; more is steadier")
    parser.add_argument("--only", default="", help=f"some of: {', '.join(PARTS)}")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no NVIDIA GPU here.")
    only = given.only.split(",") if given.only else list(PARTS)
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]  # torch's
    facts = machine() | {"gpu": torch.cuda.get_device_name(), "cudnn": cudnn}
    print(facts)
    measure = {
        "LSTM": lstm_training, "inference": lstm_inference, "cells": cells, "GRU": gru, "others": others,
        "layers": two_layers, "directions": both_directions, "PTB": ptb, "large": large, "streaming": streaming,
        "model": language_model, "norm": layer_norm, "float32": float32, "FlashRNN": flash,
    }  # fmt: skip
    rows = [line for name in only for line in measure[name](given.seconds)]
    show("The cuda engine, ratios to torch.nn (cuDNN), both in a CUDA graph unless it says otherwise", rows)
    write("recurrent_gpu" if not given.only else "recurrent_gpu_part", facts, rows, details)


def lstm_training(seconds: float) -> list[dict[str, Any]]:
    bars = {"fp16": ("1.8×", "3.5×"), "bf16": ("2.8×", "5×")}
    return [_lstm(dtype, "training", seconds, *bar) for dtype, bar in bars.items()]


def lstm_inference(seconds: float) -> list[dict[str, Any]]:
    bars = {"fp16": ("1.7×", "3×"), "bf16": ("3.3×", "6×")}
    return [_lstm(dtype, "inference", seconds, *bar) for dtype, bar in bars.items()]


def _lstm(dtype: str, what: str, seconds: float, must: str, aim: str) -> dict[str, Any]:
    ratios = [compare("LSTM", *shape, dtype, seconds, training=what == "training") for shape in SHAPES]
    least = f"least {min(ratios):.2f}×" + (" (must 1.15×)" if what == "training" and dtype == "fp16" else "")
    return row(f"LSTM {what}, {dtype}", geometric_mean(ratios), must, aim, least)


def cells(seconds: float) -> list[dict[str, Any]]:
    """Time of each of our cells divided by that of our LSTM: smaller is better."""
    sizes = [(hidden, 64, 128) for hidden in (256, 512, 1024)]
    options: dict[str, tuple[str, dict[str, Any]]] = {
        "GRU": ("GRU", {}),
        "GRU reset before": ("GRU", {"reset_after": False}),
        "RNN": ("RNN", {}),
        "LSTM with peepholes": ("LSTM", {"peephole": True}),
        "LSTM with layer norm": ("LSTM", {"layer_norm": True}),
    }
    rows = []
    for name, (kind, extra) in options.items():
        ratios = []
        for hidden, batch, steps in sizes:
            runs = {
                which: graphed(training_step(*made(kind_, hidden, batch, steps, torch.float16, **extra_)))
                for which, kind_, extra_ in (("cell", kind, extra), ("lstm", "LSTM", {}))
            }
            times = timed(runs, seconds)
            _read_by_graphs.clear()
            ratios.append(times["cell"] / times["lstm"])
            details.append({"what": f"{name} over LSTM", "hidden": hidden, "batch": batch, "steps": steps, **times})
        bars = ("report", "") if "norm" in name else ("≤ 1.2×", "1.0×")
        rows.append(row(f"{name}: our time over our LSTM's", geometric_mean(ratios), *bars))
    return rows


def layer_norm(seconds: float) -> list[dict[str, Any]]:
    """LSTM with layer norm, which torch.nn lacks, against our steps in torch, the alternative of `auto`."""
    ratios = []
    for hidden in (256, 512, 1024):
        ours, x, dy = made("LSTM", hidden, 64, 128, torch.float16, layer_norm=True)
        plain = unrolled.LSTM(hidden, hidden, device="cuda", dtype=torch.float16, backend="reference", layer_norm=True)
        plain.load_state_dict(ours.state_dict())
        runs = {"ours": graphed(training_step(ours, x, dy)), "plain": graphed(training_step(plain, x, dy))}
        times = timed(runs, seconds)
        _read_by_graphs.clear()
        ratios.append(times["plain"] / times["ours"])
        details.append({"what": "layer norm over plain torch", "hidden": hidden, "batch": 64, "steps": 128, **times})
    what = "LSTM with layer norm, training, fp16, B 64, against our steps in torch"
    return [row(what, geometric_mean(ratios), "report", "", f"least {min(ratios):.1f}×")]


def float32(seconds: float) -> list[dict[str, Any]]:
    """cuDNN in float32, with exact products and with TF32, beside bfloat16: microseconds a step, B 64, T 128."""
    rows = []
    for kind, hidden, training in product(("LSTM", "GRU"), (256, 512, 1024), (True, False)):
        torch.manual_seed(0)
        exact = getattr(nn, kind)(hidden, hidden, device="cuda", dtype=torch.float64)
        x = torch.randn(128, 64, hidden, device="cuda", dtype=torch.float64)
        runs, errors = {}, {}
        with torch.no_grad():
            expected = exact(x)[0]
        for name in ("float32", "TF32", "cuDNN bf16", "our bf16"):
            number = torch.bfloat16 if "bf16" in name else torch.float32
            layer = layers(kind, hidden, number)[name != "our bf16"]
            layer.load_state_dict(exact.state_dict())
            given = x.to(number).requires_grad_(training)
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = name == "TF32"
            with torch.no_grad():
                errors[name] = float((layer(given)[0].double() - expected).norm() / expected.norm())
            runs[name] = graphed((training_step if training else inference_step)(layer, given, torch.randn_like(given)))
        times = {name: 1e6 / 128 * spent for name, spent in timed(runs, seconds).items()}
        _read_by_graphs.clear()
        what = f"{kind} {'training' if training else 'inference'}, H {hidden}, B 64, T 128"
        details.append({"what": what, "us_per_step": times, "errors": errors})
        note = ", ".join(f"{name} {spent:.1f} µs" for name, spent in times.items())
        rows.append(row(f"{what}: TF32 over our bf16", times["TF32"] / times["our bf16"], "report", "", note))
    return rows


def gru(seconds: float) -> list[dict[str, Any]]:
    ratios = [compare("GRU", hidden, 64, 128, "fp16", seconds) for hidden in (256, 512, 1024)]
    return [row("GRU training, fp16, B 64", geometric_mean(ratios), "3×", "6×", f"least {min(ratios):.2f}×")]


def others(seconds: float) -> list[dict[str, Any]]:
    """Other cells than the LSTM, at the sizes where `auto` has to choose."""
    rows = []
    for kind, dtype, training in product(("RNN", "GRU"), DTYPES, (True, False)):
        sizes = product((128, 256, 512, 1024), (16, 64))
        ratios = [compare(kind, *size, 128, dtype, seconds, training=training) for size in sizes]
        what = f"{kind} {'training' if training else 'inference'}, {dtype}, T 128"
        rows.append(row(what, geometric_mean(ratios), "report", "", f"least {min(ratios):.2f}×"))
    return rows


def two_layers(seconds: float) -> list[dict[str, Any]]:
    ratios = [compare("LSTM", hidden, 64, 128, "fp16", seconds, num_layers=2) for hidden in (256, 512, 1024)]
    return [
        row("LSTM training, two layers, fp16, B 64", geometric_mean(ratios), "3×", "8×", f"least {min(ratios):.2f}×")
    ]


def both_directions(seconds: float) -> list[dict[str, Any]]:
    ratios = [compare("LSTM", hidden, 64, 128, "fp16", seconds, bidirectional=True) for hidden in (256, 512, 1024)]
    least = f"least {min(ratios):.2f}×"
    return [row("LSTM training, both directions, fp16, B 64", geometric_mean(ratios), "report", "", least)]


def ptb(seconds: float) -> list[dict[str, Any]]:
    medium, large_ = (compare("LSTM", hidden, 20, 35, "fp16", seconds, num_layers=2) for hidden in (650, 1500))
    return [row("PTB shapes, H 650, fp16", medium, "2.5×", "6×"), row("PTB shapes, H 1500, fp16", large_, "report")]


def large(seconds: float) -> list[dict[str, Any]]:
    """The engine that `auto` takes, which should be torch's if that is faster; and our engine."""
    chosen = compare("LSTM", 1024, 256, 128, "fp16", seconds, backend="auto")
    forced = compare("LSTM", 1024, 256, 128, "fp16", seconds)
    return [row("B 256, H 1024, fp16, auto", chosen, "1.0×", "1.3×", f"backend='cuda': {forced:.2f}×")]


def streaming(seconds: float) -> list[dict[str, Any]]:
    """One step from Python, B 1: our stream against torch.nn, until the output is available."""
    ours, theirs = layers("LSTM", 512, torch.float16)
    frame = torch.randn(1, 1, 512, device="cuda", dtype=torch.float16)
    state = tuple(torch.zeros(1, 1, 512, device="cuda", dtype=torch.float16) for _ in range(2))
    stream, x = ours.stepper().stream(), frame[0]

    def feed() -> None:
        stream.feed(x)

    def step() -> None:
        theirs(frame, state)

    with torch.no_grad():
        times = interleaved({"ours": synchronized(feed), "theirs": synchronized(step)}, seconds)
        ahead = timed({"ours": repeated(feed), "theirs": repeated(step)}, seconds)
    details.append({"what": "streaming", "hidden": 512, **times, "ahead": ahead})
    return [
        row("streaming step, H 512, fp16, from Python, output waited for", times["theirs"] / times["ours"], "4×", "8×"),
        row("the same, outputs used on the GPU", ahead["theirs"] / ahead["ours"], "report"),
    ]


def flash(seconds: float) -> list[dict[str, Any]]:
    """Training steps in bfloat16 with one head, the full matrix: FlashRNN's time over ours."""
    reason = flashrnn_peer.missing()
    if reason is not None:
        return [row("FlashRNN", reason)]
    rows = []
    for kind, hidden in (("LSTM", 256), ("LSTM", 512), ("LSTM", 1024), ("GRU", 512)):
        what = f"{kind} training, bf16, H {hidden}, B 64, T 128, against FlashRNN"
        try:
            step, backend = flashrnn_peer.peer(kind, hidden, 64, 128, "bfloat16")
        except RuntimeError as error:
            rows.append(row(what, f"not measured: {error}"))
            continue
        ours = training_step(*made(kind, hidden, 64, 128, torch.bfloat16))
        times = timed({"ours": ours, "theirs": step}, seconds)
        captured = timed({"ours": graphed(ours)}, seconds)["ours"]  # its kernels use a stream of their own: no capture
        _read_by_graphs.clear()
        details.append({"what": what, "backend": backend, "eager": times, "ours_in_a_graph": captured})
        note = f"its {backend} backend, both from Python; ours in a graph {times['theirs'] / captured:.1f}×"
        rows.append(row(what, times["theirs"] / times["ours"], "report", "", note))
    return rows


def language_model(seconds: float) -> list[dict[str, Any]]:
    """Training steps of the medium model of Zaremba et al. (2014): 10,000 words, two layers of 650, T 35, B 20."""

    class Model(nn.Module):
        def __init__(self, recurrent: nn.Module) -> None:
            super().__init__()
            self.embed, self.recurrent, self.head = nn.Embedding(10_000, 650), recurrent, nn.Linear(650, 10_000)

        def forward(self, tokens: Tensor) -> Tensor:
            logits: Tensor = self.head(self.recurrent(self.embed(tokens))[0])
            return logits

    def step_of(model: nn.Module) -> Run:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step() -> None:
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(tokens[:-1]).flatten(0, 1), tokens[1:].flatten())
            loss.backward()  # type: ignore[no-untyped-call]  # torch's
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()

        return step

    torch.manual_seed(0)
    tokens = torch.randint(10_000, (36, 20), device="cuda")
    models = {
        "ours": Model(unrolled.LSTM(650, 650, 2, backend="cuda")).cuda(),
        "theirs": Model(nn.LSTM(650, 650, 2)).cuda(),
    }
    models["ours"].load_state_dict(models["theirs"].state_dict())
    with torch.no_grad():
        exact = models["theirs"](tokens).double()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            check("PTB medium", models["ours"](tokens), exact, 2 * TOLERANCES[torch.bfloat16])
    steps = {name: step_of(model) for name, model in models.items()}
    eager = timed(steps, seconds)
    graph = timed({name: graphed(step) for name, step in steps.items()}, seconds)
    _read_by_graphs.clear()
    details.append({"what": "PTB medium, training step, bf16 autocast", "graph": graph, "eager": eager})
    return [
        row("PTB-medium model, bf16 autocast", graph["theirs"] / graph["ours"], "1.7×", "3×"),
        row("the same, eager", eager["theirs"] / eager["ours"], "1.7×", "3×"),
    ]


def compare(
    kind: str, hidden: int, batch: int, steps: int, dtype: str, seconds: float, *, training: bool = True,
    num_layers: int = 1, backend: str = "cuda", bidirectional: bool = False,
) -> float:  # fmt: skip
    """torch.nn's time divided by ours, both in a graph."""
    number = DTYPES[dtype]
    directions = 1 + bidirectional
    ours, theirs = layers(kind, hidden, number, num_layers, directions, backend=backend)
    x = torch.randn(steps, batch, hidden, device="cuda", dtype=number, requires_grad=training)
    dy = torch.randn(steps, batch, directions * hidden, device="cuda", dtype=number)
    what = {"cell": kind, "hidden": hidden, "batch": batch, "steps": steps, "dtype": dtype, "layers": num_layers}
    what |= {"directions": directions}
    check_layer(str(what), ours, x, dy)
    make = training_step if training else inference_step
    runs = {"ours": make(ours, x, dy), "theirs": make(theirs, x, dy)}
    eager = timed(runs, seconds / 2)
    captured = timed({name: graphed(run) for name, run in runs.items()}, seconds)
    _read_by_graphs.clear()
    ratio = captured["theirs"] / captured["ours"]
    per_step = captured["ours"] / steps / num_layers * 1e6
    details.append(
        what | {"what": "training" if training else "inference", "backend": backend, "ratio": ratio,
                "our_us_per_step": per_step, "graph": captured, "eager": eager}
    )  # fmt: skip
    print(f"{what} {'training' if training else 'inference'}: {ratio:.2f}×, {per_step:.2f} µs a step", flush=True)
    return ratio


def layers(
    kind: str, hidden: int, dtype: torch.dtype, num_layers: int = 1, directions: int = 1, **options: Any
) -> tuple[Any, nn.RNNBase]:
    """Ours and torch.nn's with the same weights."""
    torch.manual_seed(0)
    both = directions == 2
    theirs = getattr(nn, kind)(hidden, hidden, num_layers, bidirectional=both, device="cuda", dtype=dtype)
    options = {"backend": "cuda", "bidirectional": both} | options
    ours = getattr(unrolled, kind)(hidden, hidden, num_layers, device="cuda", dtype=dtype, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def made(
    kind: str, hidden: int, batch: int, steps: int, dtype: torch.dtype, **options: Any
) -> tuple[Any, Tensor, Tensor]:
    """One of our layers that torch.nn may lack, checked, with an input and a gradient."""
    torch.manual_seed(0)
    layer = getattr(unrolled, kind)(hidden, hidden, device="cuda", dtype=dtype, backend="cuda", **options)
    x = torch.randn(steps, batch, hidden, device="cuda", dtype=dtype, requires_grad=True)
    dy = torch.randn_like(x).detach()
    check_layer(f"{kind} {options} H {hidden}", layer, x, dy)
    return layer, x, dy


def check_layer(name: str, layer: Any, x: Tensor, dy: Tensor) -> None:
    """Check the whole batch for some steps against `reference` in float64: outputs and gradients."""
    few = x[:8].detach().clone().requires_grad_()
    options = {**layer._options, "bidirectional": layer.bidirectional, "backend": "reference"}
    exact = type(layer)(layer.input_size, layer.hidden_size, layer.num_layers, **options).cuda().double()
    exact.load_state_dict(layer.state_dict())
    x64 = few.detach().double().requires_grad_()
    tolerance = TOLERANCES[x.dtype] * layer.num_layers
    output, expected = layer(few)[0], exact(x64)[0]
    check(name, output, expected, tolerance)
    found = torch.autograd.grad(output, [few, *layer.parameters()], dy[:8])
    wanted = torch.autograd.grad(expected, [x64, *exact.parameters()], dy[:8].double())
    for i, (f, w) in enumerate(zip(found, wanted, strict=True)):
        check(f"{name}: gradient {i}", f, w, 2 * tolerance)


def training_step(layer: Any, x: Tensor, dy: Tensor) -> Run:
    leaves = [x, *layer.parameters()]
    return lambda: torch.autograd.grad(layer(x)[0], leaves, dy)


def inference_step(layer: Any, x: Tensor, dy: Tensor) -> Run:
    def step() -> object:
        with torch.no_grad():
            return layer(x)[0]

    return step


def graphed(run: Run) -> Run:
    """The run captured in a CUDA graph."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()

    _read_by_graphs.append(run)
    return graph.replay


def repeated(run: Run, times: int = 100) -> Run:
    def runs() -> None:
        for _ in range(times):
            run()

    return runs


def synchronized(run: Run) -> Run:
    """The run and a wait for its end."""

    def wait() -> None:
        run()
        torch.cuda.synchronize()

    return wait


def timed(runs: dict[str, Run], seconds: float, least: int = 9) -> dict[str, float]:
    """Median seconds of each, taking turns, from the GPU's own clock."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
        run()
    torch.cuda.synchronize()
    spent = 0.0
    while spent < seconds or len(next(iter(times.values()))) < least:
        for name, run in runs.items():
            start, end = _event(), _event()
            start.record()
            run()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) / 1e3)
            spent += times[name][-1]
    return {name: statistics.median(found) for name, found in times.items()}


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's


if __name__ == "__main__":
    main()
