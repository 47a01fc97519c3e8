"""The CTC loss against torch's, forward and backward, one thread.

    python benchmarks/ctc.py [--seconds 3]

B = 32, T = 500, V = 32, targets of 50 and 100 labels; flat posteriors, and peaky ones that spell the target. Losses and
gradients must agree with torch's in float64 before anything is timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from measure import check, geometric_mean, interleaved, machine, row, show, write

from unrolled.nn import ctc_loss

BATCH, FRAMES, LABELS = 32, 500, 32


def scores_of(kind: str, targets: torch.Tensor) -> torch.Tensor:
    """Scores (B, T, V): noise; peaky ones also have a spike for each label of the target between blanks."""
    scores = torch.randn(BATCH, FRAMES, LABELS)
    if kind == "peaky":
        scores[:, :, 0] += 6.0
        length = targets.shape[1]
        for sample, target in zip(scores, targets, strict=True):
            places = torch.randperm(FRAMES // 2)[:length].sort().values * 2
            sample[places, target] += 12.0
    return scores


def ours(log_probs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return ctc_loss(log_probs, targets, reduction="sum")


def theirs(log_probs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    frames, lengths = torch.full((BATCH,), FRAMES), torch.full((BATCH,), targets.shape[1])
    return torch.nn.functional.ctc_loss(log_probs.transpose(0, 1), targets, frames, lengths, reduction="sum")


Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def gradient(loss: Loss, scores: torch.Tensor, targets: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    scores = scores.to(dtype).requires_grad_()
    value = loss(scores.log_softmax(-1), targets)
    return [value.detach(), torch.autograd.grad(value, scores)[0]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    details: list[dict[str, Any]] = []
    rows = []
    for kind in ("flat", "peaky"):
        for length in (50, 100):
            targets = torch.randint(1, LABELS, (BATCH, length))
            scores = scores_of(kind, targets)
            expected = gradient(theirs, scores, targets, torch.float64)
            found = gradient(ours, scores, targets, torch.float32)
            for name, got, wanted in zip(("loss", "gradient"), found, expected, strict=True):
                check(name, got, wanted, 1e-5)
            log_probs = scores.log_softmax(-1).requires_grad_()
            ways: dict[str, Loss] = {"ours": ours, "torch": theirs}
            times = interleaved(
                {
                    name: lambda way=way, x=log_probs, y=targets: torch.autograd.grad(way(x, y), x)  # type: ignore[misc]
                    for name, way in ways.items()
                },
                options.seconds,
            )
            ratio = times["torch"] / times["ours"]
            rows.append(row(f"{kind} posteriors, {length} labels", ratio, "8×", "20×", f"{1e3 * times['ours']:.1f} ms"))
            details.append({"kind": kind, "labels": length, "seconds": times})
    rows.append(row("geometric mean", geometric_mean([line["measured"] for line in rows]), "8×", "20×"))
    show("CTC loss, forward and backward, B 32, T 500, V 32, one thread, against torch.nn.functional.ctc_loss", rows)
    write("ctc", machine(), rows, details)


if __name__ == "__main__":
    main()
