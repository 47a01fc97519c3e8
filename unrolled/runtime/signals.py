"""Networks that read numbers, in onnxruntime: forecasters and recognisers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrolled.data import Batch
from unrolled.data.signals.log_mel import LogMel
from unrolled.errors import UserError
from unrolled.runtime.graph import Graph, Graphs, State
from unrolled.runtime.manifest import AGAIN, Manifest
from unrolled.runtime.readers import RuntimeNetwork, fed
from unrolled.runtime.settings import StoredSettings
from unrolled.tasks.forecast.layout import layout_of, output_of
from unrolled.tasks.recognize.features import InputReader
from unrolled.tasks.recognize.labels import RecognizeAssets

Frames = NDArray[np.float32]


class RuntimeForecaster(RuntimeNetwork):
    """Rows of numbers to estimates of those to come."""

    def __init__(self, graphs: Graphs, manifest: Manifest, config: StoredSettings, assets: Any) -> None:
        super().__init__(graphs, manifest, config, assets)
        settings: Any = config.model
        self.causal = not settings.bidirectional
        self.layout, self.output = layout_of(settings, assets), output_of(settings, assets)

    def __call__(
        self, x: Frames, state: State | None = None, lengths: Any = None, resets: Any = None
    ) -> tuple[Frames, State]:
        """Features (B, T, F) → estimates (B, T, horizons, K, P), and the state after the last step.

        Rows in `resets` begin anew; those of layers of both directions always do.
        """
        full = np.full(len(x), x.shape[1]) if lengths is None else lengths
        if state is None or not self.causal:
            found, state = self.whole({"inputs": x, "lengths": full})
            return found["estimates"], state
        begun = np.zeros(len(x), dtype=bool) if resets is None else resets
        estimates: Frames | None = None
        left = [part.copy() for part in state]
        for rows in (np.flatnonzero(begun), np.flatnonzero(~begun)):
            if not len(rows):
                continue
            if begun[rows[0]]:
                found, after = self.whole({"inputs": x[rows], "lengths": full[rows]})
            else:  # a row that ends within the window begins anew after it: what is left of it does not matter
                found, after = self.step_graph({"inputs": x[rows]}, tuple(part[rows] for part in state))
            if estimates is None:
                estimates = np.zeros((len(x), *found["estimates"].shape[1:]), dtype=np.float32)
            estimates[rows] = found["estimates"]
            for part, new in zip(left, after, strict=True):
                part[rows] = new
        assert estimates is not None
        return estimates, tuple(left)

    def row_stepper(self) -> RuntimeRows:
        return RuntimeRows(self)


class RuntimeRows:
    """A forecaster row by row; one of both directions reads all rows at once."""

    def __init__(self, network: RuntimeForecaster) -> None:
        self._network = network

    def __call__(self, x: Frames, state: State | None) -> tuple[Frames, State | None]:
        """Features (n, F) of rows that follow each other → estimates (n, horizons, K, P), and the state."""
        if not self._network.causal:
            return self._begun(x)[0], None
        estimates = []
        for row in x:
            if state is None:
                estimate, state = self._begun(row[None])
            else:
                estimate, state = self.together(row[None], state)
            estimates.append(estimate)
        return np.concatenate(estimates), state

    def _begun(self, x: Frames) -> tuple[Frames, State]:
        """The first rows of a series."""
        found, state = self._network.whole({"inputs": x[None], "lengths": np.array([len(x)])})
        return found["estimates"][0], state

    def paths(self, state: State, count: int) -> State:
        """The state of a single row for `count` rows side by side."""
        return tuple(np.repeat(part, count, axis=0) for part in state)

    def together(self, x: Frames, state: State) -> tuple[Frames, State]:
        """The next row (B, F) of several sequences → estimates (B, horizons, K, P), and the state."""
        found, state = self._network.step_graph({"inputs": x[:, None]}, state)
        return found["estimates"][:, 0], state


class RuntimeRecognizer(RuntimeNetwork):
    """Frames to log-probabilities of labels."""

    def __init__(self, graphs: Graphs, manifest: Manifest, config: StoredSettings, assets: Any) -> None:
        super().__init__(graphs, manifest, config, assets)
        self.causal = not config.model.bidirectional
        self.layer = graphs.get("step")  # none: there is no stream
        self.time_factor, self.context = (_whole_number(manifest, name) for name in ("time_factor", "context"))

    def __call__(self, batch: Batch) -> tuple[Frames, NDArray[np.int64]]:
        """log P (B, T', V), and the number of real frames of each row."""
        found, _ = self.whole(fed(batch))
        return found["log_probs"], found["frames"]

    def advance(self, frames: Frames, seen: int, state: State | None) -> tuple[Frames, State]:
        """More frames of one stream, of which the first `seen` are context: log P (T', V) of the new ones."""
        graph, factor = self.step_graph, self.time_factor
        given: dict[str, NDArray[Any]] = {
            "inputs": frames[None],
            "places": np.arange(seen // factor, -(-len(frames) // factor)),
        }
        found, state = graph(given, graph.initial(1) if state is None else state)
        return found["log_probs"][0], state


def _whole_number(manifest: Manifest, name: str) -> int:
    value = manifest.entry(name)
    if not isinstance(value, int) or value < 0:
        raise UserError(f"The manifest's {name!r} is {value!r}, expected a whole number.", AGAIN)
    return value


class GraphMel(LogMel):
    """Log-mel frames of a recording, computed by a graph of the exported model."""

    graph: Graph

    def __call__(self, samples: NDArray[np.float32]) -> Frames:
        given = np.pad(samples, (0, max(0, self.window - len(samples))))
        found, _ = self.graph({"samples": given})
        frames: Frames = found["frames"]
        return frames


class RuntimeReader(InputReader):
    """The reader of a recogniser whose spectrogram is a graph."""

    graph: Graph

    def _finished(self, base: Any) -> Frames:
        """The frames as they are: the graph centres them and adds their slopes."""
        frames: Frames = base
        return frames

    @property
    def mel(self) -> LogMel:
        made = GraphMel(self.rate, self.bands)
        object.__setattr__(made, "graph", self.graph)
        return made


def with_graph(assets: RecognizeAssets, graphs: Graphs) -> RecognizeAssets:
    """The assets of a recogniser, whose recordings go through the graph "features"."""
    if assets.reader.kind != "audio":
        return assets
    reader = RuntimeReader(**vars(assets.reader))
    object.__setattr__(reader, "graph", graphs["features"])
    return replace(assets, reader=reader)
