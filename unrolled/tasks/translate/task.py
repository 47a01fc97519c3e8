"""`translate`: a sequence in, another one out: sentences, spellings to sounds, any pairs of texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from unrolled.config import Section
from unrolled.data import Batch, Buckets, Pair, held_out, read_pairs, read_parallel
from unrolled.data.demo.pronunciations import PRONUNCIATIONS, embedded_pronunciations
from unrolled.data.readers.pairs import without_empty
from unrolled.data.readers.tables.piped import piped_texts
from unrolled.data.readers.tables.table import Row, read_texts
from unrolled.errors import UserError, note
from unrolled.model import Model
from unrolled.models.translator import translator
from unrolled.see import ModelTrace, attention_figure
from unrolled.see.figures.lengths import check_picture
from unrolled.see.options import TraceOption, read_options
from unrolled.tasks.contract import Data, Example, Given, Request, Task, nth, table_of
from unrolled.tasks.options import TaskOptions
from unrolled.tasks.shared.side import Reading
from unrolled.tasks.shared.writing import WritingOptions, once_drawn, token_loss, with_guesses
from unrolled.tasks.translate.assets import TranslateAssets
from unrolled.tasks.translate.batches import pair_batch, source_batch
from unrolled.tasks.translate.config import SideSettings, TranslateConfig, TranslateData
from unrolled.tasks.translate.options import OPTIONS
from unrolled.tasks.translate.predict import Translation, translate
from unrolled.tasks.translate.scores import exposure, length_table, score_file
from unrolled.tasks.translate.trace import OPTIONS as TRACE_OPTIONS
from unrolled.tasks.translate.trace import trace_translation
from unrolled.training import Batches, Goal, Loss, hash_of
from unrolled.training.consistency import twice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS_FOR_BLEU = 6  # in a target, the mean: BLEU of fewer than four is 0 whatever they are
TOKENS_TO_MATCH = 15  # in a target, the mean: more of them are rarely all right
AT_ONCE = 8000  # target tokens in a batch when there are no gradients


class Translate(Task):
    """Encoder–decoder models on pairs of texts."""

    name: ClassVar[str] = "translate"
    config_class: ClassVar[type[Section]] = TranslateConfig
    inherited: ClassVar[tuple[str, ...]] = ("level", "joint", "lowercase")
    file_keys: ClassVar[tuple[str, ...]] = ("source_column", "target_column")
    keeps: ClassVar[bool] = True
    parallel: ClassVar[bool] = True
    options: ClassVar[TaskOptions] = OPTIONS
    trace_options: ClassVar[tuple[TraceOption, ...]] = TRACE_OPTIONS

    def __init__(self) -> None:
        self._shown: list[str] = []

    def goal(self, config: TranslateConfig, assets: TranslateAssets) -> Goal:
        metric = config.train.select
        if metric == "auto":
            sentences = assets.target.tokenizer.level in ("word", "bpe") and assets.target_words >= WORDS_FOR_BLEU
            metric = "bleu" if sentences else "exact_match" if assets.target_tokens <= TOKENS_TO_MATCH else "chrf"
        return Goal(metric, higher_is_better=metric != "nats_per_token")

    def read(self, config: TranslateConfig) -> Data:
        settings = config.data
        pairs, source = _named_pairs(settings, "train")
        if pairs is None:
            pairs, source = embedded_pronunciations(), PRONUNCIATIONS
        held, _ = _named_pairs(settings, "valid")
        train, empty = without_empty(pairs)
        if not train:
            raise UserError(f"{source} holds no pair with something on both sides.", "Give pairs: source TAB target.")
        if held is not None:
            valid, emptied = without_empty(held)
            empty += emptied
            if not valid:
                raise UserError("The validation data holds no pair with something on both sides.", "Give pairs.")
        else:
            if len(train) < 2:
                raise UserError(f"{source} holds one pair.", "Give more, or validation pairs with data.valid.")
            first, second = held_out([pair.source for pair in train], settings.valid_fraction)
            train, valid = [train[i] for i in first], [train[i] for i in second]
        if empty:
            note(f"Pairs with nothing on one side are left out: {empty:,} of them.")
        parts = (f"{pair.source}\0{pair.target}".encode() for pair in (*train, *valid))
        return Data(train, valid, source, hash_of(b"%d" % len(train), *parts))

    def make_assets(self, config: TranslateConfig, data: Data, init: TranslateAssets | None = None) -> TranslateAssets:
        sources, targets = [pair.source for pair in data.train], [pair.target for pair in data.train]
        settings = config.data
        if init is not None:
            return init.extended(sources, targets, settings.max_source_length)
        source, target = (_reading(settings, side) for side in (settings.source, settings.target))
        return TranslateAssets.train(sources, targets, source, target, settings.joint, settings.max_source_length)

    def assets_to_json(self, assets: TranslateAssets) -> Any:
        return assets.to_json()

    def assets_from_json(self, stored: Any) -> TranslateAssets:
        return TranslateAssets.from_json(stored)

    def build(self, config: TranslateConfig, assets: TranslateAssets) -> nn.Module:
        return translator(config.model, assets, assets.source.end)

    def batches(
        self, config: TranslateConfig, assets: TranslateAssets, examples: list[Pair], *, training: bool
    ) -> Buckets:
        settings = config.train
        encoded = [(assets.source.ids(pair.source), assets.target.ids(pair.target)) for pair in examples]
        if training:
            encoded = _short_enough(encoded, config.data)
        smoothing = settings.label_smoothing if training else 0.0

        def collate(part: list[tuple[NDArray[np.int32], NDArray[np.int32]]]) -> Batch:
            return pair_batch(assets, part, smoothing)

        lengths = [max(len(source), len(target)) + 1 for source, target in encoded]
        return Buckets(
            encoded,
            lengths,
            twice(collate, settings.consistency) if training else collate,
            batch_size=settings.batch_size,
            seed=settings.seed if training else None,
            batch_tokens=settings.batch_tokens if training else AT_ONCE,
        )

    def loss(self, network: nn.Module, batch: Batch, state: Any) -> Loss:
        return token_loss(network, network(batch).features, batch)

    def prepare(self, network: nn.Module, config: TranslateConfig, batch: Batch, state: Any, done: float) -> Batch:
        return with_guesses(network, config.train.teacher_forcing, batch, done)

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Batches) -> dict[str, float]:
        """The loss with the true target read, and, of some pairs, greedy translations and what running free costs."""
        assert isinstance(batches, Buckets)
        assert isinstance(model.config, TranslateConfig)
        total, count = 0.0, 0
        for index in range(len(batches)):
            loss = self.loss(model.network, batches[index].to(model.device), None)
            total, count = total + float(loss.sum), count + int(loss.count)
        every = max(1, len(batches.examples) // model.config.train.valid_free)
        some: list[Any] = [batches.examples[i] for i in range(0, len(batches.examples), every)]
        free, self._shown = exposure(model, some)
        return {"nats_per_token": total / count, **free}

    def evaluate_file(self, model: Model, path: str | Path | tuple[str | Path, str | Path]) -> dict[str, Any]:
        """Scores on a table of pairs, or on two files, (sources, targets). Empty lines count like all others."""
        assert isinstance(model.config, TranslateConfig)
        settings = model.config.data
        if isinstance(path, tuple):
            pairs = read_parallel(*path)
        else:
            pairs = read_pairs(path, source_column=settings.source_column, target_column=settings.target_column)
        return score_file(model, pairs)

    def evaluate_with(
        self, model: Model, path: Any, target: str | Path | None = None, **options: Any
    ) -> dict[str, Any]:
        return self.evaluate_file(model, path if target is None else (path, target))

    def report(self, scores: Mapping[str, Any]) -> str:
        plain = {name: value for name, value in scores.items() if not isinstance(value, Mapping)}
        return f"{table_of(plain)}\n\n{length_table(scores['by_length'])}"

    def predict(self, model: Model, inputs: str | Sequence[str], **options: Any) -> Any:
        """A `Translation` of a text, or a list of them. Options: see `WritingOptions`."""
        texts = [inputs] if isinstance(inputs, str) else inputs
        if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
            raise UserError(f"The input is {type(inputs).__name__}.", "Expected a text or a list of texts.")
        answers = translate(model, texts, WritingOptions(**options))
        if cut := sum(not answer.ended for answer in answers):
            note(f"{cut} translations had not ended after the most tokens allowed, and were cut.")
        return answers[0] if isinstance(inputs, str) else answers

    def run(self, model: Model, request: Request, picture: str | None = None, **options: Any) -> Iterator[str]:
        """A line for each source; with `picture` one source's attention is drawn too."""
        if picture is not None:
            options = once_drawn(options)
            request = self._draw(model, request, picture, options)
        if request.format != "text":
            options = {"attention": True, **options}
        notes = _Notes(model.assets)
        given = notes.read(self.given(model, request))
        yield from self.written(self.answered(model, given, options), request.format)
        notes.say()

    def _draw(self, model: Model, request: Request, picture: str, options: Mapping[str, Any]) -> Request:
        """Draws the attention of the request's only source."""
        place = check_picture(picture)
        texts = list(self.inputs(model, request))
        if len(texts) != 1:
            raise UserError(f"A picture shows one input, and there are {len(texts)}.", "Give one with --text.")
        self._attention(model, texts[0], options).savefig(place, dpi=150)
        return request if request.files else Request(texts=texts, format=request.format)  # lines are read once

    def example(self, examples: Any, number: int) -> Example:
        pair = nth(examples, number)
        return Example(pair.source, pair.target)

    def trace(self, model: Model, inputs: str, **options: Any) -> ModelTrace:
        """The search, the attention, and every gate, state and gradient of the true or best translation.

        Options: see `translate_trace.OPTIONS`.
        """
        chosen = read_options(self.trace_options, options)
        if not isinstance(inputs, str):
            raise UserError(f"The input is {type(inputs).__name__}.", "Expected a text.")
        return trace_translation(model, inputs, **chosen)

    def _attention(self, model: Model, text: str, options: Mapping[str, Any]) -> Figure:
        """Where each token of the translation looked, as `run` translates."""
        if not getattr(model.network, "attends", False):
            raise UserError("This model has no attention to show.", "Train with model.decoder.attention=luong.")
        answer: Translation = self.predict(model, text, **{**options, "attention": True})
        if answer.attention is None or not answer.target_tokens:
            raise UserError("There is no text to show.", "Give a source with at least one token.")
        return attention_figure(answer.source_tokens, answer.target_tokens, answer.attention)

    def piped(self, model: Model, lines: Iterable[str]) -> Iterator[str]:
        """Lines, or the sources of a table. Only a line feed ends a line, so that answers stay beside their sources."""
        assert isinstance(model.config, TranslateConfig)
        return piped_texts(lines, model.config.data.source_column, "source", "target")

    def rows(self, model: Model, file: str, keep: Sequence[str] = ()) -> list[Row]:
        """The sources of a table like those of training, whose targets are not read; else the lines."""
        assert isinstance(model.config, TranslateConfig)
        return read_texts(file, model.config.data.source_column, "source", 1, keep=keep, beside=["target"])

    def record(self, one: str, answer: Translation) -> dict[str, Any]:
        return {
            "source": one,
            "source_tokens": answer.source_tokens,
            **_told(answer),
            "n_best": [_told(other) for other in (answer, *answer.others)] if answer.others else [],
        }

    def line(self, one: str, answer: Translation) -> str:
        """The translation; of several, each on a line with its place and score."""
        if not answer.others:
            return f"{answer.text}\n"
        return "".join(
            f"{rank}\t{other.score:.4f}\t{other.text}\n" for rank, other in enumerate((answer, *answer.others), 1)
        )

    @torch.no_grad()
    def embed(self, model: Model, inputs: Any) -> NDArray[np.float32]:
        """The mean of the encoder's vectors over a source's tokens."""
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        network: Any = model.network.eval()
        vectors = []
        for text in texts:
            encoded = network.encode(source_batch(model.assets, [model.assets.source.ids(text)]).to(model.device))
            vectors.append(encoded.memory[0].float().mean(0).cpu().numpy())
        table: NDArray[np.float32] = np.stack(vectors)
        return table[0] if isinstance(inputs, str) else table

    def samples(self, model: Model) -> list[str]:
        """Translations that the last evaluation made."""
        return self._shown

    def statistics(self, config: TranslateConfig, data: Data, assets: TranslateAssets) -> dict[str, Any]:
        known = {pair.source for pair in data.train}
        facts: dict[str, Any] = {"train pairs": len(data.train), "valid pairs": len(data.valid)}
        for name, side in (("source", assets.source), ("target", assets.target)):
            lengths = [len(side.ids(getattr(pair, name))) for pair in data.train]
            unknown = sum(side.unknowns(getattr(pair, name)) for pair in data.valid)
            facts[f"{name} tokens"] = f"{side.tokenizer.level}, {len(side.tokenizer):,} known"
            facts[f"{name} length, mean / longest"] = f"{np.mean(lengths):.1f} / {max(lengths)}"
            facts[f"valid {name} tokens unknown"] = unknown
        facts["one set of tokens for both"] = "yes" if assets.joint else "no"
        facts["valid sources also in train"] = f"{sum(p.source in known for p in data.valid)} of {len(data.valid)}"
        return facts


class _Notes:
    """What a user should know about the inputs of a run."""

    def __init__(self, assets: TranslateAssets) -> None:
        self.assets, self.unknown, self.long = assets, 0, 0

    def read(self, given: Iterator[Given]) -> Iterator[Given]:
        for one in given:
            self.look(one.input)
            yield one

    def look(self, text: str) -> None:
        self.unknown += self.assets.source.unknowns(text)
        self.long += len(self.assets.source.ids(text)) + 1 > self.assets.longest_source

    def say(self) -> None:
        if self.unknown:
            note(f"Tokens never seen in training are read as <unk>. There are {self.unknown}.")
        if self.long:
            longest = f"longer than any in training ({self.assets.longest_source - 1} tokens)"
            note(f"Sources {longest} may be translated poorly. There are {self.long}.")


def _named_pairs(settings: TranslateData, which: str) -> tuple[list[Pair] | None, str]:
    """The pairs that the config names for training or validation, None where it names none."""
    table, source, target = (getattr(settings, name) for name in (which, f"{which}_source", f"{which}_target"))
    if table is not None and (source or target):
        raise UserError(f"Both data.{which} and data.{which}_source are given.", "Give one table, or two files.")
    if (source is None) != (target is None):
        missing = f"data.{which}_target" if target is None else f"data.{which}_source"
        raise UserError(f"{missing} is missing: sources and targets are two files.", "Give both.")
    if source is not None:
        return read_parallel(source, target), f"{source} → {target}"
    if table is None:
        return None, ""
    columns = {"source_column": settings.source_column, "target_column": settings.target_column}
    return read_pairs(table, **columns), str(table)


def _reading(data: TranslateData, side: SideSettings) -> Reading:
    """What the config says of one side, its own settings before those of both."""
    return Reading(
        side.level or data.level,
        side.min_count or data.min_count,
        side.max_size or data.max_size,
        data.lowercase,
        side.normalize,
    )


def _short_enough(
    encoded: list[tuple[NDArray[np.int32], NDArray[np.int32]]], settings: TranslateData
) -> list[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """Training pairs within the lengths that the config allows."""
    limits = [settings.max_source_length, settings.max_target_length]
    kept = [pair for pair in encoded if all(m is None or len(ids) <= m for ids, m in zip(pair, limits, strict=True))]
    if not kept:
        raise UserError("All training pairs are longer than data.max_source_length or data.max_target_length.")
    if len(kept) < len(encoded):
        keys = ", ".join(
            f"data.max_{side}_length={m}" for side, m in zip(("source", "target"), limits, strict=True) if m
        )
        note(
            f"{len(encoded) - len(kept):,} of {len(encoded):,} training pairs are longer than {keys}, and are left out."
        )
    return kept


def _told(answer: Translation) -> dict[str, Any]:
    return {
        "translation": answer.text,
        "score": answer.score,
        "log_prob": answer.log_prob,
        "ended": answer.ended,
        "target_tokens": answer.target_tokens,
        "attention": None if answer.attention is None else np.round(answer.attention.astype(float), 4).tolist(),
        "alignment": answer.alignment,
    }
