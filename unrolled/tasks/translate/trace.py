"""Trace of a translator on one source: search, attention, and the states of both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.models.stepwise import Stepwise
from unrolled.models.transformer_translator import TransformerTranslator
from unrolled.models.translator import Translator
from unrolled.see import AttentionMap, ModelTrace, Part, Probe, check_memory
from unrolled.see.options import HIDE, TraceOption, read_options
from unrolled.tasks.shared.sentence import check_pooling, embedded, pooled
from unrolled.tasks.shared.trace import NO_GATES, TRANSFORMER, Followed, WritingChoices, writing_options
from unrolled.tasks.tracer import Example, Tracer, nth
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.batches import pair_batch, source_batch

OPTIONS = (
    replace(HIDE, help="Source tokens to hide, by their places from 0: their vectors become zeros."),
    *writing_options("translation"),
)


class TranslateTracer(Tracer):
    """Traces a translation: search, attention, and the states of both sides."""

    options: ClassVar[tuple[TraceOption, ...]] = OPTIONS

    def trace(self, inputs: str, **options: Any) -> ModelTrace:
        """The search, the attention, and every gate, state and gradient of the true or best translation.

        Options: see `OPTIONS`.
        """
        chosen = read_options(self.options, options)
        if not isinstance(inputs, str):
            raise UserError(f"The input is {type(inputs).__name__}.", "Expected a text.")
        return trace_translation(self.model, inputs, chosen.pop("hide"), WritingChoices.of(**chosen))

    def example(self, examples: Any, number: int) -> Example:
        pair = nth(examples, number)
        return Example(pair.source, pair.target)

    @torch.no_grad()
    def embed(self, inputs: Any, pooling: str | None = None) -> NDArray[np.float32]:
        """The encoder's final state after a source, [h→ ; h←] of its last layer; or its vectors' mean or maximum.

        A Transformer has no final state: its mean is the usual one.
        """
        model = self.model
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        network: Any = model.network.eval()
        blocks = isinstance(network, TransformerTranslator)
        why = "a Transformer's encoder has no final state"
        how = check_pooling(pooling, "mean", "last", why) if blocks else check_pooling(pooling, "last")

        def vectors_of(some: Sequence[str]) -> Tensor:
            batch = source_batch(model.assets, [model.assets.source.ids(text) for text in some]).to(model.device)
            encoded = network.read(batch) if isinstance(network, Stepwise) else network.encode(batch)
            if how != "last":
                return pooled(encoded.memory, encoded.mask, how)
            hidden: Tensor = encoded.state[0]  # (B, L·directions, H)
            directions = 1 if isinstance(network, Stepwise) else network.encoder.final_shape.directions
            return hidden[:, -directions:].flatten(1)

        table = embedded(texts, vectors_of)
        return table[0] if isinstance(inputs, str) else table


def trace_translation(model: Model, text: str, hide: Sequence[int], choices: WritingChoices) -> ModelTrace:
    """Search for a translation, then trace every step of the true one if it is known, else of the best."""
    assets: TranslateAssets = model.assets
    network: Any = model.network.eval()
    source = assets.source
    ids = source.ids(text)
    if not len(ids):
        raise UserError("There is no text to show.", "Give a source with at least one token.")
    check_memory(len(ids), network)
    read = [*source.shown(ids.tolist()), "<eos>"]
    with torch.no_grad(), hidden(network, Probe(read, hide)):
        memory = network.encode(source_batch(assets, [ids]).to(model.device))
    followed = Followed.search(network, memory, assets.target, assets.most_tokens(len(ids) + 1), choices)
    batch = pair_batch(assets, [(ids, np.array(followed.tokens, dtype=np.int32))]).to(model.device)
    probes = {"source": Probe(read, hide), "target": Probe(followed.read)}
    features, parts, attention, reasons = _traced(model, network, batch, probes)
    if isinstance(network, Stepwise):
        del probes["target"]  # its decoder does not read its own output
    aligned = "decoder" if len(parts) > 1 else "" if parts else "target"
    return followed.trace(
        "translate", features, batch, parts, probes, aligned=aligned, attention=attention, reasons=reasons
    )


class hidden:
    """A block in which some source vectors of a network are zeros."""

    def __init__(self, network: Any, probe: Probe) -> None:
        embedding = network.source if isinstance(network, TransformerTranslator) else network.embedding
        self.embedding = network.encoder.embedding if isinstance(network, Translator) else embedding
        self.probe = probe

    def __enter__(self) -> None:
        self.hook = self.embedding.register_forward_hook(lambda module, inputs, vectors: self.probe(vectors))

    def __exit__(self, *_: object) -> None:
        self.hook.remove()


def _traced(
    model: Model, network: Any, batch: Batch, probes: dict[str, Probe]
) -> tuple[Tensor, tuple[Part, ...], dict[str, AttentionMap], dict[str, str]]:
    """The features (1, T, F), the recurrent parts, the attention, and the reasons for figures that are missing."""
    read, written = probes["source"].tokens, probes["target"].tokens
    said = [*written[1:], "<eos>"]
    missing = dict(NO_GATES)
    if isinstance(network, TransformerTranslator):
        decoded, weights = network.trace(batch, probes["source"], probes["target"])
        missing |= TRANSFORMER
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
