"""A captioner laid open on one picture: where each word looked, the search, and the decoder's layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unrolled.data.signals.views import View
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.models.captioner import TransformerCaptioner
from unrolled.see import AttentionMap, Beams, ModelTrace, Part, Probe
from unrolled.see.options import TARGET, TRUTH, TraceOption, follows_truth
from unrolled.tasks.caption.batches import CaptionAssets, view_batch
from unrolled.tasks.generate.trace import top_guesses
from unrolled.tasks.shared.writing import watched, with_targets

OPTIONS = (
    TRUTH,
    TARGET,
    TraceOption("beam", 5, "Hypotheses side by side; 1: greedy.", int),
    TraceOption("prefix", "", "What the caption must begin with.", str),
    TraceOption("temperature", 1.0, "Of the guesses: below 1 the likely ones become likelier."),
)


def trace_caption(
    model: Model,
    view: View,
    picture: NDArray[np.uint8] | None,
    *,
    truth: Any,
    target: str | None,
    beam: int,
    prefix: str,
    temperature: float,
) -> ModelTrace:
    """Searches for a caption, then follows every step of a true one where one is known, else of the best found.

    `picture` is drawn under the attention. `truth` is a caption or a list of them, the first of which is followed.
    """
    if temperature <= 0:
        raise UserError(f"temperature={temperature:g} is not above 0.", "Use 1 for the model's own distribution.")
    assets: CaptionAssets = model.assets
    network: Any = model.network.eval()
    side = assets.target
    read = view_batch([view]).to(model.device)
    with torch.no_grad():
        memory = network.encode(read)
    found = watched(network, memory, side, beam=beam, prefix=prefix, most=assets.most_tokens)
    answer = side.text(found.best.tokens)
    captions = None if truth is None else [truth] if isinstance(truth, str) else list(truth)
    follow = follows_truth(captions, target)
    tokens = side.ids(captions[0]).tolist() if follow and captions else found.best.tokens
    batch = with_targets(read.to(torch.device("cpu")), side, [np.array(tokens, dtype=np.int32)]).to(model.device)
    said = [*side.shown(tokens), "<eos>"]
    probe = Probe(["<bos>", *said[:-1]])
    decoded, inside = network.trace_writing(batch, network.encode(batch), probe)
    scores = network.scores(decoded.features)[0].float()
    losses = nn.functional.cross_entropy(scores, batch.targets[0], reduction="none")
    parts: tuple[Part, ...] = ()
    weights: dict[str, Tensor] = {}
    missing = {
        "gates": "A vanilla RNN has no gates.",
        "attention": "This model has no attention to show: all it knows of the picture is one vector. "
        "One trained with model.decoder.attention=soft has.",
    }
    if isinstance(network, TransformerCaptioner):
        weights = {name: torch.stack(layers, dim=1)[0].detach() for name, layers in inside.items()}
        for kind in ("states", "gates", "norms", "flow"):
            missing[kind] = "A Transformer has no recurrent states and no gates: look at its attention."
    else:
        parts = (Part("", probe.tokens, inside),)
        if decoded.attention is not None:
            weights = {"cross": decoded.attention.detach()[:, None]}
    return ModelTrace(
        "caption",
        answer,
        said,
        losses,
        parts,
        {"target": probe},
        top_guesses((scores.detach() / temperature).softmax(-1), side.tokenizer),
        aligned="" if parts else "target",
        attention=_maps(weights, said, probe.tokens, network.grid, picture),
        beams=Beams.of(found, side.tokenizer.token, side.text, side.end),
        reasons=missing,
        truth=None if captions is None else " / ".join(captions),
        right=None if captions is None else answer in captions,
        follows="truth" if follow else "answer",
    )


def _maps(
    weights: dict[str, Tensor],
    said: list[str],
    written: list[str],
    grid: tuple[int, int] | None,
    picture: NDArray[np.uint8] | None,
) -> dict[str, AttentionMap]:
    """Attention over the picture's regions, as a grid where they form one, and of a Transformer to its own words."""
    found = {}
    if "cross" in weights:
        regions = [str(number) for number in range(weights["cross"].shape[-1])]
        image = None if picture is None else torch.from_numpy(picture.copy()).float() / 255
        found["caption → picture"] = AttentionMap(said, regions, weights["cross"], grid, image)
    if "decoder" in weights:
        found["caption → caption"] = AttentionMap(written, written, weights["decoder"])
    return found
