"""Model: the result of `load` and `train`, with its save file."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import torch
from safetensors.torch import save
from torch import nn

from unrolled import __version__
from unrolled.cells.apart import RowEngine, rows_apart
from unrolled.config import Section, changes_of, read_config
from unrolled.data import Batch
from unrolled.errors import UserError
from unrolled.exported import check_there, is_exported
from unrolled.hub import (
    FILE,
    MESSAGE,
    Address,
    CardFacts,
    CardOptions,
    Usage,
    check_repo,
    fetch,
    is_address,
    make_card,
    push,
)
from unrolled.kernels.apart.engine import row_engine_of
from unrolled.model_file import FORMAT, signed
from unrolled.models.weights import unique_weights
from unrolled.see import ModelTrace
from unrolled.see.options import TraceOption
from unrolled.text import Vectors
from unrolled.text.files import check_path
from unrolled.training.checkpoint import write_atomically
from unrolled.training.precision import autocast, pick_precision


class ModelRunner(Protocol):
    """The part of a model that answers requests: see `unrolled.tasks.Runner`."""

    @property
    def reads_files(self) -> bool: ...
    @property
    def reads_bytes(self) -> bool: ...
    @property
    def keeps(self) -> bool: ...
    @property
    def keeps_lines(self) -> bool: ...
    def run(self, request: Any, **options: Any) -> Iterator[str]: ...
    def inputs(self, request: Any) -> Iterator[Any]: ...
    def report(self, scores: Mapping[str, Any]) -> str: ...
    def stream(self, **options: Any) -> Any: ...
    def feed_many(self, pieces: Sequence[tuple[Any, Any]]) -> list[Any]: ...
    def log_prob(self, texts: Sequence[str]) -> list[float]: ...


class ModelTracer(Protocol):
    """The part of a model that makes traces and embeddings: see `unrolled.tasks.Tracer`."""

    @property
    def options(self) -> tuple[TraceOption, ...]: ...
    def trace(self, inputs: Any, **options: Any) -> ModelTrace: ...
    def input(self, request: Any) -> Any: ...
    def example(self, examples: Any, number: int) -> Any: ...
    def embed(self, inputs: Any, pooling: str | None = None) -> Any: ...
    def word_vectors(self) -> Vectors: ...


class ModelDescription(Protocol):
    """Texts about a model: see `unrolled.tasks.contract.Description`."""

    def roles(self, assets: Any) -> Mapping[str, str]: ...
    def remarks(self, model: Model) -> list[str]: ...
    def usage(self, model: Model) -> Usage: ...


class ModelOptions(Protocol):
    """The options of a task: see `unrolled.tasks.TaskOptions`."""

    def of(self, verb: Any) -> Mapping[str, Any]: ...
    def check(self, verb: Any, given: Iterable[str]) -> None: ...


class ModelTask(Protocol):
    """The part of a task that its models use: see `unrolled.tasks.Task`."""

    @property
    def name(self) -> str: ...
    @property
    def file_keys(self) -> tuple[str, ...]: ...
    @property
    def parallel(self) -> bool: ...
    @property
    def options(self) -> ModelOptions: ...
    @property
    def runner(self) -> Callable[[Model], ModelRunner]: ...
    @property
    def tracer(self) -> Callable[[Model], ModelTracer]: ...
    @property
    def description(self) -> ModelDescription: ...
    def read(self, config: Any) -> Any: ...
    def assets_to_json(self, assets: Any) -> Any: ...
    def predict(self, model: Model, inputs: Any, **options: Any) -> Any: ...
    def evaluate_file(self, model: Model, path: Any, **options: Any) -> dict[str, Any]: ...


@dataclass(repr=False)
class Model:
    """A trained network with its task, config, vocabularies and scores.

    The task decides what a model can do; the methods here call it.
    """

    task: ModelTask
    config: Section
    assets: Any  # vocabularies and other data that the task built from the training data
    network: nn.Module
    scores: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)  # the training data: `source`, and `sha256` of its examples

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.4g}" for name, value in self.scores.items())
        return f"Model({self.task.name}, {self.num_parameters:,} parameters, {self.device}; {scores or 'not scored'})"

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def to(self, device: torch.device | str) -> Model:
        self.network.to(device)
        return self

    @contextmanager
    def answering(self, precision: str = "fp32") -> Iterator[None]:
        """A block in which the network answers: nothing is dropped, and there are no gradients.

        Matrix products have a precision: fp32, bf16, or auto, which is bf16 on a GPU that computes it.
        """
        self.network.eval()
        picked = pick_precision(precision, self.device, "precision")
        with torch.no_grad(), autocast(picked, self.device), rows_apart(self._row_engine(picked)):
            yield

    def _row_engine(self, precision: str) -> RowEngine | None:
        """The engine that keeps answers apart; none on a GPU and in bfloat16."""
        return row_engine_of(self.device) if precision == "fp32" else None

    def together(self, most: int) -> int:
        """The number of inputs in a batch, at most `most`; 1 where only that keeps answers apart."""
        return most if self.device.type != "cpu" or row_engine_of(self.device) is not None else 1

    def placed(self, batch: Batch) -> Batch:
        """The batch as the network reads it: tensors on its device."""
        return batch.to(self.device)

    @property
    def runner(self) -> ModelRunner:
        """Answers requests: `model.runner.run(Request(...))` yields the output of `unrolled run`."""
        return self.task.runner(self)

    @property
    def tracer(self) -> ModelTracer:
        """Makes traces and embeddings."""
        return self.task.tracer(self)

    def predict(self, inputs: Any, **options: Any) -> Any:
        """The task's answer to one input, or to a list of them."""
        self.task.options.check("predict", options)
        return self.task.predict(self, inputs, **options)

    def evaluate(
        self, data: Any, *, set: Mapping[str, Any] | Sequence[str] | None = None, **options: Any
    ) -> dict[str, Any]:
        """Scores on a file; `options` are those of the task. `set` is for a file with other columns: see `read_as`."""
        paths = data if isinstance(data, tuple) and len(data) == 2 and self.task.parallel else (data,)
        for path in paths:
            check_path(path, "The evaluation data")
        self.task.options.check("eval", options)
        return self.task.evaluate_file(self.read_as(set), data, **options)

    def read_as(self, set: Mapping[str, Any] | Sequence[str] | None) -> Model:
        """The same model for files with other columns: `set` changes keys such as data.text_column.

        Only keys that control how a file is read can change: {"data.text_column": "body"}, as with `eval --set`.
        """
        overrides, changes = changes_of(set)
        if not overrides and not changes:
            return self
        known = [f"data.{name}" for name in self.task.file_keys]
        for key in [*(override.partition("=")[0].strip() for override in overrides), *changes]:
            if key not in known:
                fix = f"For this file: {', '.join(known)}." if known else "Leave it out."
                raise UserError(f"{key} of a trained model cannot be set: only keys about reading a file can.", fix)
        config = read_config(type(self.config), None, overrides, {**self.config.model_dump(mode="json"), **changes})
        return replace(self, config=config)

    def log_prob(self, texts: Sequence[str]) -> list[float]:
        """The log-probability of each text, for models of text; `search.rescore` uses it."""
        return self.runner.log_prob(texts)

    def embed(self, inputs: Any, pooling: str | None = None) -> Any:
        """A vector for an input, (D,), or for each of a list of them, (N, D): a NumPy array.

        `pooling` makes it from the states of the input's steps: last, mean or max; None: the usual one of the task.
        """
        return self.tracer.embed(inputs) if pooling is None else self.tracer.embed(inputs, pooling)

    def word_vectors(self) -> Vectors:
        """The embeddings of its vocabulary, with neighbours, analogies and export."""
        return self.tracer.word_vectors()

    def stream(self, *, state: bytes | None = None, **options: Any) -> Any:
        """A stream that takes input in pieces; the split does not change the result.

        `state` is what `state()` of a stream of this model with the same options returned: it goes on there.
        """
        self.task.options.check("stream", options)
        stream = self.runner.stream(**options)
        if state is not None:
            stream.resume(state)
        return stream

    def feed_many(self, pieces: Sequence[tuple[Any, Any]]) -> list[Any]:
        """The answer of `stream.feed(piece)` for each (stream, piece): the same bits, with the steps computed together.

        Every stream is one of this model; of each there is one piece.
        """
        if len({id(stream) for stream, _ in pieces}) < len(pieces):
            raise UserError("A stream has several pieces.", "Give each stream one, joined or in the next call.")
        for stream, _ in pieces:
            if getattr(stream, "model", None) is not self:
                raise UserError("A stream is of another model.", "Feed it with that one, or with stream.feed.")
        return self.runner.feed_many(pieces)

    def trace(self, inputs: Any, **options: Any) -> ModelTrace:
        """The model's internals on one input: gates, states, gradients, attention, search."""
        return self.tracer.trace(inputs, **options)

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.network.parameters())

    def save(self, path: str | Path, scores: Mapping[str, float] | None = None) -> None:
        """Write the model file: weights, and everything else as metadata."""
        about = {
            "format": FORMAT,
            "task": self.task.name,
            "config": self.config.model_dump(mode="json"),
            "assets": self.task.assets_to_json(self.assets),
            "scores": dict(self.scores if scores is None else scores),
            "versions": current_versions(),
            **({"data": self.data} if self.data else {}),
        }
        weights = {name: value.detach().cpu().contiguous() for name, value in unique_weights(self.network).items()}
        write_atomically(Path(path), save(weights, {"unrolled": signed(about, weights)}))

    def fingerprint(self) -> str:
        """A digest of everything that decides the answers: task, config, vocabularies and weights."""
        config, assets = self.config.model_dump(mode="json"), self.task.assets_to_json(self.assets)
        about = {"format": FORMAT, "task": self.task.name, "config": config, "assets": assets}
        return hashlib.sha256(signed(about, unique_weights(self.network)).encode()).hexdigest()

    def card(
        self,
        *,
        name: str | None = None,
        licence: str | None = None,
        language: Sequence[str] = (),
        datasets: Sequence[str] = (),
    ) -> str:
        """The model card, README.md of its repository on the hub. What is not given is left out.

        `name` is ORG/NAME on the hub; `licence` the hub's identifier, such as "apache-2.0"; `language` codes such as
        ["de"]; `datasets` names of datasets on the hub.
        """
        options = CardOptions(name, licence, _several(language, "language"), _several(datasets, "datasets"))
        facts = CardFacts(
            task=self.task.name,
            usage=self.task.description.usage(self),
            parameters=self.num_parameters,
            config=self.config,
            scores=self.scores,
            versions=self.versions,
            data=self.data,
        )
        return make_card(facts, options)

    def push_to_hub(
        self,
        repo: str,
        *,
        licence: str | None,
        language: Sequence[str] = (),
        datasets: Sequence[str] = (),
        card: bool = True,
        private: bool = False,
        revision: str | None = None,
        message: str = MESSAGE,
        force: bool = False,
    ) -> str:
        """Upload the model file and its card to ORG/NAME on the hub; returns the address of the commit.

        `licence` must be given; None publishes without one. Another card that is there is an error, unless `force`, or
        `card=False`. The other arguments are those of `card` and the repository's.
        """
        repo = check_repo(repo)
        text = self.card(name=repo, licence=licence, language=language, datasets=datasets) if card else None
        with TemporaryDirectory() as folder:
            file = Path(folder) / FILE
            self.save(file)
            return push(file, repo, text, private=private, revision=revision, message=message, force=force)


def _several(given: Sequence[str], what: str) -> tuple[str, ...]:
    if isinstance(given, str):
        raise UserError(f"{what}={given!r} is one text.", f"Give a list: {what}=[{given!r}].")
    return tuple(given)


def current_versions() -> dict[str, str]:
    return {"unrolled": __version__, "torch": torch.__version__, "python": platform.python_version()}


def find_file(path: str | Path) -> Path:
    """The model file at a path, the best model of a run folder, or the downloaded model of an address hub:ORG/NAME."""
    if is_address(path):
        return fetch(Address.parse(str(path)))
    path = Path(path)
    if path.is_dir():
        for name in ("best.safetensors", "last.safetensors"):
            if (path / name).is_file():
                return path / name
        if (path / "config.toml").is_file():
            raise UserError(
                f"{path} was stopped before its first evaluation: it holds no model yet.",
                f"Resume it: unrolled train --resume {path}",
            )
        if is_exported(path):
            raise UserError(
                f"{path} is an exported model, which runs without torch.",
                f"Use unrolled.runtime.load({str(path)!r}), or `unrolled run {path}`.",
            )
        raise UserError(f"{path} holds no model.", "Give a run folder made by `unrolled train`, or a model file.")
    check_there(path)
    return path
