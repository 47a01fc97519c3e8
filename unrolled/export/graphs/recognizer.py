"""Graphs of recognizers: frames to labels, a stream further, and recordings to frames."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.data.signals.log_mel import FLOOR, LogMel, mel_filters, with_deltas
from unrolled.errors import UserError
from unrolled.export.graphs.plan import GraphPlan, GraphPlans, leaves, normal, numbered, ragged, rebuilt
from unrolled.model import Model
from unrolled.models.recognizer import MapInput, Recognizer
from unrolled.models.recurrent_settings import state_from_torch, state_to_torch


def recognize_plans(model: Model) -> GraphPlans:
    network = model.network
    assert isinstance(network, Recognizer)
    if network.plane is not None:
        raise UserError(
            "model.kind=mdlstm sweeps over a picture along its diagonals, which has no graph in ONNX.",
            "Train with model.kind=recurrent or transformer.",
        )
    graphs = [_whole(network)]
    reader = model.assets.reader
    if reader.kind == "audio":
        graphs.append(_features(Spectrogram(LogMel(reader.rate, reader.bands), reader.deltas, reader.center_bands)))
    if network.causal and network.layer is not None:
        graphs.append(_step(network))
    return GraphPlans(graphs, {"time_factor": network.time_factor, "context": network.context})


def _shape(network: Recognizer) -> tuple[int, ...]:
    read = network.input
    return tuple(read.shape if isinstance(read, MapInput) else read.frames.shape)


def _whole(network: Recognizer) -> GraphPlan:
    def compute(frames: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        return tuple(network(Batch(frames, frames, lengths)))

    def draw(sizes: Mapping[str, int], generator: torch.Generator) -> list[Tensor]:
        batch, steps = sizes["batch"], sizes["time"]
        return [normal(generator, batch, steps, *_shape(network)), ragged(steps, generator, batch)]

    free = {"inputs": {0: "batch", 1: "time"}, "lengths": {0: "batch"}}
    return GraphPlan("whole", compute, draw, ["inputs", "lengths"], ["log_probs", "frames"], free)


def _step(network: Recognizer) -> GraphPlan:
    """A block of a stream with the frames of context before it; `places` are the output steps that are new."""
    like = leaves(state_from_torch(network.layer.initial_state(2)))[0]
    states = numbered("state", len(like))

    def compute(frames: Tensor, places: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        lengths = torch.full((frames.shape[0],), frames.shape[1], dtype=torch.int64)
        x, _ = network.input(frames, lengths)
        hidden = state_to_torch(rebuilt(like, list(state), []))
        output, final = network.layer(x.index_select(1, places), hidden)
        return (network.scores(output).float().log_softmax(-1), *leaves(state_from_torch(final))[0])

    def draw(sizes: Mapping[str, int], generator: torch.Generator) -> list[Tensor]:
        batch, steps = sizes["batch"], sizes["time"] * network.time_factor
        new = max(1, min(sizes["new"], sizes["time"]))
        places = torch.arange(sizes["time"] - new, sizes["time"])
        carried = [normal(generator, batch, *one.shape[1:]) for one in like]
        return [normal(generator, batch, steps, *_shape(network)), places, *carried]

    free: dict[str, dict[int, str]] = {"inputs": {0: "batch", 1: "time"}, "places": {0: "new"}}
    free |= {name: {0: "batch"} for name in states}
    outputs = ["log_probs", *numbered("new_state", len(states))]
    return GraphPlan("step", compute, draw, ["inputs", "places", *states], outputs, free)


def _features(spectrogram: Spectrogram) -> GraphPlan:
    """The frames of one recording; it has at least the samples of a window."""
    mel = spectrogram.mel

    def draw(sizes: Mapping[str, int], generator: torch.Generator) -> list[Tensor]:
        return [0.1 * normal(generator, mel.window + sizes["samples"] * mel.hop // 2)]

    free = {"samples": {0: "samples"}}
    return GraphPlan("features", spectrogram, draw, ["samples"], ["frames"], free, network=spectrogram)


class Spectrogram(nn.Module):
    """`LogMel` of one recording (N,) with its slopes, the Fourier transform written as a product."""

    cosines: Tensor
    filters: Tensor

    def __init__(self, mel: LogMel, deltas: int, center: bool) -> None:
        super().__init__()
        self.mel, self.deltas, self.center = mel, deltas, center
        points = 1 << (mel.window - 1).bit_length()
        angles = 2 * math.pi / points * torch.arange(mel.window, dtype=torch.float64)[:, None]
        angles = angles * torch.arange(points // 2 + 1)
        window = torch.hann_window(mel.window, dtype=torch.float64)[:, None]
        both = torch.cat([angles.cos() * window, angles.sin() * window], dim=1)
        self.register_buffer("cosines", both.float())  # (window, 2 · bins)
        self.register_buffer("filters", mel_filters(mel.rate, points, mel.bands).T.contiguous())

    def forward(self, samples: Tensor) -> Tensor:
        """Samples (N,), at least a window of them → frames (T, size)."""
        frames = samples.unfold(0, self.mel.window, self.mel.hop)  # (T, window)
        real, imaginary = (frames @ self.cosines).chunk(2, dim=1)
        energies = (real.square() + imaginary.square()) @ self.filters
        bands = energies.clamp(min=FLOOR).log()
        features: Tensor = with_deltas(bands - bands.mean(dim=0) if self.center else bands, self.deltas)
        return features
