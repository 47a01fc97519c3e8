"""One streaming step, B = 1, from a Python call to its return: our stepper beside torch and onnxruntime.

python benchmarks/streaming_cpu.py [--seconds 2]
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from measure import check, interleaved, machine, row, show, write
from peers import inputs, session

import unrolled

BARS = {  # at H = 256
    "fp32 against nn.LSTM": ("6×", "20×"),
    "fp32 against onnxruntime fp32": ("1.3×", "5×"),
    "fp16 against onnxruntime fp32": ("3×", "5×"),
    "int8 against onnxruntime int8": ("3×", "6×"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="per size; more is steadier")
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
        onnx_fp32 = min(times["onnxruntime fp32"], times["onnxruntime fp32, all threads"])
        pairs = {
            "fp32 against nn.LSTM": times["nn.LSTM"] / times["fp32"],
            "fp32 against nn.LSTMCell": times["nn.LSTMCell"] / times["fp32"],
            "fp32 against onnxruntime fp32": onnx_fp32 / times["fp32"],
            "fp16 against onnxruntime fp32": onnx_fp32 / times["fp16"],
            "int8 against onnxruntime int8": times["onnxruntime int8"] / times["int8"],
        }
        for what, ratio in pairs.items():
            must, aim = BARS.get(what, ("", "")) if hidden == 256 else ("", "")
            rows.append(row(f"H={hidden} {what}", ratio, must, aim))
        for weights, bound in (("fp16", "1e-3"), ("int8", "1e-2")):
            rows.append(row(f"H={hidden} {weights} error", f"{errors[weights]:.1e}", bound))
    show("Streaming step, LSTM, B=1", rows)
    write("streaming_cpu", facts, rows, details)


def measure(hidden: int, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    torch.manual_seed(0)
    layer = unrolled.LSTM(hidden, hidden)
    peer = torch.nn.LSTM(hidden, hidden)
    peer.load_state_dict(layer.state_dict())
    cell = torch.nn.LSTMCell(hidden, hidden)
    steppers = {weights: layer.stepper(weights) for weights in ("fp32", "fp16", "int8")}
    errors = {weights: error_over_steps(layer, stepper) for weights, stepper in steppers.items()}
    check("fp32 stepper", torch.tensor([1 + errors["fp32"]]), torch.ones(1), 1e-5)
    x = torch.randn(1, hidden)
    zeros = (torch.zeros(1, 1, hidden), torch.zeros(1, 1, hidden))
    feed = inputs(peer, x[None])
    fp32, all_threads = session(peer), session(peer, threads=torch.get_num_threads())
    int8 = session(peer, quantized=True)
    states = {weights: stepper.initial_state(1) for weights, stepper in steppers.items()}

    def step(weights: str) -> None:
        states[weights] = steppers[weights](x, states[weights])[1]

    with torch.inference_mode():
        # groups, since a peer's weights would push ours out of the cache that a stream keeps them in
        times: dict[str, float] = {}
        groups: list[dict[str, Any]] = [
            {"nn.LSTM": lambda: peer(x[None], zeros)},
            {"nn.LSTMCell": lambda: cell(x, (zeros[0][0], zeros[1][0]))},
            {"onnxruntime fp32": lambda: fp32.run(None, feed)},
            {"onnxruntime fp32, all threads": lambda: all_threads.run(None, feed)},
            {"onnxruntime int8": lambda: int8.run(None, feed)},
            *({weights: (lambda weights=weights: step(weights))} for weights in steppers),
        ]
        for _ in range(4):  # rounds: each peer runs alone for a while, then the next
            for group in groups:
                for name, best in interleaved(group, seconds / 40, least=100).items():
                    times[name] = min(best, times.get(name, best))
    return times, errors


def error_over_steps(layer: unrolled.LSTM, stepper: Any, steps: int = 1000) -> float:
    """Relative error of the outputs of 1,000 steps against reference in float64."""
    x = torch.randn(1, steps, layer.input_size)
    exact = unrolled.LSTM(layer.input_size, layer.hidden_size, batch_first=True, backend="reference").double()
    exact.load_state_dict(layer.state_dict())
    with torch.no_grad():
        expected = exact(x.double())[0]
    state, outputs = stepper.initial_state(1), []
    for t in range(steps):
        output, state = stepper(x[:, t], state)
        outputs.append(output)
    got = torch.stack(outputs, dim=1).double()
    return float((got - expected).norm() / expected.norm())


if __name__ == "__main__":
    main()
