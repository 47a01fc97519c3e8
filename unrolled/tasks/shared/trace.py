"""Traces of models that write text: the search, and the loss of each token of the text that is followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.models.encoder import EncoderOutput
from unrolled.models.encoder_layers import LookedAt
from unrolled.search import Beam, BeamResult, Limits, beam_search
from unrolled.see import AttentionMap, Beams, Guesses, ModelTrace, Part, Probe
from unrolled.see.options import TARGET, TRUTH, TraceOption, follows_truth
from unrolled.tasks.shared.side import Side
from unrolled.tasks.shared.writing import prefix_ids
from unrolled.text import Tokenizer

GUESSES = 5  # for each token
MOST_SHOWN = 5  # outputs of a traced search
NO_GATES = {"gates": "A vanilla RNN has no gates."}
TRANSFORMER = dict.fromkeys(
    ("states", "gates", "norms", "flow"),
    "A Transformer has no recurrent states and no gates: look at its attention.",
)


def parts_of(seen: LookedAt, tokens: list[str]) -> tuple[Part, ...]:
    """The recurrent layers of an encoder, for a trace; none of a Transformer."""
    return () if seen.trace is None else (Part("", tokens, seen.trace),)


def attention_of(seen: LookedAt, tokens: list[str]) -> dict[str, AttentionMap]:
    """The self-attention of a Transformer's encoder, for a trace."""
    if seen.attention is None:
        return {}
    steps = len(tokens)
    return {"step → step": AttentionMap(tokens, tokens, seen.attention[..., :steps, :steps])}


def writing_options(what: str) -> tuple[TraceOption, ...]:
    """The options of a trace of a model that writes `what`."""
    return (
        TRUTH,
        TARGET,
        TraceOption("beam", 5, "Hypotheses side by side; 1: greedy.", int),
        TraceOption("prefix", "", f"What the {what} must begin with.", str),
        TraceOption("temperature", 1.0, "Of the guesses: below 1 the likely ones become likelier."),
    )


@dataclass(frozen=True)
class WritingChoices:
    """The options of a trace of writing. `truths` are correct texts; the first is followed."""

    truths: list[str] | None
    target: str | None
    beam: int
    prefix: str
    temperature: float

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise UserError(
                f"temperature={self.temperature:g} is not above 0.", "Use 1 for the model's own distribution."
            )

    @classmethod
    def of(cls, truth: Any = None, **options: Any) -> WritingChoices:
        return cls(None if truth is None else [truth] if isinstance(truth, str) else list(truth), **options)


@dataclass(frozen=True)
class Followed:
    """The search for one input, and the tokens whose losses are traced: of a correct text if known, else the best."""

    network: Any
    side: Side
    choices: WritingChoices
    found: BeamResult
    tokens: list[int]
    follows: str

    @classmethod
    def search(cls, network: Any, memory: EncoderOutput, side: Side, most: int, choices: WritingChoices) -> Followed:
        found = watched(network, memory, side, beam=choices.beam, prefix=choices.prefix, most=most)
        truths = choices.truths
        if follows_truth(truths, choices.target) and truths:
            return cls(network, side, choices, found, side.ids(truths[0]).tolist(), "truth")
        return cls(network, side, choices, found, found.best.tokens, "answer")

    @property
    def losses_of(self) -> list[str]:
        """The token of each loss."""
        return [*self.side.shown(self.tokens), "<eos>"]

    @property
    def read(self) -> list[str]:
        """The token that the decoder reads before each loss."""
        return ["<bos>", *self.side.shown(self.tokens)]

    def trace(
        self,
        task: str,
        features: Tensor,
        batch: Batch,
        parts: tuple[Part, ...],
        probes: dict[str, Probe],
        *,
        aligned: str,
        attention: dict[str, AttentionMap],
        reasons: dict[str, str],
    ) -> ModelTrace:
        """The whole trace; `features` (1, T, F) are the input of the network's `scores`."""
        side, truths = self.side, self.choices.truths
        scores = self.network.scores(features)[0].float()
        answer = side.text(self.found.best.tokens)
        return ModelTrace(
            task,
            answer,
            self.losses_of,
            nn.functional.cross_entropy(scores, batch.targets[0], reduction="none"),
            parts,
            probes,
            top_guesses((scores.detach() / self.choices.temperature).softmax(-1), side.tokenizer),
            aligned=aligned,
            attention=attention,
            beams=Beams.of(self.found, side.tokenizer.token, side.text, side.end),
            reasons=reasons,
            truth=None if truths is None else " / ".join(truths),
            right=None if truths is None else answer in truths,
            follows=self.follows,
        )


@torch.no_grad()
def watched(network: Any, memory: EncoderOutput, target: Side, *, beam: int, prefix: str, most: int) -> BeamResult:
    """The result of a search for a memory of one row, unknown words forbidden, with the whole search tree."""
    unknown, begun = target.tokenizer.vocabulary.unk, prefix_ids(target, prefix)
    (found,) = beam_search(
        network,
        1,
        Limits(
            end=target.end,
            max_tokens=max(most, len(begun) + 1),
            prefixes=[begun],
            forbidden=[target.begin, *([] if unknown is None else [unknown])],
        ),
        start=target.begin,
        beam=Beam(beam, n_best=min(beam, MOST_SHOWN)),
        memory=memory,
        memory_mask=memory.mask,
        tree=True,
    )
    return found


def top_guesses(chances: Tensor, tokenizer: Tokenizer) -> list[Guesses]:
    """The likeliest tokens of each row (T, V)."""
    best = chances.topk(min(GUESSES, chances.shape[-1]), dim=-1)
    rows = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    return [[(tokenizer.token(i), p) for p, i in zip(*row, strict=True)] for row in rows]
