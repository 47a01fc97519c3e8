"""A translator laid open on one source: search, attention, and both sides' states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.models.stepwise import Stepwise
from unrolled.models.transformer_translator import TransformerTranslator
from unrolled.models.translator import Translator
from unrolled.see import AttentionMap, Beams, ModelTrace, Part, Probe, check_memory
from unrolled.see.options import HIDE, TARGET, TRUTH, TraceOption, follows_truth
from unrolled.tasks.generate.trace import top_guesses
from unrolled.tasks.shared.writing import watched
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.batches import pair_batch, source_batch

OPTIONS = (
    replace(HIDE, help="Source tokens to hide, by their places from 0: their vectors become zeros."),
    TRUTH,
    TARGET,
    TraceOption("beam", 5, "Hypotheses side by side; 1: greedy.", int),
    TraceOption("prefix", "", "What the translation must begin with.", str),
    TraceOption("temperature", 1.0, "Of the guesses: below 1 the likely ones become likelier."),
)


def trace_translation(
    model: Model,
    text: str,
    *,
    hide: Sequence[int],
    truth: str | None,
    target: str | None,
    beam: int,
    prefix: str,
    temperature: float,
) -> ModelTrace:
    """Searches for a translation, then follows every step of the true one where it is known, else of the best found."""
    assets: TranslateAssets = model.assets
    network: Any = model.network.eval()
    source, side = assets.source, assets.target
    ids = source.ids(text)
    if not len(ids):
        raise UserError("There is no text to show.", "Give a source with at least one token.")
    if temperature <= 0:
        raise UserError(f"temperature={temperature:g} is not above 0.", "Use 1 for the model's own distribution.")
    check_memory(len(ids), network)
    read = [*source.shown(ids.tolist()), "<eos>"]
    with torch.no_grad(), hidden(network, Probe(read, hide)):
        memory = network.encode(source_batch(assets, [ids]).to(model.device))
    found = watched(network, memory, side, beam=beam, prefix=prefix, most=assets.most_tokens(len(ids) + 1))
    answer = side.text(found.best.tokens)
    follow = follows_truth(truth, target)
    tokens = side.ids(truth).tolist() if follow and truth is not None else found.best.tokens
    batch = pair_batch(assets, [(ids, np.array(tokens, dtype=np.int32))]).to(model.device)
    written = ["<bos>", *side.shown(tokens)]
    probes = {"source": Probe(read, hide), "target": Probe(written)}
    features, parts, attention, missing = _laid_open(model, network, batch, probes)
    scores = network.scores(features)[0].float()
    losses = nn.functional.cross_entropy(scores, batch.targets[0], reduction="none")
    beams = Beams.of(found, side.tokenizer.token, side.text, side.end)
    if isinstance(network, Stepwise):
        del probes["target"]  # it reads nothing of what it has written
    return ModelTrace(
        "translate",
        answer,
        [*side.shown(tokens), "<eos>"],
        losses,
        parts,
        probes,
        top_guesses((scores.detach() / temperature).softmax(-1), side.tokenizer),
        aligned="decoder" if len(parts) > 1 else "" if parts else "target",
        attention=attention,
        beams=beams,
        reasons=missing,
        truth=truth,
        right=None if truth is None else answer == truth,
        follows="truth" if follow else "answer",
    )


class hidden:
    """While it lasts, some source vectors of a network are zeros."""

    def __init__(self, network: Any, probe: Probe) -> None:
        embedding = network.source if isinstance(network, TransformerTranslator) else network.embedding
        self.embedding = network.encoder.embedding if isinstance(network, Translator) else embedding
        self.probe = probe

    def __enter__(self) -> None:
        self.hook = self.embedding.register_forward_hook(lambda module, given, vectors: self.probe(vectors))

    def __exit__(self, *_: object) -> None:
        self.hook.remove()


def _laid_open(
    model: Model, network: Any, batch: Batch, probes: dict[str, Probe]
) -> tuple[Tensor, tuple[Part, ...], dict[str, AttentionMap], dict[str, str]]:
    """What the scores read (1, T, F), the recurrent parts, the attention, and why there is not more."""
    read, written = probes["source"].tokens, probes["target"].tokens
    said = [*written[1:], "<eos>"]
    missing = {"gates": "A vanilla RNN has no gates."}
    if isinstance(network, TransformerTranslator):
        decoded, weights = network.trace(batch, probes["source"], probes["target"])
        for kind in ("states", "gates", "norms", "flow"):
            missing[kind] = "A Transformer has no recurrent states and no gates: look at its attention."
        stacked = {name: torch.stack(layers, dim=1)[0].detach() for name, layers in weights.items()}
        return (
            decoded.features,
            (),
            {
                "translation → source": AttentionMap(said, read, stacked["cross"]),
                "source → source": AttentionMap(read, read, stacked["encoder"]),
                "translation → translation": AttentionMap(written, written, stacked["decoder"]),
            },
            missing,
        )
    if isinstance(network, Stepwise):
        decoded, trace, ids = network.trace(batch, probes["source"])
        steps = model.assets.source.shown(ids[0].tolist())
        probes["source"].tokens = steps
        missing["attention"] = "model.kind=stepwise reads and writes in step: it has no attention."
        return decoded.features, (Part("", steps, trace),), {}, missing
    assert isinstance(network, Translator)
    decoded, traces = network.trace(batch, probes["source"], probes["target"])
    order = [*reversed(read[:-1]), read[-1]] if network.encoder.reverse else read
    parts = (Part("encoder", order, traces["encoder"]), Part("decoder", written, traces["decoder"]))
    if decoded.attention is None:
        missing["attention"] = (
            "This model has no attention to show: all it knows of the source is one state. "
            "One trained with model.decoder.attention=luong has."
        )
        return decoded.features, parts, {}, missing
    looked = AttentionMap(said, read, decoded.attention.detach()[:, None])  # (1, 1, T, S)
    return decoded.features, parts, {"translation → source": looked}, missing
