"""The perplexity that fp16 and int8 weights cost when a trained model reads a text token by token.

python benchmarks/quantised.py MODEL FILE [--tokens 20000] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from pathlib import Path

import torch

from unrolled import api
from unrolled.models import LanguageStepper, RecurrentLM


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokens", type=int, default=20000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    model = api.load(options.model)
    assert isinstance(model.network, RecurrentLM)
    start = int(model.assets.ids("\n")[0])
    ids = [start, *model.assets.ids(options.file.read_text())[: options.tokens].tolist()]
    nats = {weights: mean_loss(LanguageStepper(model.network, weights), ids) for weights in ("fp32", "fp16", "int8")}
    perplexity = {weights: math.exp(value) for weights, value in nats.items()}
    found = {
        "tokens": len(ids) - 1,
        "perplexity": {weights: round(value, 5) for weights, value in perplexity.items()},
        "fp16, change in per cent (must be under 0.1)": change(perplexity, "fp16"),
        "int8, change in per cent (must be under 1)": change(perplexity, "int8"),
    }
    print(json.dumps(found, indent=2))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


def change(perplexity: dict[str, float], weights: str) -> float:
    return round(100 * (perplexity[weights] / perplexity["fp32"] - 1), 4)


@torch.no_grad()
def mean_loss(stepping: LanguageStepper, ids: list[int]) -> float:
    state, total = stepping.start(None), 0.0
    for token, target in itertools.pairwise(ids):
        step = stepping.step(torch.tensor([token]), state)
        state = step.state
        total -= float(step.log_probs[0, target])
    return total / (len(ids) - 1)


if __name__ == "__main__":
    main()
