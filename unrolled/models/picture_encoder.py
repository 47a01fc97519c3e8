"""Picture encoders: a vector for each region, and one for the whole picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from unrolled.cells.apart import each_alone, mean
from unrolled.config import Section, but, only
from unrolled.data import Batch
from unrolled.data.signals.views import Shape
from unrolled.errors import UserError
from unrolled.models.bridge import StateShape
from unrolled.models.encoder import EncoderOutput
from unrolled.models.recurrent_settings import TRANSFORMER
from unrolled.nn.linear import Linear
from unrolled.nn.transformer import TransformerEncoder
from unrolled.nn.vision import RegionNet

MakeEncoder = Callable[[Shape], nn.Module]
"""A custom network: pixels (B, 3, H, W) or features (B, …, D), scaled, → (B, M, h, w) or (B, S, M)."""


PIXELS = only(pictures="pixels")
WITH_BLOCKS = only(kind="transformer", blocks=but(0))


class PictureSettings(Section):
    """The encoder of pictures."""

    channels: list[int] = Field(
        [32, 64, 128], json_schema_extra=PIXELS, description="Pixels: channels of each convolution stage."
    )
    grid: int = Field(
        4, ge=1, json_schema_extra=PIXELS, description="Pixels: a stage halves maps wider than this number of regions."
    )
    hidden_size: int = Field(256, ge=1, description="Size of a region's vector; width of a Transformer.")
    dropout: float = Field(
        0.3,
        ge=0,
        lt=1,
        json_schema_extra=only({"kind": "transformer"}, {"decoder.attention": but("none")}),
        description="Dropout of the regions' vectors, as attention sees them.",
    )
    blocks: int = Field(
        2,
        ge=0,
        json_schema_extra=TRANSFORMER,
        description="transformer: blocks of self-attention over regions; 0: none.",
    )
    heads: int = Field(4, ge=1, json_schema_extra=WITH_BLOCKS, description="transformer: heads of attention.")
    feedforward: int = Field(
        1024, ge=1, json_schema_extra=WITH_BLOCKS, description="transformer: width of the feed-forward layers."
    )


class PictureEncoder(nn.Module):
    """Pixels → convolutions, or features as they are → a vector m_j for each region, and their mean.

        m_j = LN(ReLU(W a_j + U v + p_j + b))         a_j the region, v the picture's own vector, p_j its place

    The decoder's initial state comes from the mean of all m_j. Colours and features are standardised with the mean and
    deviation of the training data, which are part of the model.
    """

    mean: Tensor
    deviation: Tensor
    vector_mean: Tensor
    vector_deviation: Tensor

    def __init__(self, settings: PictureSettings, shape: Shape, make: MakeEncoder | None = None) -> None:
        super().__init__()
        self.shape, self.output_size = shape, settings.hidden_size
        self.net: nn.Module | None = make(shape) if make is not None else None
        width = shape.sizes[-1] if shape.sizes else 0
        self.grid: tuple[int, int] | None = shape.regions
        if shape.kind == "pixels" and make is None:
            net = RegionNet(3, shape.sizes[0], shape.sizes[1], settings.channels, settings.grid)
            self.net, width, self.grid = net, net.output_size, net.grid
        elif make is not None:
            width, self.grid = _measured(self.net, shape)
        for name, size in (("", shape.sizes[-1] if shape.sizes else 1), ("vector_", shape.vector or 1)):
            self.register_buffer(f"{name}mean", torch.zeros(size))
            self.register_buffer(f"{name}deviation", torch.ones(size))
        self.region = Linear(width, settings.hidden_size) if width else None
        self.whole = Linear(shape.vector, settings.hidden_size) if shape.vector else None
        self.norm = nn.LayerNorm(settings.hidden_size)
        self.dropout = nn.Dropout(settings.dropout)
        self.places: nn.Parameter | None = None
        if self.grid is not None:
            self.places = nn.Parameter(0.3 * torch.randn(self.grid[0] * self.grid[1], settings.hidden_size))
        self.final_shape = StateShape(("mean",), (settings.hidden_size,), 1)

    def fit(self, regions: Tensor | None, vectors: Tensor | None) -> None:
        """Fit the scaling to pixels or features (N, …, D) and vectors (N, V) of the training pictures."""
        for name, data in (("", regions), ("vector_", vectors)):
            if data is None:
                continue
            flat = data.reshape(-1, data.shape[-1]).double()
            getattr(self, f"{name}mean").copy_(flat.mean(0))
            deviation = flat.std(0, correction=0)
            getattr(self, f"{name}deviation").copy_(torch.where(deviation > 1e-8, deviation, 1.0))

    def forward(self, batch: Batch) -> EncoderOutput:
        """Pixels (B, H, W, 3) or regions (B, …, D) as inputs, vectors (B, V) in `more` → memory (B, S, M)."""
        total: Tensor | None = None
        if self.region is not None:
            total = self.region(self._regions(batch.inputs))  # (B, S, M)
        if self.whole is not None:
            vector = (batch.more["vectors"] - self.vector_mean) / self.vector_deviation
            whole = self.whole(vector)[:, None]  # (B, 1, M)
            total = whole if total is None else total + whole
        assert total is not None
        if self.places is not None:
            total = total + self.places
        memory = self.norm(torch.relu(total))
        mask = torch.ones(memory.shape[:2], dtype=torch.bool, device=memory.device)
        return EncoderOutput(self.dropout(memory), mask, (mean(memory, 1)[:, None],))

    def _regions(self, inputs: Tensor) -> Tensor:
        """Features of each region, (B, S, D)."""
        x: Any = (inputs - self.mean) / self.deviation
        if self.net is not None:
            x = each_alone(self.net, x.movedim(-1, 1) if self.shape.kind == "pixels" else x)
            if x.dim() == 4:  # maps (B, D, h, w)
                x = x.flatten(2).transpose(1, 2)
        regions: Tensor = x.flatten(1, -2)
        return regions


class BlockEncoder(nn.Module):
    """`PictureEncoder` with optional blocks of self-attention over the regions."""

    def __init__(
        self, settings: PictureSettings, shape: Shape, norm_first: bool, make: MakeEncoder | None = None
    ) -> None:
        super().__init__()
        self.read = PictureEncoder(settings, shape, make)
        parts = (settings.heads, settings.blocks, settings.feedforward, settings.dropout, norm_first)
        self.blocks = TransformerEncoder(settings.hidden_size, *parts) if settings.blocks else None

    def forward(self, batch: Batch) -> EncoderOutput:
        encoded: EncoderOutput = self.read(batch)
        if self.blocks is None:
            return encoded
        return encoded._replace(memory=self.blocks(encoded.memory))


@torch.no_grad()
def _measured(net: nn.Module | None, shape: Shape) -> tuple[int, tuple[int, int] | None]:
    """Size of a region and grid of regions of a custom network."""
    assert net is not None
    if not shape.sizes:
        raise UserError("A custom network needs pixels or regions; a picture is one vector here.", "Leave it out.")
    example = torch.zeros(1, 3, *shape.sizes[:2]) if shape.kind == "pixels" else torch.zeros(1, *shape.sizes)
    training = net.training
    out = net.eval()(example)
    net.train(training)
    if not isinstance(out, Tensor) or out.dim() not in (3, 4) or out.shape[0] != 1:
        got = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise UserError(f"The encoder gave {got} for {tuple(example.shape)}.", "Expected (B, M, h, w) or (B, S, M).")
    return (out.shape[1], (out.shape[2], out.shape[3])) if out.dim() == 4 else (out.shape[2], None)
