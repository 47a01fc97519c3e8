"""Trace of a captioner on one picture: attention, search, and the decoder's layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.data.batching.ragged import Ragged
from unrolled.data.readers.media.captions import Captioned
from unrolled.data.signals.views import View
from unrolled.model import Model
from unrolled.models.captioner import TransformerCaptioner
from unrolled.see import AttentionMap, ModelTrace, Part, Probe
from unrolled.see.options import TraceOption, read_options
from unrolled.tasks.caption.assets import CaptionAssets
from unrolled.tasks.caption.batches import view_batch
from unrolled.tasks.caption.predict import drawable_pixels, view_of
from unrolled.tasks.caption.run import paths_of
from unrolled.tasks.runner import Request
from unrolled.tasks.shared.sentence import check_pooling, embedded, pooled
from unrolled.tasks.shared.side import with_targets
from unrolled.tasks.shared.trace import NO_GATES, TRANSFORMER, Followed, WritingChoices, writing_options
from unrolled.tasks.tracer import Example, Tracer, nth

NO_ATTENTION = (
    "This model has no attention to show: all it knows of the picture is one vector. "
    "One trained with model.decoder.attention=soft has."
)


class CaptionTracer(Tracer):
    """Traces a captioner on one picture."""

    options: ClassVar[tuple[TraceOption, ...]] = writing_options("caption")

    def trace(self, inputs: Any, **options: Any) -> ModelTrace:
        """The attention of each word, the search, and every gate and state."""
        chosen = read_options(self.options, options)
        one = inputs.view if isinstance(inputs, Captioned) else inputs
        if chosen["truth"] is None and isinstance(inputs, Captioned):
            chosen["truth"] = inputs.captions or None
        choices = WritingChoices.of(**chosen)
        return trace_caption(self.model, view_of(one, self.model.assets.shape), drawable_pixels(one), choices)

    def input(self, request: Request) -> Any:
        """The path of a picture, unchanged, so that it can be drawn."""
        return next(iter(paths_of(request)), "")

    def example(self, examples: Any, number: int) -> Example:
        found: Captioned = nth(examples, number)
        return Example(found, found.captions)

    @torch.no_grad()
    def embed(self, inputs: Any, pooling: str | None = None) -> NDArray[np.float32]:
        """The mean of the vectors of a picture's regions, or their maximum."""
        how = check_pooling(pooling, "mean", "last", "a picture's regions have no order")
        several = isinstance(inputs, (list, tuple))
        views = [view_of(one, self.model.assets.shape) for one in (inputs if several else [inputs])]
        network: Any = self.model.network.eval()

        def vectors_of(some: Sequence[View]) -> Tensor:
            encoded = network.encode(view_batch(some).to(self.model.device))
            return pooled(encoded.memory, encoded.mask, how)

        table = embedded(views, vectors_of)
        return table if several else table[0]


def trace_caption(model: Model, view: View, picture: NDArray[np.uint8] | None, choices: WritingChoices) -> ModelTrace:
    """Search for a caption, then trace every step of a true one if one is known, else of the best.

    `picture` is drawn under the attention.
    """
    assets: CaptionAssets = model.assets
    network: Any = model.network.eval()
    read = view_batch([view]).to(model.device)
    with torch.no_grad():
        memory = network.encode(read)
    followed = Followed.search(network, memory, assets.target, assets.most_tokens, choices)
    ids = np.array(followed.tokens, dtype=np.int32)
    batch = with_targets(read, assets.target, Ragged.of([ids])).to(model.device)
    probe = Probe(followed.read)
    decoded, inside = network.trace_writing(batch, network.encode(batch), probe)
    parts: tuple[Part, ...] = ()
    weights: dict[str, Tensor] = {}
    reasons = {**NO_GATES, "attention": NO_ATTENTION}
    if isinstance(network, TransformerCaptioner):
        weights = {name: torch.stack(layers, dim=1)[0].detach() for name, layers in inside.items()}
        reasons |= TRANSFORMER
    else:
        parts = (Part("", probe.tokens, inside),)
        if decoded.attention is not None:
            weights = {"cross": decoded.attention.detach()[:, None]}
    return followed.trace(
        "caption",
        decoded.features,
        batch,
        parts,
        {"target": probe},
        aligned="" if parts else "target",
        attention=_maps(weights, followed, network, picture),
        reasons=reasons,
    )


def _maps(
    weights: dict[str, Tensor],
    followed: Followed,
    network: Any,
    picture: NDArray[np.uint8] | None,
) -> dict[str, AttentionMap]:
    """Attention over the picture's regions, as a grid where they form one, and of a Transformer to its own words."""
    found = {}
    if "cross" in weights:
        regions = [str(number) for number in range(weights["cross"].shape[-1])]
        image = None if picture is None else torch.from_numpy(picture.copy()).float() / 255
        found["caption → picture"] = AttentionMap(
            followed.losses_of, regions, weights["cross"], network.grid, image, network.hard
        )
    if "decoder" in weights:
        found["caption → caption"] = AttentionMap(followed.read, followed.read, weights["decoder"])
    return found
