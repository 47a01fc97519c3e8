"""A language model laid open on a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from unrolled.errors import UserError
from unrolled.models import FeedForwardLM, LanguageModel, RecurrentLM, TransformerLM
from unrolled.see import AttentionMap, Guesses, ModelTrace, Part, Probe, check_memory
from unrolled.see.options import HIDE, TARGET, TraceOption
from unrolled.text import Tokenizer

SHOWN = 5  # guesses for each token
OPTIONS = (
    HIDE,
    replace(TARGET, help="Whose loss is followed back: truth, the tokens of the text, or answer, the likeliest ones."),
    TraceOption("temperature", 1.0, "Of the guesses: below 1 the likely ones become likelier."),
    TraceOption("write", 0, "Tokens that the model writes after the text, which are traced too.", int),
    TraceOption("seed", 0, "Of what it writes.", int),
)


def trace_text(
    network: LanguageModel,
    tokenizer: Tokenizer,
    ids: Sequence[int],
    start: int,
    hide: Sequence[int],
    temperature: float,
    target: str | None = None,
) -> ModelTrace:
    """Every gate, state and gradient while the tokens are read, each predicting the next."""
    if not len(ids):
        raise UserError("There is no text to trace.", "Give at least one token.")
    if temperature <= 0:
        raise UserError(f"temperature={temperature:g} is not above 0.", "Use 1 for the model's own distribution.")
    network.eval()
    check_memory(len(ids), network)
    sequence = torch.tensor([[start, *ids]], device=network.device)
    read = [tokenizer.token(int(i)) for i in sequence[0, :-1]]
    probe = Probe(read, hide)
    parts: tuple[Part, ...] = ()
    attention: dict[str, AttentionMap] = {}
    missing = {
        "attention": "A recurrent language model has no attention.",
        "beams": "A language model draws one token after the other: there is no beam.",
    }
    if isinstance(network, RecurrentLM):
        scores, trace = network.trace(sequence[:, :-1], probe)
        parts = (Part("", read, trace),)
        missing["gates"] = "A vanilla RNN has no gates."
    elif isinstance(network, TransformerLM):
        scores, weights = network.trace(sequence[:, :-1], probe)
        attention = {"text → text": AttentionMap(read, read, torch.stack(weights, dim=1)[0].detach())}
        for kind in ("states", "gates", "norms", "flow"):
            missing[kind] = "A Transformer has no recurrent states and no gates: look at its attention."
    else:
        assert isinstance(network, FeedForwardLM)
        scores = network.trace(sequence[:, :-1], probe)
        for kind in ("states", "gates", "norms", "flow"):
            missing[kind] = "A feed-forward model has no states and no gates."
        missing["attention"] = "A feed-forward model has no attention."
    wanted = scores[0].detach().argmax(-1) if target == "answer" else sequence[0, 1:]
    losses = nn.functional.cross_entropy(scores[0].float(), wanted, reduction="none")
    guesses = top_guesses((scores[0].detach() / temperature).softmax(-1), tokenizer)
    return ModelTrace(
        "generate",
        f"{float(losses.detach().mean()):.3f} nats per token",
        [tokenizer.token(int(i)) for i in wanted],
        losses,
        parts,
        {"input": probe},
        guesses,
        aligned="" if parts else "input",
        attention=attention,
        reasons=missing,
        follows="answer" if target == "answer" else "truth",
    )


def top_guesses(chances: Tensor, tokenizer: Tokenizer) -> list[Guesses]:
    """The likeliest tokens of each row (T, V)."""
    best = chances.topk(min(SHOWN, chances.shape[-1]), dim=-1)
    rows = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    return [[(tokenizer.token(i), p) for p, i in zip(*row, strict=True)] for row in rows]
