"""One streaming step, B = 1, from a Python call to its return: our stream beside torch and onnxruntime.

    python benchmarks/streaming_cpu.py [--seconds 4]

Ours is `stepper.stream().feed(x)`, which keeps the state; "call" is `stepper(x, state)`, which takes and returns it. A
peer counts with its fastest variant: onnxruntime with one thread and with all, with arrays and with everything bound
beforehand.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from measure import check, interleaved, machine, row, show, write
from peers import bound_step, inputs, session

import unrolled
from unrolled.nn.stepper import WEIGHTS, Stepper

PEERS = {"fp32": 1e-5, "int8": 5e-2}  # onnxruntime's weight types, and the allowed difference of one step from ours

BARS = {  # at H = 256
    "fp32 against nn.LSTM": ("6×", "20×"),
    "fp32 against onnxruntime fp32": ("1.3×", "5×"),
    "fp16 against onnxruntime fp32": ("3×", "5×"),
    "int16 against onnxruntime fp32": ("3×", "5×"),
    "int8 against onnxruntime int8": ("3×", "6×"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="per size; more is steadier")
    seconds = parser.parse_args().seconds
    facts = machine()
    print(facts)
    rows: list[dict[str, Any]] = []
    details = []
    for hidden in (128, 256, 512, 1024):
        times, errors = measure(hidden, seconds)
        micro = {name: round(t * 1e6, 1) for name, t in times.items()}
        print(f"H={hidden:<5}µs {micro}  error over 1,000 steps {errors}", flush=True)
        details.append({"hidden": hidden, "microseconds": micro, "errors": errors})
        for what in (*BARS, "fp32 against nn.LSTMCell"):
            weights, peer = what.split(" against ")
            must, aim = BARS.get(what, ("", "")) if hidden == 256 else ("", "")
            ratio, plain = (fastest(times, peer, bound) / times[weights] for bound in (True, False))
            note = f"{plain:.2f}× its session.run" if peer.startswith("onnxruntime") else ""
            rows.append(row(f"H={hidden} {what}", ratio, must, aim, note))
        for weights, bound in (("fp16", "1e-3"), ("int16", "1e-3"), ("int8", "1e-2")):
            rows.append(row(f"H={hidden} {weights} error", f"{errors[weights]:.1e}", bound))
    show("Streaming step, LSTM, B=1", rows)
    write("streaming_cpu", facts, rows, details)


def fastest(times: dict[str, float], peer: str, bound: bool) -> float:
    """The best of a peer's variants; those with bound inputs and outputs count only if `bound`."""
    return min(t for name, t in times.items() if name.split(",")[0] == peer and (bound or not name.endswith("bound")))


def measure(hidden: int, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    torch.manual_seed(0)
    layer = unrolled.LSTM(hidden, hidden)
    x = torch.randn(1, hidden)
    steppers = {weights: layer.stepper(weights) for weights in WEIGHTS}
    errors = errors_over_steps(layer, steppers)
    check("fp32 stepper", torch.tensor([1 + errors["fp32"]]), torch.ones(1), 1e-5)
    times: dict[str, float] = {}
    with torch.inference_mode():
        ways = {**peers(layer, x), **ours(steppers, x)}
        # each variant runs alone for a while: in turns, another's weights would evict its own from the cache
        for _ in range(4):
            for name, way in ways.items():
                best = interleaved({name: way}, seconds / 4 / len(ways), least=100)[name]
                times[name] = min(best, times.get(name, best))
    return times, errors


def peers(layer: unrolled.LSTM, x: torch.Tensor) -> dict[str, Callable[[], object]]:
    hidden = layer.hidden_size
    lstm = torch.nn.LSTM(hidden, hidden)
    lstm.load_state_dict(layer.state_dict())
    cell = torch.nn.LSTMCell(hidden, hidden)
    zeros = (torch.zeros(1, 1, hidden), torch.zeros(1, 1, hidden))
    ways: dict[str, Callable[[], object]] = {
        "nn.LSTM": lambda: lstm(x[None], zeros),
        "nn.LSTMCell": lambda: cell(x, (zeros[0][0], zeros[1][0])),
    }
    expected, arrays = layer(x[None])[0].flatten(), inputs(lstm, x[None])
    for kind, tolerance in PEERS.items():
        for threads in sorted({1, torch.get_num_threads()}):
            peer = session(lstm, quantized=kind == "int8", threads=threads)
            bound = bound_step(peer, x[None], hidden)
            check(f"onnxruntime {kind}", torch.from_numpy(bound().copy()).flatten(), expected, tolerance)
            ways[f"onnxruntime {kind}, {threads} threads"] = lambda peer=peer: peer.run(None, arrays)  # type: ignore[misc]
            ways[f"onnxruntime {kind}, {threads} threads, bound"] = bound
    return ways


def ours(steppers: dict[str, Stepper], x: torch.Tensor) -> dict[str, Callable[[], object]]:
    ways: dict[str, Callable[[], object]] = {}
    for weights, stepper in steppers.items():
        feed, state = stepper.stream().feed, [stepper.initial_state(1)]

        def call(stepper: Stepper = stepper, state: list[Any] = state) -> None:
            _, state[0] = stepper(x, state[0])

        ways[weights] = lambda feed=feed: feed(x)  # type: ignore[misc]
        ways[f"{weights}, call"] = call
    return ways


def errors_over_steps(layer: unrolled.LSTM, steppers: dict[str, Stepper], steps: int = 1000) -> dict[str, float]:
    """Relative errors of the outputs of 1,000 steps against reference in float64."""
    x = torch.randn(1, steps, layer.input_size)
    exact = unrolled.LSTM(layer.input_size, layer.hidden_size, batch_first=True, backend="reference").double()
    exact.load_state_dict(layer.state_dict())
    with torch.no_grad():
        expected = exact(x.double())[0]
    errors = {}
    for weights, stepper in steppers.items():
        stream = stepper.stream()
        got = torch.stack([stream.feed(x[:, t]) for t in range(steps)], dim=1).double()
        errors[weights] = float((got - expected).norm() / expected.norm())
    return errors


if __name__ == "__main__":
    main()
