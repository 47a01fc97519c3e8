"""A captioner laid open on one picture: search, attention to the regions, and the decoder's states."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.data.views import View
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.models.captioner import TransformerCaptioner
from unrolled.models.encoder import Encoded
from unrolled.search import Beam, beam_search
from unrolled.see import AttentionMap, Beams, ModelTrace, Part, Probe
from unrolled.see.options import TraceOption
from unrolled.tasks.caption_batch import CaptionAssets, view_batch
from unrolled.tasks.generate_trace import top_guesses
from unrolled.tasks.writing import with_targets

OPTIONS = (
    TraceOption("beam", 5, "Hypotheses side by side; 1: greedy.", int),
    TraceOption("prefix", "", "What the caption must begin with.", str),
    TraceOption("temperature", 1.0, "Of the guesses: below 1 the likely ones become likelier."),
)


def trace_caption(model: Model, view: View, *, beam: int, prefix: str, temperature: float) -> ModelTrace:
    """Searches for a caption, then follows every step of the best one."""
    assets: CaptionAssets = model.assets
    network: Any = model.network.eval()
    target = assets.target
    if temperature <= 0:
        raise UserError(f"temperature={temperature:g} is not above 0.", "Use 1 for the model's own distribution.")
    read = view_batch([view]).to(model.device)
    unknown = target.tokenizer.vocabulary.unk
    with torch.no_grad():
        memory = network.encode(read)
    (found,) = beam_search(
        network,
        1,
        start=target.begin,
        end=target.end,
        max_tokens=[assets.most_tokens],
        beam=Beam(beam, n_best=min(beam, 5)),
        memory=memory,
        memory_mask=memory.mask,
        prefixes=[target.ids(prefix).tolist() if prefix else []],
        forbidden=[target.begin, *([] if unknown is None else [unknown])],
        tree=True,
    )
    tokens = found.best.tokens
    batch = with_targets(read, target, [np.array(tokens, dtype=np.int32)]).to(model.device)
    written = ["<bos>", *target.shown(tokens)]
    probes = {"caption": Probe(written)}
    features, parts, attention, missing = _laid_open(network, batch, memory, probes["caption"], view)
    scores = network.scores(features)[0].float()
    return ModelTrace(
        "caption",
        target.text(tokens),
        [*target.shown(tokens), "<eos>"],
        nn.functional.cross_entropy(scores, batch.targets[0], reduction="none"),
        parts,
        probes,
        top_guesses((scores.detach() / temperature).softmax(-1), target.tokenizer),
        aligned="" if parts else "caption",
        attention=attention,
        beams=Beams.of(found, target.tokenizer.token, target.text, target.end),
        missing=missing,
    )


def _laid_open(
    network: Any, batch: Batch, memory: Encoded, probe: Probe, view: View
) -> tuple[Tensor, tuple[Part, ...], dict[str, AttentionMap], dict[str, str]]:
    """What the scores read (1, T, F), the recurrent layers, the attention, and why there is not more."""
    said = [*probe.tokens[1:], "<eos>"]
    missing = {"gates": "A vanilla RNN has no gates."}
    places = [f"region {i}" for i in range(memory.memory.shape[1])]
    image = None
    if view.values is not None and view.values.dtype == np.uint8:
        image = torch.from_numpy(view.values.astype(np.float32) / 255)
    decoded, trace = network.trace_writing(batch, memory, probe)
    if isinstance(network, TransformerCaptioner):
        for kind in ("states", "gates", "norms", "flow"):
            missing[kind] = "A Transformer has no recurrent states and no gates: look at its attention."
        stacked = {name: torch.stack(layers, dim=1)[0].detach() for name, layers in trace.items()}
        looked = AttentionMap(said, places, stacked["cross"], network.grid, image)
        own = AttentionMap(probe.tokens, probe.tokens, stacked["decoder"])
        return decoded.features, (), {"caption → picture": looked, "caption → caption": own}, missing
    parts = (Part("", probe.tokens, trace),)
    if decoded.attention is None:
        missing["attention"] = (
            "This model has no attention to show: all it knows of the picture is one vector. "
            "One trained with model.decoder.attention=soft has."
        )
        return decoded.features, parts, {}, missing
    weights = decoded.attention.detach()[:, None]  # (1, 1, T, S)
    return (
        decoded.features,
        parts,
        {"caption → picture": AttentionMap(said, places, weights, network.grid, image)},
        missing,
    )
