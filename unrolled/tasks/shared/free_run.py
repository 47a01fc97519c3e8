"""Greedy decoding while a model learns: what it costs to read its own words in place of the true ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from unrolled.data import Batch
from unrolled.data.batching.sharing import in_turn
from unrolled.search import Limits, Sampling, sample
from unrolled.tasks.shared.side import Ids, Side

Written = tuple[int, int, int, list[list[int]]]
"""Target tokens of a batch, how many are correct with teacher forcing and running free, and the free outputs."""
SHOWN = 3  # outputs shown while a model learns


@dataclass
class FreeRun:
    """Greedy outputs, and the number of correct target tokens: with teacher forcing, and running free."""

    target: Side
    outputs: list[list[int]] = field(default_factory=list)
    forced: int = 0
    free: int = 0
    tokens: int = 0
    forbid_unknown: bool = False  # never write <unk>, as a search does

    def add(self, number: int, work: Callable[[int], Written]) -> None:
        """Count what was written for each of some batches; `work` gives it by the index of one."""
        for _, (tokens, forced, free, outputs) in in_turn(number, work):
            self.tokens, self.forced, self.free = self.tokens + tokens, self.forced + forced, self.free + free
            self.outputs += outputs

    @torch.no_grad()
    def written(self, network: Any, batch: Batch, targets: Sequence[Ids], most: int) -> Written:
        """Write for each row of a batch, at most `most` tokens."""
        best = network.scores(network(batch).features).argmax(-1).cpu()
        unknown = self.target.tokenizer.vocabulary.unk
        forbidden = [self.target.begin, *([unknown] if self.forbid_unknown and unknown is not None else [])]
        found = sample(
            network,
            [[self.target.begin]] * len(targets),
            Limits(most, self.target.end, forbidden=forbidden),
            memory=network.encode(batch),
            sampling=Sampling(temperature=0),
        )
        tokens, forced, free = 0, 0, 0
        for row, (target, output) in enumerate(zip(targets, found, strict=True)):
            truth = [*target.tolist(), self.target.end]
            tokens += len(truth)
            forced += sum(a == b for a, b in zip(best[row].tolist(), truth, strict=False))
            free += sum(a == b for a, b in zip([*output.tokens, self.target.end], truth, strict=False))
        return tokens, forced, free, [list(output.tokens) for output in found]

    @property
    def texts(self) -> list[str]:
        return [self.target.text(tokens) for tokens in self.outputs]

    def rates(self) -> dict[str, float]:
        """Both accuracies, and their difference: the cost of reading its own words (exposure bias)."""
        return {
            "forced_accuracy": self.forced / self.tokens,
            "free_accuracy": self.free / self.tokens,
            "exposure_gap": (self.forced - self.free) / self.tokens,
        }


def samples(references: Sequence[str], outputs: Sequence[str], names: Sequence[str] | None = None) -> list[str]:
    """A few outputs beside their references, evenly spread; below the names of their inputs where there are any."""
    chosen = range(0, len(outputs), max(1, len(outputs) // SHOWN))[:SHOWN]
    if names is None:
        return [f"is      {references[i]}\nbecame  {outputs[i]}" for i in chosen]
    return [f"{names[i]}\n  is      {references[i]}\n  became  {outputs[i]}" for i in chosen]
