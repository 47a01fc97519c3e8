"""`caption`: a picture in, words out, with a look at the regions of the picture for each of them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unrolled.config import Section
from unrolled.data import Batch, Buckets, held_out
from unrolled.data.demo.glyphs import GLYPHS, embedded_glyphs
from unrolled.data.readers.media.captions import (
    Captioned,
    fitted_view,
    pictures_or_errors,
    read_captioned,
    read_captions,
    shape_for,
    some_pictures,
)
from unrolled.data.signals.pictures import decode
from unrolled.data.signals.views import Shape, View
from unrolled.errors import UserError, note
from unrolled.metrics.captions import CaptionScores, caption_scores
from unrolled.metrics.translation import bleu_tokenizer
from unrolled.model import Model
from unrolled.models.captioner import captioner
from unrolled.models.picture_encoder import MakeEncoder
from unrolled.nn.vision import shifted
from unrolled.see import ModelTrace
from unrolled.see.figures.caption import attention_maps
from unrolled.see.figures.lengths import check_picture
from unrolled.see.options import TraceOption, read_options
from unrolled.tasks.caption.batches import CaptionAssets, Told, caption_loss, view_batch
from unrolled.tasks.caption.config import CaptionConfig
from unrolled.tasks.caption.options import OPTIONS
from unrolled.tasks.caption.predict import Description, Unread, describe, view_of
from unrolled.tasks.caption.trace import OPTIONS as TRACE_OPTIONS
from unrolled.tasks.caption.trace import trace_caption
from unrolled.tasks.contract import STANDARD_INPUT, Data, Example, Given, Request, Task, nth
from unrolled.tasks.options import TaskOptions
from unrolled.tasks.shared.side import Reading, choose_level, trained_side
from unrolled.tasks.shared.writing import FreeRun, WritingOptions, named, once_drawn, with_guesses, with_targets
from unrolled.training import Batches, Goal, Loss, hash_of
from unrolled.training.consistency import twice

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS_FOR_BLEU = 6  # in a caption, the mean: BLEU of fewer than four is 0 whatever they are
AT_ONCE = 64  # pictures in a batch when there are no gradients
ENOUGH = 2000  # pictures to know how their numbers are spread
SHOWN = 3  # captions shown while a model learns
SHOWN_SCORES = ("bleu1", "bleu4", "chrf", "cider", "words")  # of each search


class Caption(Task):
    """Captions of pictures; `encoder` makes a network of your own that reads them, for pictures of a shape."""

    name: ClassVar[str] = "caption"
    config_class: ClassVar[type[Section]] = CaptionConfig
    inherited: ClassVar[tuple[str, ...]] = ("level", "lowercase", "size")
    options: ClassVar[TaskOptions] = OPTIONS
    trace_options: ClassVar[tuple[TraceOption, ...]] = TRACE_OPTIONS
    reads_files: ClassVar[bool] = True
    file_keys: ClassVar[tuple[str, ...]] = ("image_column", "caption_column")
    parallel: ClassVar[bool] = True
    reads_bytes: ClassVar[bool] = True

    def __init__(self, encoder: MakeEncoder | None = None) -> None:
        self._make, self._shown = encoder, list[str]()

    def goal(self, config: CaptionConfig, assets: CaptionAssets) -> Goal:
        metric = config.train.select
        if metric == "auto":
            sentences = assets.words >= WORDS_FOR_BLEU and assets.target.tokenizer.level != "char"
            metric = "cider" if assets.references >= 2 else "bleu4" if sentences else "chrf"
        return Goal(metric, higher_is_better=metric != "nats_per_token")

    def read(self, config: CaptionConfig) -> Data:
        settings = config.data
        if settings.train is None and settings.images is not None:
            raise UserError(
                f"There are pictures, data.images={settings.images}, and no captions of them.",
                "Give the captions with --train (data.train), or leave --images out to train on the built-in letters.",
            )
        source = str(settings.train or GLYPHS)
        given = _letters(settings.size) if settings.train is None else _read(config, settings.train, settings.images)
        if settings.valid is not None:
            images = settings.valid_images or settings.images
            train, valid = given, _read(config, settings.valid, images, given[0].view.shape)
        else:
            if len(given) < 2:
                raise UserError(f"{source} holds one picture.", "Give more, or validation pictures with data.valid.")
            first, second = held_out([_key(one) for one in given], settings.valid_fraction)
            train, valid = [given[i] for i in first], [given[i] for i in second]
        parts = (_key(one) + b"\0" + "\0".join(one.captions).encode() for one in (*train, *valid))
        return Data(train, valid, source, hash_of(b"%d" % len(train), *parts))

    def make_assets(self, config: CaptionConfig, data: Data, init: CaptionAssets | None = None) -> CaptionAssets:
        texts = [text for example in data.train for text in example.captions]
        if init is not None:
            target = replace(init.target, tokenizer=init.target.tokenizer.extended(texts))
            return replace(init, target=target).measured(data.train)
        settings = config.data
        level: str = settings.level
        if level == "auto":
            level = "char" if choose_level(texts) == "char" else "word"
        reading = Reading(level, settings.min_count, settings.max_size, settings.lowercase)
        side = trained_side(reading, level, texts, "")
        return CaptionAssets(side, data.train[0].view.shape, 0, 0.0, 0.0).measured(data.train)

    def assets_to_json(self, assets: CaptionAssets) -> Any:
        return assets.to_json()

    def assets_from_json(self, stored: Any) -> CaptionAssets:
        return CaptionAssets.from_json(stored)

    def build(self, config: CaptionConfig, assets: CaptionAssets) -> nn.Module:
        return captioner(config.model, assets.shape, len(assets.target.tokenizer), self._make)

    def initialize(self, network: nn.Module, config: CaptionConfig, assets: CaptionAssets, data: Data) -> None:
        """Colours and features are scaled as those of training are spread."""
        every = max(1, len(data.train) // ENOUGH)
        some = view_batch([example.view for example in data.train[::every]])
        read: Any = network
        read.read.fit(some.inputs if assets.shape.sizes else None, some.more.get("vectors"))

    def batches(
        self, config: CaptionConfig, assets: CaptionAssets, examples: list[Captioned], *, training: bool
    ) -> Buckets:
        settings = config.train
        examples = _fitted(examples, assets.shape)  # a model that training starts from has a shape of its own
        told = [Told(one, assets.target.ids(text)) for one in examples for text in one.captions]
        weights = torch.tensor([settings.doubly_stochastic, settings.reinforce, settings.entropy])

        def collate(part: list[Told]) -> Batch:
            batch = view_batch([one.example.view for one in part])
            smoothing = settings.label_smoothing if training else 0.0
            batch = with_targets(batch, assets.target, [one.ids for one in part], smoothing)
            return replace(batch, more={**batch.more, "penalties": weights}) if training else batch

        lengths = [len(one.ids) + 1 for one in told]
        size = settings.batch_size if training else AT_ONCE
        made = twice(collate, settings.consistency) if training else collate
        return Buckets(told, lengths, made, batch_size=size, seed=settings.seed if training else None)

    def loss(self, network: nn.Module, batch: Batch, state: Any) -> Loss:
        return caption_loss(network, batch)

    def prepare(self, network: nn.Module, config: CaptionConfig, batch: Batch, state: Any, done: float) -> Batch:
        """Moves pictures about, and puts the model's own guesses in place of some true tokens."""
        if config.train.shift and batch.inputs.dtype == torch.uint8:
            batch = replace(batch, inputs=shifted(batch.inputs, config.train.shift))
        return with_guesses(network, config.train.teacher_forcing, batch, done)

    @torch.no_grad()
    def evaluate(self, model: Model, batches: Batches) -> dict[str, float]:
        """The loss with the true captions read, and, of some pictures, greedy captions and what running free costs."""
        assert isinstance(batches, Buckets)
        assert isinstance(model.config, CaptionConfig)
        total, count = 0.0, 0
        for index in range(len(batches)):
            loss = self.loss(model.network, batches[index].to(model.device), None)
            total, count = total + float(loss.sum), count + int(loss.count)
        told: list[Any] = list(batches.examples)
        pictures = list({id(one.example): one.example for one in told}.values())
        every = max(1, len(pictures) // model.config.train.valid_free)
        free, self._shown = _free_running(model, pictures[::every])
        return {"nats_per_token": total / count, **free}

    def evaluate_file(self, model: Model, path: str | Path | tuple[str | Path, str | Path]) -> dict[str, Any]:
        """Scores on a file of captions, or on (file, pictures)."""
        return self.evaluate_with(model, path)

    def evaluate_with(
        self, model: Model, path: Any, images: str | Path | None = None, **options: Any
    ) -> dict[str, Any]:
        """Scores of a search with these options, and beside them those of greedy captions."""
        assert isinstance(model.config, CaptionConfig)
        file, place = path if isinstance(path, tuple) else (path, images or model.config.data.images)
        examples = _read(model.config, file, place, model.assets.shape)
        views, asked = [example.view for example in examples], WritingOptions(**options)
        ways = {named(one): one for one in (WritingOptions(beam=1), asked)}
        found = {name: describe(model, views, one) for name, one in ways.items()}
        table = {name: _scores(model, [one.text for one in answers], examples) for name, answers in found.items()}
        search = named(asked)
        return {
            **asdict(table[search]),
            "search": search,
            "pictures": len(examples),
            "captions": sum(len(example.captions) for example in examples),
            "not_ended": sum(not answer.ended for answer in found[search]),
            "searches": {
                name: {**_numbers(scores), "words": _mean_words(found[name])} for name, scores in table.items()
            },
        }

    def report(self, scores: Mapping[str, Any]) -> str:
        """Scores of the search that was asked for, then a table of all."""
        table: Mapping[str, Mapping[str, float]] = scores["searches"]
        width = max(map(len, [*table, "search"]))
        lines = [f"{'search':<{width}}  " + "  ".join(f"{name:>6}" for name in SHOWN_SCORES)]
        lines += [
            f"{name:<{width}}  " + "  ".join(f"{row[one]:6.2f}" for one in SHOWN_SCORES) for name, row in table.items()
        ]
        return f"{super().report(scores)}\n\n" + "\n".join(lines)

    def warnings(self, config: CaptionConfig, batches: Batches) -> list[str]:
        return [
            f"Scores in training are of greedy captions of up to {config.train.valid_free:,} validation pictures. "
            "`unrolled eval` has those beside the scores of a beam."
        ]

    def predict(self, model: Model, inputs: Any, **options: Any) -> Any:
        """A `Description` of a picture (a path, a PIL image, an array), or a list of them. See `WritingOptions`."""
        several = isinstance(inputs, (list, tuple))
        views = [view_of(one, model.assets.shape) for one in (inputs if several else [inputs])]
        answers = describe(model, views, WritingOptions(**options))
        if cut := sum(not answer.ended for answer in answers):
            note(f"{cut} captions had not ended after the most tokens allowed, and were cut.")
        return answers if several else answers[0]

    def run(self, model: Model, request: Request, picture: str | None = None, **options: Any) -> Iterator[str]:
        """A line for each picture; with `picture` the attention to one of them is drawn too."""
        if request.raw is not None:
            if picture is not None:
                raise UserError("Attention is drawn over a file, and standard input is none.", "Give a file.")
            yield from self._run_pipe(model, request, options)
            return
        request = replace(request, texts=None, lines=(), files=_files(request))
        if picture is not None:
            place = check_picture(picture)
            found = list(pictures_or_errors(request.files))
            if len(found) != 1:
                raise UserError(f"A drawing shows one picture, and there are {len(found)}.", "Give one.")
            if isinstance(found[0][1], UserError):
                raise found[0][1]
            options = once_drawn(options)
            self.drawing(model, found[0][1], **options).savefig(place, dpi=150)
        if request.format != "text":
            options = {"attention": model.network.attends, **options}
        yield from super().run(model, request, **options)

    def _run_pipe(self, model: Model, request: Request, options: dict[str, Any]) -> Iterator[str]:
        """The one picture that standard input holds."""
        assert request.raw is not None
        pixels, _ = decode(io.BytesIO(request.raw.read()), "Standard input")
        one = Captioned(fitted_view(View(pixels), model.assets.shape, "Standard input"), (), STANDARD_INPUT)
        if request.format != "text":
            options = {"attention": model.network.attends, **options}
        yield from self.written([(Given(one), self.predict(model, one, **options))], request.format)

    def inputs(self, model: Model, request: Request) -> Iterator[Captioned | Unread]:
        """Every picture of the files that a request names; names in lines and texts are paths, too."""
        for name, found in pictures_or_errors(_files(request)):
            yield _fitted_or_unread(name, found, model.assets.shape)

    def answers(self, model: Model, inputs: Sequence[Any], options: Mapping[str, Any]) -> Sequence[Any]:
        """A `Description` of each picture, or the error of one that could not be read."""
        read = [one for one in inputs if not isinstance(one, Unread)]
        described = iter(self.predict(model, read, **options) if read else ())
        return [one.error if isinstance(one, Unread) else next(described) for one in inputs]

    def record(self, one: Captioned, answer: Description) -> dict[str, Any]:
        return {
            "input": one.name,
            "image": one.name,
            **_told(answer),
            "n_best": [_told(other) for other in (answer, *answer.others)] if answer.others else [],
        }

    def line(self, one: Captioned, answer: Description) -> str:
        """The caption; of several, each on a line with its place and score."""
        if not answer.others:
            return f"{answer.text}\n"
        return "".join(
            f"{rank}\t{other.score:.4f}\t{other.text}\n" for rank, other in enumerate((answer, *answer.others), 1)
        )

    def trace(self, model: Model, inputs: Any, **options: Any) -> ModelTrace:
        """Where each word looked, the search, and every gate and state. Options: see `caption_trace.OPTIONS`."""
        chosen = read_options(self.trace_options, options)
        one = inputs.view if isinstance(inputs, Captioned) else inputs
        if chosen["truth"] is None and isinstance(inputs, Captioned):
            chosen["truth"] = inputs.captions or None
        return trace_caption(model, view_of(one, model.assets.shape), _drawable(one), **chosen)

    def trace_input(self, model: Model, request: Request) -> Any:
        """The path of a picture, as it is: so that it can be drawn."""
        return next(iter(_files(request)), "")

    def example(self, examples: Any, number: int) -> Example:
        found: Captioned = nth(examples, number)
        return Example(found, found.captions)

    def drawing(self, model: Model, inputs: Any, picture: Any = None, **options: Any) -> Figure:
        """Where each word looked, as a figure; `picture` is one to draw it over where `inputs` are features."""
        network: Any = model.network
        if not network.attends:
            raise UserError("This model has no attention to show.", "Train with model.decoder.attention=soft.")
        if network.grid is None:
            raise UserError("The regions of this model form no grid that could be drawn.")
        answer: Description = self.predict(model, inputs, **{**options, "attention": True})
        if answer.attention is None or not answer.tokens:
            raise UserError("There is no caption to show.", "Train the model longer.")
        return attention_maps(
            _drawable(inputs if picture is None else picture), answer.tokens, answer.attention, str(answer)
        )

    @torch.no_grad()
    def embed(self, model: Model, inputs: Any) -> NDArray[np.float32]:
        """The mean of the vectors of a picture's regions."""
        several = isinstance(inputs, (list, tuple))
        views = [view_of(one, model.assets.shape) for one in (inputs if several else [inputs])]
        network: Any = model.network.eval()
        memory: Tensor = network.encode(view_batch(views).to(model.device)).memory
        table: NDArray[np.float32] = memory.float().mean(1).cpu().numpy()
        return table if several else table[0]

    def samples(self, model: Model) -> list[str]:
        """Captions that the last evaluation made."""
        return self._shown

    def statistics(self, config: CaptionConfig, data: Data, assets: CaptionAssets) -> Mapping[str, Any]:
        side = assets.target
        texts = [text for example in data.valid for text in example.captions]
        known = {text for example in data.train for text in example.captions}
        return {
            "train pictures": len(data.train),
            "valid pictures": len(data.valid),
            "a picture": str(assets.shape),
            "captions of a picture": f"{assets.references:.1f}",
            "tokens": f"{side.tokenizer.level}, {len(side.tokenizer):,} known",
            "caption length, longest usual": assets.longest,
            "valid tokens unknown": sum(side.unknowns(text) for text in texts),
            "valid captions also in train": f"{sum(text in known for text in texts)} of {len(texts)}",
        }


def _read(
    config: CaptionConfig, table: str | Path, images: str | Path | None, shape: Shape | None = None
) -> list[Captioned]:
    settings = config.data
    columns = {"image_column": settings.image_column, "caption_column": settings.caption_column}
    return read_captioned(read_captions(table, **columns), images, table, shape=shape, size=settings.size)


def _letters(size: int | None) -> list[Captioned]:
    letters = embedded_glyphs()
    return _fitted(letters, shape_for(letters[0].view, size))


def _fitted(examples: Sequence[Captioned], shape: Shape) -> list[Captioned]:
    return [replace(one, view=fitted_view(one.view, shape, one.place or one.name)) for one in examples]


def _fitted_or_unread(name: str, found: View | UserError, shape: Shape) -> Captioned | Unread:
    if isinstance(found, UserError):
        return Unread(name, found)
    try:
        return Captioned(fitted_view(found, shape, name), (), name)
    except UserError as error:
        return Unread(name, error)


def _key(example: Captioned) -> bytes:
    """The picture itself: one that comes under two names is still one."""
    parts = (example.view.values, example.view.vector)
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts if part is not None)


def _files(request: Request) -> list[str]:
    lines = (line.rstrip("\r\n") for line in request.lines)
    return [*(request.texts or ()), *request.files, *(line for line in lines if line)]


def _free_running(model: Model, pictures: Sequence[Captioned]) -> tuple[dict[str, float], list[str]]:
    """What greedy captions are worth, and a few of them with what they should be, to be shown."""
    assets: CaptionAssets = model.assets
    run = FreeRun(assets.target, [], forbid_unknown=True)  # as `eval --beam 1` writes
    for first in range(0, len(pictures), AT_ONCE):
        part = pictures[first : first + AT_ONCE]
        ids = [assets.target.ids(example.captions[0]) for example in part]
        batch = with_targets(view_batch([example.view for example in part]), assets.target, ids)
        run.add(model.network.eval(), batch.to(model.device), ids, assets.most_tokens)
    outputs = [assets.target.text(tokens) for tokens in run.outputs]
    scores = _numbers(_scores(model, outputs, pictures))
    shown = [
        f"{pictures[i].name}\n  is      {pictures[i].captions[0]}\n  became  {outputs[i]}"
        for i in range(0, len(outputs), max(1, len(outputs) // SHOWN))
    ]
    return {**scores, **run.rates()}, shown[:SHOWN]


def _scores(model: Model, outputs: Sequence[str], examples: Sequence[Captioned]) -> CaptionScores:
    references = [example.captions for example in examples]
    tokenize = bleu_tokenizer([texts[0] for texts in references])
    return caption_scores(outputs, references, tokenize=tokenize, lowercase=model.assets.target.tokenizer.lowercase)


def _numbers(scores: CaptionScores) -> dict[str, float]:
    return {name: value for name, value in asdict(scores).items() if isinstance(value, float)}


def _mean_words(answers: Sequence[Description]) -> float:
    return sum(len(answer.text.split()) for answer in answers) / max(1, len(answers))


def _drawable(given: Any) -> NDArray[np.uint8] | None:
    """The pixels of a picture to draw on, where it has any."""
    from unrolled.data.signals.pictures import pixels_of

    if isinstance(given, (str, Path)):
        given = next(some_pictures([given]))[1]
    if hasattr(given, "convert"):
        return pixels_of(given, "The picture")
    values = given.values if isinstance(given, View) else given
    if not isinstance(values, np.ndarray) or values.dtype != np.uint8:
        return None
    return np.repeat(values[..., None], 3, axis=-1) if values.ndim == 2 else values[..., :3]


def _told(answer: Description) -> dict[str, Any]:
    return {
        "caption": answer.text,
        "score": answer.score,
        "log_prob": answer.log_prob,
        "ended": answer.ended,
        "tokens": answer.tokens,
        "attention": None if answer.attention is None else np.round(answer.attention.astype(float), 4).tolist(),
    }
