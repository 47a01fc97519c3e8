"""Networks that read a sequence and score it, in onnxruntime: classifiers and taggers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data import Batch
from unrolled.runtime.crf import Transitions
from unrolled.runtime.graph import Graph, Graphs
from unrolled.runtime.manifest import Manifest
from unrolled.runtime.settings import StoredSettings
from unrolled.search.arrays import NUMPY

Scores = NDArray[np.float32]


def fed(batch: Batch) -> dict[str, NDArray[Any]]:
    """The arrays of a batch under their names."""
    return {"inputs": batch.inputs, "lengths": batch.lengths, **batch.more}


class RuntimeNetwork:
    """A network of an exported model, which takes and gives NumPy's arrays."""

    arrays = NUMPY

    def __init__(self, graphs: Graphs, manifest: Manifest, config: StoredSettings, assets: Any) -> None:
        self.graphs, self.manifest, self.config, self.assets = graphs, manifest, config, assets

    def eval(self) -> Any:
        """The network itself: it only ever answers."""
        return self

    @property
    def whole(self) -> Graph:
        return self.graphs["whole"]

    @property
    def step_graph(self) -> Graph:
        return self.graphs["step"]


class RuntimeClassifier(RuntimeNetwork):
    """Scores of the classes of a batch, (B, C)."""

    def __call__(self, batch: Batch) -> Scores:
        scores: Scores = self.whole(fed(batch))[0]["scores"]
        return scores


class RuntimeTagger(RuntimeNetwork):
    """Scores of the tags at each step of a batch, (B, T, K), and the tags that they mean."""

    def __init__(self, graphs: Graphs, manifest: Manifest, config: StoredSettings, assets: Any) -> None:
        super().__init__(graphs, manifest, config, assets)
        self.causal = not config.model.bidirectional
        self.crf: Transitions | None = None
        if (stored := manifest.entry("crf")) is not None:
            forbidden = assets.forbidden() if config.model.legal else None
            self.crf = Transitions.of(stored, len(assets.learnt), forbidden)

    def __call__(self, batch: Batch) -> Scores:
        scores: Scores = self.whole(fed(batch))[0]["scores"]
        return scores

    def decode(self, batch: Batch, scores: Scores) -> list[list[int]]:
        """The tags of each sequence: the most likely per step, or the most likely sequence."""
        rows = [row[:length] for row, length in zip(scores, batch.lengths.tolist(), strict=True)]
        return [row.argmax(-1).tolist() if self.crf is None else self.crf.best(row) for row in rows]

    def probabilities(self, batch: Batch, scores: Scores) -> Scores:
        """The probability of each tag at each step, (B, T, K)."""
        if self.crf is None:
            shares: Scores = NUMPY.shares(scores)
            return shares
        found = np.zeros_like(scores)
        for row, length in enumerate(batch.lengths.tolist()):
            found[row, :length] = self.crf.marginals(scores[row, :length])
        return found

    def stepper(self) -> Callable[[Batch, Any], tuple[Scores, Any]]:
        """A function that reads a batch of one step after a state: the scores (B, K), and the state after it."""
        graph = self.step_graph

        def advance(batch: Batch, state: Any) -> tuple[Scores, Any]:
            found, state = graph(fed(batch), graph.initial(len(batch.inputs)) if state is None else state)
            return found["scores"][:, 0], state

        return advance
