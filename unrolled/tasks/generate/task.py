"""`generate`: a text in, a model that writes like it out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from unrolled.config import Section
from unrolled.data import Batch, ContiguousWindows, ShuffledWindows
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.models import LanguageModel, RecurrentLM, language_model
from unrolled.tasks.contract import Data, Description, Task, Training, mean_loss
from unrolled.tasks.generate.config import GenerateConfig, sized
from unrolled.tasks.generate.describe import GenerateDescription
from unrolled.tasks.generate.options import OPTIONS
from unrolled.tasks.generate.own_outputs import check_own_outputs, with_own_outputs
from unrolled.tasks.generate.predict import directed, predict, start_token
from unrolled.tasks.generate.read import read_texts, tokenizer_for
from unrolled.tasks.generate.run import GenerateRunner
from unrolled.tasks.generate.scores import evaluate_file, loss_scores
from unrolled.tasks.generate.texts import Text, ids_of
from unrolled.tasks.generate.trace import GenerateTracer
from unrolled.tasks.options import TaskOptions
from unrolled.tasks.runner import Runner
from unrolled.tasks.shared.pretrained import load_token_vectors
from unrolled.tasks.tracer import Tracer
from unrolled.text import Tokenizer, tokenizer_from_json
from unrolled.training import Batches, Evaluation, Goal, Loss, Traits
from unrolled.training.loss import scored_cross_entropy

SAMPLE_TOKENS = 200  # of the text that each evaluation shows


class Generate(Task):
    """Language models on text of any level."""

    name: ClassVar[str] = "generate"
    config_class: ClassVar[type[Section]] = GenerateConfig
    options: ClassVar[TaskOptions] = OPTIONS
    inherited: ClassVar[tuple[str, ...]] = ("level", "lowercase", "direction")
    runner: ClassVar[type[Runner]] = GenerateRunner
    tracer: ClassVar[type[Tracer]] = GenerateTracer
    description: ClassVar[Description] = GenerateDescription()

    def traits(self, config: GenerateConfig, assets: Tokenizer) -> Traits:
        settings = config.train
        return Traits(
            Goal("nats_per_token"),
            stateful=settings.stateful and config.model.kind != "transformer",
            window=settings.k2,
            usual_tokens=settings.batch_size * settings.k1 * settings.accumulate if settings.vary_k1 else None,
            samples=True,
            eager=settings.eager_reason,
        )

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

    def initialize(self, network: nn.Module, config: GenerateConfig, assets: Tokenizer, data: Data) -> None:
        """Set pretrained vectors."""
        if config.data.vectors is None:
            return
        assert isinstance(network, LanguageModel)
        width = "hidden_size" if config.model.kind == "transformer" else "embedding_size"
        load_token_vectors(network.embedding, assets, config.data.vectors, "data.vectors", f"model.{width}")
        network.embedding.weight.requires_grad_(config.model.tune_vectors or config.model.tied)

    def architecture(self, config: GenerateConfig) -> dict[str, Any]:
        return super().architecture(config) | {"model.context": sized(config).context}

    def batches(
        self, config: GenerateConfig, assets: Tokenizer, examples: Text, *, training: bool
    ) -> ContiguousWindows | ShuffledWindows:
        if training:
            check_own_outputs(config)
        ids = directed(ids_of(assets, examples, config.data.cache, config.data.cache_workers), config.data.direction)
        rows = config.train.batch_size
        if training and len(ids) < 2 * rows:
            raise UserError(
                f"The training text has {len(ids)} tokens, too few for train.batch_size={rows} rows.",
                f"Use more text, or train.batch_size={max(1, len(ids) // 20)}.",
            )
        start, steps = start_token(assets), config.train.k1
        if training and config.model.kind == "transformer":
            return ShuffledWindows(ids, rows=rows, steps=steps, start=start, seed=config.train.seed)
        seed = config.train.seed if training and config.train.vary_k1 else None
        return ContiguousWindows(ids, rows=rows, steps=steps, start=start, whole=not training, seed=seed)

    def loss(self, network: nn.Module, batch: Batch, state: Any, training: Training | None = None) -> Loss:
        if training is not None:
            batch = with_own_outputs(network, batch, state, training)
        if isinstance(network, RecurrentLM) and network.training and any(network.penalties):
            read = network.read(batch.inputs, state, batch.lengths, batch.resets)
            loss = scored_cross_entropy(network.scores, read.features, batch, read.state)
            return replace(loss, penalty=network.penalty(read))
        assert isinstance(network, LanguageModel)
        features, state = network.features(batch.inputs, state, batch.lengths, batch.resets)
        return scored_cross_entropy(network.scores, features, batch, state)

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Batches) -> Evaluation:
        """Mean loss over a stream, the state carried from batch to batch, every token scored once; and a text."""
        mean, tokens = mean_loss(self, model, batches)
        scores = loss_scores(mean, tokens)
        if not math.isfinite(scores["nats_per_token"]):
            return Evaluation(scores)  # there is no distribution to sample from
        with torch.autocast(model.device.type, enabled=False):
            return Evaluation(scores, [self.predict(model, "", max_tokens=SAMPLE_TOKENS, temperature=0.8, seed=0)])

    def evaluate_file(self, model: Model, path: str | Path, **options: Any) -> dict[str, Any]:
        return evaluate_file(model, path, **options)

    def predict(self, model: Model, inputs: str | Sequence[str] = "", **options: Any) -> Any:
        """The continuation of a prompt, or of each of a list of prompts, without the prompt.

        With a beam it is a `Continuation`: a str with scores, and `others` of an n-best list. Options: see
        `GenerationOptions`.
        """
        return predict(model, inputs, **options)
