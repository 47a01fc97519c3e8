"""Sampling one text, a token at a time, against a plain loop over torch.nn.LSTM.

    python benchmarks/sampling.py [--tokens 300] [--rounds 7] [--json FILE]

The same network (LSTM, H = 512) with the same weights; both sample from softmax(scores / 0.8). Blocks take turns in one
run; the figure is the median over rounds of the ratio of tokens/s. Before timing, both must choose the same tokens
greedily.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from unrolled import api
from unrolled.jobs import TrainingJob
from unrolled.model import Model


class Plain:
    """The same model in plain torch."""

    def __init__(self, model: Model) -> None:
        network: Any = model.network
        self.embedding, self.head = network.embedding, network.scores
        self.lstm = nn.LSTM(512, 512, batch_first=True)
        self.lstm.load_state_dict(network.layer.state_dict())
        self.model = model

    @torch.no_grad()
    def write(self, tokens: int, temperature: float) -> str:
        token = torch.tensor([[int(self.model.assets.ids("\n")[0])]])
        state, ids = None, []
        for _ in range(tokens):
            output, state = self.lstm(self.embedding(token), state)
            scores = self.head(output[0, -1])
            scores[0] = -torch.inf  # the unknown token
            if temperature == 0:
                token = scores.argmax().view(1, 1)
            else:
                token = torch.multinomial(torch.softmax(scores / temperature, -1), 1).view(1, 1)
            ids.append(int(token))
        text: str = self.model.assets.decode(ids)
        return text


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    settings = {"model.hidden_size": 512, "model.embedding_size": 512, "model.dropout": 0.0}
    job = TrainingJob(api.configure("generate", extra=settings))
    model = job.model
    with torch.no_grad():  # peaky, so greedy choices do not depend on the last bit
        for parameter in model.network.parameters():
            parameter.mul_(3.0)
    plain = Plain(model)
    assert model.predict("", max_tokens=100, temperature=0) == plain.write(100, 0), "the texts differ: nothing is timed"

    ways: dict[str, Callable[[], str]] = {
        "ours": lambda: model.predict("", max_tokens=options.tokens, temperature=0.8, seed=0),
        "plain": lambda: plain.write(options.tokens, 0.8),
    }
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            speeds[name].append(options.tokens / (time.perf_counter() - began))
    ratios = [a / b for a, b in zip(speeds["ours"], speeds["plain"], strict=True)]
    found = {
        "machine": f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "tokens/s": {name: round(statistics.median(values)) for name, values in speeds.items()},
        "ours / plain (must be 5)": round(statistics.median(ratios), 2),
    }
    print(json.dumps(found, indent=2))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
