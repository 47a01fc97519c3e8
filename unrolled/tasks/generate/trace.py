"""Trace of a language model on a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unrolled.data import read_text
from unrolled.data.batching.ragged import Ragged
from unrolled.errors import UserError
from unrolled.kernels.lengths import real_steps
from unrolled.models import FeedForwardLM, LanguageModel, RecurrentLM, TransformerLM
from unrolled.models.inputs import token_vectors
from unrolled.see import AttentionMap, ModelTrace, Part, Probe, check_memory
from unrolled.see.options import HIDE, TARGET, TraceOption, read_options
from unrolled.tasks.generate.predict import directed, direction_of, network_of, start_token
from unrolled.tasks.runner import Request
from unrolled.tasks.shared.sentence import check_pooling, embedded, pooled
from unrolled.tasks.shared.trace import NO_GATES, TRANSFORMER, top_guesses
from unrolled.tasks.tracer import Tracer, nth
from unrolled.text import Tokenizer, Vectors

OPTIONS = (
    HIDE,
    replace(TARGET, help="Whose loss is followed back: truth, the tokens of the text, or answer, the likeliest ones."),
    TraceOption("temperature", 1.0, "Of the guesses: below 1 the likely ones become likelier."),
    TraceOption("write", 0, "Tokens that the model writes after the text, which are traced too.", int),
    TraceOption("seed", 0, "Of what it writes.", int),
)


class GenerateTracer(Tracer):
    """Traces a text, token by token."""

    options: ClassVar[tuple[TraceOption, ...]] = OPTIONS

    def trace(self, inputs: str, **options: Any) -> ModelTrace:
        """Every gate, state and gradient on a text. Options: see `OPTIONS`."""
        chosen, model = read_options(self.options, options), self.model
        if not isinstance(inputs, str):
            raise UserError(f"The input is {type(inputs).__name__}.", "Expected a text.")
        if chosen["write"]:
            new = model.predict(inputs, max_tokens=chosen["write"], seed=chosen["seed"])
            inputs = new + inputs if direction_of(model) == "backward" else inputs + new
        tokenizer: Tokenizer = model.assets
        ids = directed(tokenizer.ids(inputs), direction_of(model)).tolist()
        what_if = {name: chosen[name] for name in ("hide", "temperature", "target")}
        return trace_text(network_of(model), tokenizer, ids, start_token(tokenizer), **what_if)

    def embed(self, inputs: Any, pooling: str | None = None) -> NDArray[np.float32]:
        """The state after the last token of a text; or the mean or maximum over its tokens."""
        model, how = self.model, check_pooling(pooling, "last")
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        if not all(isinstance(text, str) for text in texts):
            raise UserError(f"The input is {type(inputs).__name__}.", "Expected a text, or a list of texts.")
        network, tokenizer = network_of(model), model.assets
        network.eval()

        def vectors_of(some: Sequence[str]) -> Tensor:
            read = [directed(tokenizer.ids(text), direction_of(model)) for text in some]
            rows = Ragged.of(np.concatenate([[start_token(tokenizer)], ids]) for ids in read)
            lengths = torch.from_numpy(rows.lengths).to(model.device)
            ids = torch.from_numpy(rows.padded(rows.rows)).to(model.device)
            return pooled(network.states(ids, lengths), real_steps(lengths, ids.shape[1]), how)

        table = embedded(texts, vectors_of)
        return table[0] if isinstance(inputs, str) else table

    def input(self, request: Request) -> str:
        """Texts as they are; of a file, all of it."""
        return "".join(request.texts or ()) + "".join(read_text(file) for file in request.files)

    def example(self, examples: Any, number: int) -> str:
        """A line of the text that is not empty."""
        if not isinstance(examples, str):
            raise UserError("This text is too large to count its lines.", "Give a text, or --file FILE.")
        line: str = nth([line for line in examples.splitlines() if line.strip()], number)
        return line

    def word_vectors(self) -> Vectors:
        """The embeddings of the tokens: words, characters or sub-words, by the level."""
        return token_vectors(self.model.assets, network_of(self.model).embedding.weight)


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
        missing |= NO_GATES
    elif isinstance(network, TransformerLM):
        scores, weights = network.trace(sequence[:, :-1], probe)
        attention = {"text → text": AttentionMap(read, read, torch.stack(weights, dim=1)[0].detach())}
        missing |= TRANSFORMER
    else:
        assert isinstance(network, FeedForwardLM)
        scores = network.trace(sequence[:, :-1], probe)
        missing |= dict.fromkeys(TRANSFORMER, "A feed-forward model has no states and no gates.")
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
