"""`generate`: a text in, a model that writes like it out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unrolled.config import Section
from unrolled.data import Batch, Stream, Windows, read_text
from unrolled.errors import UserError, note
from unrolled.model import Model
from unrolled.models import RecurrentLM, language_model, stepping
from unrolled.models.inputs import token_vectors
from unrolled.search import WordList, generate
from unrolled.see import ModelTrace
from unrolled.see.options import TraceOption, read_options
from unrolled.tasks.contract import Data, Request, Task, nth
from unrolled.tasks.generate.config import GenerateConfig, sized
from unrolled.tasks.generate.options import OPTIONS
from unrolled.tasks.generate.predict import (
    GenerationOptions,
    TextStream,
    TextWriter,
    directed,
    direction_of,
    network_of,
    start_token,
)
from unrolled.tasks.generate.read import Text, count, ids_of, read_either, read_texts, tokenizer_for
from unrolled.tasks.generate.scores import log_probs_of
from unrolled.tasks.generate.trace import OPTIONS as TRACE_OPTIONS
from unrolled.tasks.generate.trace import trace_text
from unrolled.tasks.options import TaskOptions
from unrolled.text import Tokenizer, Vectors, tokenizer_from_json
from unrolled.training import (
    Batches,
    Goal,
    Loss,
    cross_entropy,
    own_share,
    with_own_guesses,
)


class Generate(Task):
    """Language models on text of any level."""

    name: ClassVar[str] = "generate"
    config_class: ClassVar[type[Section]] = GenerateConfig
    inherited: ClassVar[tuple[str, ...]] = ("level", "lowercase", "direction")
    options: ClassVar[TaskOptions] = OPTIONS
    trace_options: ClassVar[tuple[TraceOption, ...]] = TRACE_OPTIONS

    def goal(self, config: GenerateConfig, assets: Tokenizer) -> Goal:
        return Goal("nats_per_token")

    def read(self, config: GenerateConfig) -> Data:
        return read_texts(config.data)

    def make_assets(self, config: GenerateConfig, data: Data, init: Tokenizer | None = None) -> Tokenizer:
        return tokenizer_for(config.data, data.train, init)

    def assets_to_json(self, assets: Tokenizer) -> Any:
        return assets.to_json()

    def assets_from_json(self, stored: Any) -> Tokenizer:
        return tokenizer_from_json(stored)

    def build(self, config: GenerateConfig, assets: Tokenizer) -> nn.Module:
        return language_model(sized(config), len(assets), start_token(assets))

    def architecture(self, config: GenerateConfig) -> dict[str, Any]:
        return super().architecture(config) | {"model.context": sized(config).context}

    def batches(self, config: GenerateConfig, assets: Tokenizer, examples: Text, *, training: bool) -> Stream | Windows:
        ids = directed(ids_of(config.data, assets, examples), config.data.direction)
        rows = config.train.batch_size
        if training and len(ids) < 2 * rows:
            raise UserError(
                f"The training text has {len(ids)} tokens, too few for train.batch_size={rows} rows.",
                f"Use more text, or train.batch_size={max(1, len(ids) // 20)}.",
            )
        start, steps = start_token(assets), config.train.k1
        if training and config.model.kind == "transformer":
            return Windows(ids, rows=rows, steps=steps, start=start, seed=config.train.seed)
        seed = config.train.seed if training and config.train.vary_k1 else None
        return Stream(ids, rows=rows, steps=steps, start=start, whole=not training, seed=seed)

    def loss(self, network: nn.Module, batch: Batch, state: Any) -> Loss:
        if isinstance(network, RecurrentLM) and network.training and any(network.penalties):
            read = network.read(batch.inputs, state, batch.lengths, batch.resets)
            loss = cross_entropy(network.scores(read.features), batch, read.state)
            return replace(loss, penalty=network.penalty(read))
        scores, state = network(batch.inputs, state, lengths=batch.lengths, resets=batch.resets)
        return cross_entropy(scores, batch, state)

    def prepare(self, network: nn.Module, config: GenerateConfig, batch: Batch, state: Any, done: float) -> Batch:
        """Puts the model's own guesses in place of some true inputs, as `train.teacher_forcing` says."""
        share = own_share(config.train.teacher_forcing, done)
        if share == 0:
            return batch
        with torch.no_grad():
            scores, _ = network(batch.inputs, state, lengths=batch.lengths, resets=batch.resets)
        return replace(batch, inputs=with_own_guesses(batch.inputs, scores, share))

    def evaluate(self, model: Model, batches: Batches) -> dict[str, float]:
        """Mean loss over a stream, the state carried from batch to batch, every token scored once."""
        total, count, state = 0.0, 0, None
        for index in range(len(batches)):
            loss = self.loss(model.network, batches[index].to(model.device), state)
            total, count, state = total + float(loss.sum), count + int(loss.count), loss.state
        return {"nats_per_token": total / count, "perplexity": math.exp(min(700.0, total / count)), "tokens": count}

    @torch.no_grad()
    def evaluate_file(self, model: Model, path: str | Path) -> dict[str, float]:
        """One stream from the first token to the last: no token lacks its past."""
        assert isinstance(model.config, GenerateConfig)
        here = model.config.data.model_copy(update={"cache": None})  # not where it was trained, maybe elsewhere
        text = read_either(here, path)
        if isinstance(text, str):
            return self.evaluate_text(model, text)
        ids = ids_of(here, model.assets, text)
        return self._evaluate_ids(model, ids, sum(map(len, text.segments())))

    @torch.no_grad()
    def evaluate_text(self, model: Model, text: str) -> dict[str, float]:
        return self._evaluate_ids(model, directed(model.assets.ids(text), direction_of(model)), len(text))

    def _evaluate_ids(self, model: Model, ids: NDArray[np.integer], characters: int) -> dict[str, float]:
        model.network.eval()
        tokenizer: Tokenizer = model.assets
        stream = Stream(ids, rows=1, steps=1000, start=start_token(tokenizer), whole=True)
        scores = self.evaluate(model, stream)
        nats = scores["nats_per_token"] * scores["tokens"]
        scores["bits_per_char"] = nats / math.log(2) / characters
        scores["characters"] = characters
        scores["unknown_tokens"] = count(ids, tokenizer.vocabulary.unk)
        return scores

    def predict(self, model: Model, inputs: str | Sequence[str] = "", **options: Any) -> Any:
        """Continues a prompt, or each of a list of prompts; only what is new is returned.

        Options: see `GenerationOptions`.
        """
        prompts = [inputs] if isinstance(inputs, str) else inputs
        if not isinstance(prompts, (list, tuple)) or not all(isinstance(p, str) for p in prompts):
            raise UserError(f"A prompt must be a text or a list of texts, got {inputs!r}.")
        texts = ["" for _ in prompts]
        for row, piece in self.write(model, prompts, GenerationOptions(**options)):
            texts[row] = piece + texts[row] if direction_of(model) == "backward" else texts[row] + piece
        return texts[0] if isinstance(inputs, str) else texts

    def write(
        self, model: Model, prompts: Sequence[str], options: GenerationOptions, state: Any = None
    ) -> Iterator[tuple[int, str]]:
        """Text as it is written: (which prompt, new piece). A backward model's pieces go before the prompt."""
        model.network.eval()
        tokenizer: Tokenizer = model.assets
        backward = direction_of(model) == "backward"
        ids = [[start_token(tokenizer), *directed(tokenizer.ids(p), direction_of(model)).tolist()] for p in prompts]
        writers = [TextWriter(tokenizer, prompt, options.stop, backward) for prompt in ids]
        unknown = tokenizer.vocabulary.unk
        if backward and options.words is not None:
            raise UserError(
                "A backward model writes words from their end: it cannot keep to a list.",
                "Train with data.direction=forward, or leave out --words.",
            )
        steps = generate(
            stepping(network_of(model), len(ids), options.weights),
            ids,
            max_tokens=options.max_tokens,
            memory=state,
            sampling=options.sampling,
            stop=lambda row, _: writers[row].ended,
            seeds=options.seed,
            forbidden=[unknown] if unknown is not None else [],
            constraint=None if options.words is None else WordList.of(tokenizer, options.words),
        )
        for step in steps:
            for token in step:
                if piece := writers[token.row].feed(token.id):
                    yield token.row, piece
        for row, writer in enumerate(writers):
            if piece := writer.finish():
                yield row, piece

    def run(self, model: Model, request: Request, **options: Any) -> Iterator[str]:
        """One prompt is continued as the text comes; several are written when all are done."""
        chosen = GenerationOptions(**options)
        prompts = list(self.inputs(model, request)) or [""]
        unknown = sum(model.assets.unknowns(text) for text in prompts)
        if unknown:
            note(f"{unknown} tokens of the prompts were never seen in training, and are read as <unk>.")
        if request.format != "text" or len(prompts) > 1 or direction_of(model) == "backward":
            yield from super().run(model, replace(request, texts=prompts, files=(), lines=()), **options)
            return
        pieces = self.write(model, prompts, chosen)
        first = next(pieces, (0, ""))  # a mistake in the options is found before anything is written
        for _, piece in itertools.chain([(0, prompts[0]), first], pieces):
            yield piece
        yield "\n"

    def record(self, one: str, answer: str) -> dict[str, Any]:
        return {"prompt": one, "text": answer}

    def line(self, one: str, answer: str) -> str:
        return f"{one}{answer}\n"

    def log_prob(self, model: Model, texts: Sequence[str]) -> list[float]:
        """log p of each text as a line of its own, its end included."""
        tokenizer: Tokenizer = model.assets
        backward = direction_of(model) == "backward"
        return log_probs_of(network_of(model), tokenizer, texts, start=start_token(tokenizer), backward=backward)

    def word_vectors(self, model: Model) -> Vectors:
        """What the network looks up for each token: words, characters or sub-words, as the level is."""
        return token_vectors(model.assets, network_of(model).embedding.weight)

    def stream(self, model: Model, **options: Any) -> TextStream:
        return TextStream(model)

    @torch.no_grad()
    def samples(self, model: Model) -> list[str]:
        text: str = self.predict(model, "", max_tokens=200, temperature=0.8, seed=0)
        return [text]

    def trace(self, model: Model, inputs: str, **options: Any) -> ModelTrace:
        """Every gate, state and gradient on a text. Options: see `generate_trace.OPTIONS`."""
        chosen = read_options(self.trace_options, options)
        if not isinstance(inputs, str):
            raise UserError(f"The input is {type(inputs).__name__}.", "Expected a text.")
        if chosen["write"]:
            new = self.predict(model, inputs, max_tokens=chosen["write"], seed=chosen["seed"])
            inputs = new + inputs if direction_of(model) == "backward" else inputs + new
        tokenizer: Tokenizer = model.assets
        ids = directed(tokenizer.ids(inputs), direction_of(model)).tolist()
        start = start_token(tokenizer)
        what_if = {name: chosen[name] for name in ("hide", "temperature", "target")}
        return trace_text(network_of(model), tokenizer, ids, start, **what_if)

    def example(self, examples: Any, number: int) -> str:
        """A line of the text that is not empty."""
        if not isinstance(examples, str):
            raise UserError("This text is too large to count its lines.", "Give a text, or --file FILE.")
        line: str = nth([line for line in examples.splitlines() if line.strip()], number)
        return line

    def trace_input(self, model: Model, request: Request) -> str:
        """Texts as they are; of a file, all of it."""
        return "".join(request.texts or ()) + "".join(read_text(file) for file in request.files)

    def stateful(self, config: GenerateConfig) -> bool:
        return config.train.stateful and config.model.kind != "transformer"

    def usual_tokens(self, config: GenerateConfig) -> int | None:
        settings = config.train
        return settings.batch_size * settings.k1 * settings.accumulate if settings.vary_k1 else None

    def window(self, config: GenerateConfig) -> int | None:
        return config.train.k2

    def warnings(self, config: GenerateConfig, batches: Batches) -> list[str]:
        steps, context = config.train.k1, sized(config).context or 0
        if isinstance(batches, Windows):
            if batches.steps >= context:
                return []
            return [
                f"Note: training windows have {batches.steps} tokens and model.context={context}: what is further back "
                f"is not learnt to be used. Use train.k1={context}, or a smaller model.context."
            ]
        assert isinstance(batches, Stream)
        if batches.row_length >= steps:
            return []
        return [
            f"Note: the text makes rows of only {batches.row_length} tokens, fewer than train.k1={steps}. "
            "A smaller train.batch_size makes longer rows and more updates."
        ]

    def statistics(self, config: GenerateConfig, data: Data, assets: Tokenizer) -> dict[str, Any]:
        train, valid = (ids_of(config.data, assets, text) for text in (data.train, data.valid))
        facts = {
            "vocabulary": len(assets),
            "train tokens": len(train),
            "valid tokens": len(valid),
            "valid tokens unknown": count(valid, assets.vocabulary.unk),
        }
        return facts | (_line_facts(data) if isinstance(data.train, str) and isinstance(data.valid, str) else {})


def _line_facts(data: Data) -> dict[str, Any]:
    known, lines = set(data.train.splitlines()), [line for line in data.valid.splitlines() if line.strip()]
    lengths = [len(line) for line in data.train.splitlines()] or [0]
    shared = sum(line in known for line in lines)
    return {
        "line length, mean / longest": f"{sum(lengths) / len(lengths):.0f} / {max(lengths)} characters",
        "valid lines also in train": f"{shared} of {len(lines)}",
    }
