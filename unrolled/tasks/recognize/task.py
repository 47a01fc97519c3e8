"""`recognize`: speech, pictures of lines or frames in, text out, by CTC."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import nn

from unrolled.config import Section
from unrolled.data import Batch, held_out
from unrolled.data.batching.ahead import Ahead
from unrolled.data.batching.store import FeatureStore
from unrolled.data.demo.digit_strings import DIGITS, digit_strings
from unrolled.data.readers.labelled import read_frames
from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.transcripts import Transcribed, read_transcripts
from unrolled.errors import UserError, note
from unrolled.metrics.recognition import recognition_scores
from unrolled.model import Model
from unrolled.models.recognizer import Recognizer, strides_of
from unrolled.nn.ctc import ctc_loss, find_infeasible
from unrolled.search.ctc import best_path
from unrolled.search.ctc.decoded import reading_record, utterance_record
from unrolled.see import ModelTrace
from unrolled.see.figures.lengths import check_picture
from unrolled.see.options import TraceOption, read_options
from unrolled.tasks.contract import STANDARD_INPUT, Data, Example, Given, Request, Task, nth
from unrolled.tasks.options import TaskOptions
from unrolled.tasks.recognize.batches import ExampleBatches
from unrolled.tasks.recognize.config import RecognizeConfig
from unrolled.tasks.recognize.features import InputReader, is_sound
from unrolled.tasks.recognize.labels import Labels, RecognizeAssets
from unrolled.tasks.recognize.live import recognize_live
from unrolled.tasks.recognize.options import OPTIONS
from unrolled.tasks.recognize.predict import moments, reading_figure, recognize, whole
from unrolled.tasks.recognize.scores import score_file, search_table
from unrolled.tasks.recognize.search import RecognitionOptions, Recognized, Search
from unrolled.tasks.recognize.stream import RecognizeStream
from unrolled.tasks.recognize.trace import OPTIONS as TRACE_OPTIONS
from unrolled.tasks.recognize.trace import trace_recognizer
from unrolled.training import Batches, Goal, Loss, consistency, hash_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 3  # readings shown while a model learns
SCALED_BY = 500  # training examples whose features give the scale


class Recognize(Task):
    """Long signals, short labels."""

    name: ClassVar[str] = "recognize"
    config_class: ClassVar[type[Section]] = RecognizeConfig
    unit: ClassVar[str] = "labels"
    at_once: ClassVar[int] = 16  # files: the first answers come soon
    options: ClassVar[TaskOptions] = OPTIONS
    trace_options: ClassVar[tuple[TraceOption, ...]] = TRACE_OPTIONS
    reads_files: ClassVar[bool] = True
    file_keys: ClassVar[tuple[str, ...]] = ("input_column", "text_column")
    reads_bytes: ClassVar[bool] = True
    inherited: ClassVar[tuple[str, ...]] = (
        "kind", "level", "lowercase", "sample_rate", "bands", "deltas", "center_bands", "height", "straighten",
    )  # fmt: skip

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._stores: dict[int, tuple[Sequence[Transcribed], FeatureStore]] = {}

    def goal(self, config: RecognizeConfig, assets: RecognizeAssets) -> Goal:
        return Goal("cer")

    def read(self, config: RecognizeConfig) -> Data:
        settings = config.data
        train = _embedded("train") if settings.train is None else self._read_file(config, settings.train)
        if settings.valid is not None:
            valid = self._read_file(config, settings.valid)
        elif settings.train is None:
            valid = _embedded("valid")
        else:
            if len(train) < 2:
                raise UserError(f"{settings.train} holds one example.", "Give more, or a file with data.valid.")
            first, second = held_out([_key(example) for example in train], settings.valid_fraction)
            train, valid = [train[i] for i in first], [train[i] for i in second]
        parts = (_key(example) + b"\0" + example.text.encode() for example in (*train, *valid))
        contents = hash_of(*(e.input.digest() for e in (*train, *valid) if isinstance(e.input, Medium)))
        return Data(train, valid, settings.train or DIGITS, hash_of(b"%d" % len(train), *parts), contents)

    def _read_file(self, config: RecognizeConfig, path: str | Path) -> list[Transcribed]:
        settings = config.data
        return read_transcripts(path, input_column=settings.input_column, text_column=settings.text_column)

    def make_assets(self, config: RecognizeConfig, data: Data, init: RecognizeAssets | None = None) -> RecognizeAssets:
        texts = [example.text for example in data.train]
        if init is not None:
            return RecognizeAssets(init.reader, init.labels.extended(texts))
        labels = Labels.train(texts, config.data.level, config.data.lowercase)
        return RecognizeAssets(InputReader.train(config.data, data.train, not config.model.bidirectional), labels)

    def assets_to_json(self, assets: RecognizeAssets) -> Any:
        return assets.to_json()

    def assets_from_json(self, stored: Any) -> RecognizeAssets:
        return RecognizeAssets.from_json(stored)

    def build(self, config: RecognizeConfig, assets: RecognizeAssets) -> nn.Module:
        return Recognizer(config.model, assets.reader.kind, assets.reader.shape, len(assets.labels))

    def initialize(self, network: nn.Module, config: RecognizeConfig, assets: RecognizeAssets, data: Data) -> None:
        """Frames and spectrograms are scaled to mean 0 and deviation 1."""
        assert isinstance(network, Recognizer)
        if assets.reader.kind != "line":
            store = self._store(config, assets, data.train)
            usual = np.flatnonzero(store.lengths <= config.data.max_steps).tolist() or range(len(store))
            some = usual[:: max(1, len(usual) // SCALED_BY)]
            frames = np.concatenate([assets.reader.features(store[i]) for i in some])
            network.input.fit(frames.mean(axis=0, dtype=np.float64), frames.std(axis=0, dtype=np.float64))

    def _store(self, config: RecognizeConfig, assets: RecognizeAssets, examples: Sequence[Transcribed]) -> FeatureStore:
        """What is kept of the examples; made once for each list of them."""
        found = self._stores.get(id(examples))
        if found is None or found[0] is not examples:
            limit = int(config.data.memory * 2**30)
            reader, longest = assets.reader, config.data.max_steps
            store = FeatureStore(
                examples,
                lambda e: reader.base(reader.given(e.input, e.place), e.place),
                limit,
                longest,
                medium=lambda e: e.input if isinstance(e.input, Medium) else None,
            )
            found = self._stores[id(examples)] = (examples, store)
        return found[1]

    def batches(
        self, config: RecognizeConfig, assets: RecognizeAssets, examples: list[Transcribed], *, training: bool
    ) -> Any:
        store = self._store(config, assets, examples)
        targets = [assets.labels.ids(example.text) for example in examples]
        numbers = _not_too_long(config, examples, store, "training" if training else "validation")
        if not training:
            return ExampleBatches(assets.reader, store, numbers, targets, None)
        numbers = _long_enough(config, assets, examples, store, targets, numbers)
        return Ahead(ExampleBatches(assets.reader, store, numbers, targets, config.train))

    def loss(self, network: nn.Module, batch: Batch, state: Any) -> Loss:
        """−log P of each transcript; one that a changed example has become too short for counts nothing."""
        log_probs, lengths = network(batch)
        total = ctc_loss(
            log_probs, batch.targets, lengths, batch.more["target_lengths"], reduction="sum", zero_infinity=True
        )
        loss = Loss(total, batch.more["target_lengths"].sum().clamp(min=1).cpu())
        if not consistency.asked(batch):
            return loss
        real = torch.arange(log_probs.shape[1], device=log_probs.device) < lengths[:, None]
        return consistency.agreeing(loss, batch, log_probs[real])

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Batches) -> dict[str, float]:
        assert isinstance(batches, ExampleBatches)
        labels: Labels = model.assets.labels
        total, count = 0.0, 0
        outputs = [""] * len(batches.examples)
        for index in range(len(batches)):
            batch = batches[index].to(model.device)
            log_probs, lengths = (one.cpu() for one in model.network(batch))
            counts = batch.more["target_lengths"]
            losses = ctc_loss(log_probs, batch.targets, lengths, counts, reduction="none", zero_infinity=True)
            total, count = total + float(losses.sum()), count + int(counts.sum())
            for row, number in enumerate(batches.rows(index)):
                outputs[number] = labels.text(best_path(log_probs[row, : int(lengths[row])]).labels)
        references = [labels.reference(batches.store.inputs[number].text) for number in batches.numbers]
        scores = recognition_scores(outputs, references, symbols=labels.level == "symbols")
        step = max(1, len(outputs) // SHOWN)
        self._shown = [f"is      {references[i]}\nbecame  {outputs[i]}" for i in range(0, len(outputs), step)][:SHOWN]
        return {**vars(scores), "nats_per_label": total / max(1, count)}

    def evaluate_file(self, model: Model, path: str | Path) -> dict[str, Any]:
        return self.evaluate_with(model, path)

    def evaluate_with(self, model: Model, path: str | Path, **options: Any) -> dict[str, Any]:
        """Error rates of the best path and, as far as the options ask for them, of the other searches."""
        assert isinstance(model.config, RecognizeConfig)
        tune = bool(options.pop("tune", False))
        return score_file(model, self._read_file(model.config, path), RecognitionOptions(**options), tune)

    def report(self, scores: Mapping[str, Any]) -> str:
        return search_table(scores)

    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """A `Recognized` for one input, a list of them for several: paths, or arrays. See `RecognitionOptions`.

        Samples of a recording are (samples, rate), or arrays with the option `rate`.
        """
        alone = not isinstance(inputs, (list, tuple)) or is_sound(inputs)
        several, reader = [inputs] if alone else list(inputs), model.assets.reader
        chosen = RecognitionOptions(**options)
        if not alone and several and all(isinstance(one, Real) for one in several):
            raise UserError(
                f"The input is a {type(inputs).__name__} of numbers.",
                f"Make a NumPy array of it: np.array(…). Expected {reader.expects}.",
            )
        if chosen.rate is not None and several and not any(reader.needs_rate(one) for one in several):
            raise UserError(
                f"rate={chosen.rate:g} is for arrays of samples and raw files, and there are none.", "Leave it out."
            )
        given = [
            reader.given(one, "The input" if alone else f"Input {i}", chosen.rate) for i, one in enumerate(several, 1)
        ]
        (answers,) = recognize(model, given, {"": Search(model.assets.labels, chosen)}, chosen.window).values()
        return answers[0] if alone else answers

    def run(self, model: Model, request: Request, picture: str | None = None, **options: Any) -> Iterator[str]:
        """A line for each input; with `picture` the labels of the only one are drawn over time."""
        if request.raw is not None:
            if picture is not None:
                raise UserError("A picture is drawn of a file, and standard input is none.", "Give a file.")
            yield from self._run_pipe(model, request, options)
            return
        if picture is not None:
            place, inputs = check_picture(picture), list(self.inputs(model, request))
            if len(inputs) != 1:
                raise UserError(f"A picture shows one input, and there are {len(inputs)}.", "Give one file.")
            self.drawing(model, inputs[0], **options).savefig(place, dpi=120)
        yield from super().run(model, request, **options)

    def _run_pipe(self, model: Model, request: Request, options: Mapping[str, Any]) -> Iterator[str]:
        """The one input that standard input holds: sound as it comes, a picture or frames whole."""
        reader: InputReader = model.assets.reader
        assert request.raw is not None
        answer: Any = None
        if reader.kind == "audio":
            for told in recognize_live(model, request.raw, RecognitionOptions(**options)):
                if not isinstance(told, str):
                    answer = told
                elif request.format == "text":
                    yield told
            if request.format == "text" and not answer.others:
                yield "\n"
                return
            yield "" if request.format != "text" else "\n"
        else:
            answer = self.predict(model, reader.from_bytes(request.raw.read()), **options)
        yield from self.written([(Given(STANDARD_INPUT), answer)], request.format)

    def answers(self, model: Model, inputs: Sequence[Any], options: Mapping[str, Any]) -> Sequence[Any]:
        """An answer for each input, or its error."""
        try:
            answers: Sequence[Any] = self.predict(model, inputs, **options)
            return answers
        except UserError as error:
            if len(inputs) == 1:
                return [error]
        return [answer for one in inputs for answer in self.answers(model, [one], options)]

    def drawing(self, model: Model, inputs: Any, **options: Any) -> Figure:
        """Labels over time under what was heard or seen, as a figure: `savefig` writes PNG, SVG or PDF."""
        answer = self.predict(model, inputs, **options)
        return reading_figure(model, model.assets.reader.given(inputs, rate=options.get("rate")), answer)

    def trace(self, model: Model, inputs: Any, rate: float | None = None, **options: Any) -> ModelTrace:
        """Posteriors over time, and every gate and state; `rate` is that of samples.

        Options: see `recognize_trace.OPTIONS`.
        """
        chosen = read_options(self.trace_options, options)
        assets: RecognizeAssets = model.assets
        assert isinstance(model.network, Recognizer)
        window = whole(assets.reader, assets.reader.given(inputs, rate=rate))
        moment = moments(model, len(window.features), scale=window.scale)
        kind, unit = assets.reader.kind, assets.reader.unit
        return trace_recognizer(model.network, assets.labels, window.features, moment, kind, unit, **chosen)

    def example(self, examples: Any, number: int) -> Example:
        found: Transcribed = nth(examples, number)
        return Example(found.input, found.text)

    def inputs(self, model: Model, request: Request) -> Iterator[Any]:
        """Files, or the names of files on the lines of standard input."""
        yield from request.texts or ()
        for file in request.files:
            if Path(file).suffix == ".npz":
                yield from read_frames(file)
            else:
                yield file
        for line in request.lines:
            if name := line.strip():
                yield name

    def record(self, one: Any, answer: Recognized) -> dict[str, Any]:
        """The same keys as those of `unrolled decode`: see docs/decode.md."""
        return utterance_record(
            one if isinstance(one, str) else f"{len(one)} frames",
            answer.unit,
            [
                reading_record(
                    found.text, found.score, found.complete, found.words, [label[:3] for label in found.labels]
                )
                for found in (answer, *answer.others)
            ],
        )

    def line(self, one: Any, answer: Recognized) -> str:
        """The text; of several readings, each on a line with its place and score."""
        if not answer.others:
            return f"{answer.text}\n"
        ranked = enumerate((answer, *answer.others), 1)
        return "".join(f"{rank}\t{other.score:.4f}\t{other.text}\n" for rank, other in ranked)

    def stream(self, model: Model, **options: Any) -> RecognizeStream:
        """For samples or frames as they come: `feed` gives the text so far, `finish` the answer."""
        return RecognizeStream(model, RecognitionOptions(**options))

    def samples(self, model: Model) -> list[str]:
        """Readings that the last evaluation made."""
        return self._shown

    def statistics(self, config: RecognizeConfig, data: Data, assets: RecognizeAssets) -> dict[str, Any]:
        lengths = self._store(config, assets, data.train).lengths
        known = {_key(example) for example in data.train}
        unknown = [name for example in data.valid for name in assets.labels.unknown(example.text)]
        return {
            "train examples": len(data.train),
            "valid examples": len(data.valid),
            "reads": str(assets.reader),
            "labels": f"{len(assets.labels) - 1} and the blank: {' '.join(assets.labels.names[1:30])}",
            "steps, mean / longest": f"{lengths.mean():.1f} / {lengths.max()}",
            "features in memory": f"{self._store(config, assets, data.train).kept} of {len(data.train)}",
            "valid labels unknown": f"{len(unknown)} {' '.join(sorted(set(unknown))[:20])}".strip(),
            "valid inputs also in train": f"{sum(_key(e) in known for e in data.valid)} of {len(data.valid)}",
        }


def _embedded(part: str) -> list[Transcribed]:
    return [Transcribed(image, text, f"{part} line {i}") for i, (image, text) in enumerate(digit_strings(part), 1)]


def _key(example: Transcribed) -> bytes:
    one = example.input
    return f"{one.path.name}/{one.member}/{one.size()}".encode() if isinstance(one, Medium) else one.tobytes()


def _not_too_long(
    config: RecognizeConfig, examples: Sequence[Transcribed], store: FeatureStore, what: str
) -> list[int]:
    """The examples that a batch can hold whole."""
    limit = config.data.max_steps
    long = np.flatnonzero(store.lengths > limit).tolist()
    if long:
        note(
            f"{len(long):,} {what} examples have more than {limit:,} steps and are left out, the first at "
            f"{examples[long[0]].place}. Cut them, or raise data.max_steps."
        )
    kept: list[int] = np.flatnonzero(store.lengths <= limit).tolist()
    if not kept:
        raise UserError(f"No {what} example is left.", "Cut them into shorter ones, or raise data.max_steps.")
    return kept


def _long_enough(
    config: RecognizeConfig,
    assets: RecognizeAssets,
    examples: Sequence[Transcribed],
    store: FeatureStore,
    targets: Sequence[Sequence[int]],
    numbers: Sequence[int],
) -> list[int]:
    """Those of the examples whose transcripts fit into the steps that come out of the network."""
    factor = math.prod(strides_of(config.model, assets.reader.kind))
    short = {one.sample: one for one in find_infeasible(targets, [-(-int(n) // factor) for n in store.lengths])}
    if short:
        first = next(iter(short.values()))
        note(
            f"{len(short):,} training examples are too short for their transcripts and are left out, the first at "
            f"{examples[first.sample].place}: {first.frames} steps of the network, {first.needed} needed."
        )
    kept = [number for number in numbers if number not in short]
    if not kept:
        raise UserError("No training example is left.", "Check that every transcript belongs to its file.")
    return kept
