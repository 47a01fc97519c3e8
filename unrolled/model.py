"""Model: what `load` and `train` return, and the one file it is kept in."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from unrolled import __version__
from unrolled.config import Section, changes_of, read_config
from unrolled.errors import UserError
from unrolled.model_file import FORMAT, signed
from unrolled.models.weights import unique_weights
from unrolled.see import ModelTrace
from unrolled.text import Vectors
from unrolled.training.checkpoint import write_atomically


@dataclass(repr=False)
class Model:
    """A trained network with all it needs to be used: its task, config and vocabularies, and the scores it reached.

    What it can do depends on its task; the methods here hand over to it.
    """

    task: Any
    config: Section
    assets: Any  # vocabularies and the like: what the task built from the training data
    network: nn.Module
    scores: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.4g}" for name, value in self.scores.items())
        return f"Model({self.task.name}, {self.num_parameters:,} parameters, {self.device}; {scores or 'not scored'})"

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def to(self, device: torch.device | str) -> Model:
        self.network.to(device)
        return self

    def predict(self, inputs: Any, **options: Any) -> Any:
        """The task's answer to one input, or to a list of them."""
        self.task.options.check("predict", options)
        return self.task.predict(self, inputs, **options)

    def evaluate(
        self, data: Any, *, set: Mapping[str, Any] | Sequence[str] | None = None, **options: Any
    ) -> dict[str, Any]:
        """Scores on a file; the options are the task's. `set` is for a file with other columns: see `read_as`."""
        paths = data if isinstance(data, tuple) and len(data) == 2 and self.task.parallel else (data,)
        for path in paths:
            check_path(path, "What to evaluate on")
        self.task.options.check("eval", options)
        scores: dict[str, Any] = self.task.evaluate_with(self.read_as(set), data, **options)
        return scores

    def read_as(self, set: Mapping[str, Any] | Sequence[str] | None) -> Model:
        """The same model for files that are laid out otherwise: `set` changes keys such as data.text_column.

        Only keys that say how a file is read can change: {"data.text_column": "body"}, as with `eval --set`.
        """
        overrides, changes = changes_of(set)
        if not overrides and not changes:
            return self
        known = [f"data.{name}" for name in self.task.file_keys]
        for key in [*(override.partition("=")[0].strip() for override in overrides), *changes]:
            if key not in known:
                fix = f"For this file: {', '.join(known)}." if known else "Leave it out."
                raise UserError(f"{key} of a trained model cannot be set: only how a file is read can.", fix)
        config = read_config(type(self.config), None, overrides, {**self.config.model_dump(mode="json"), **changes})
        return replace(self, config=config)

    def log_prob(self, texts: Sequence[str]) -> list[float]:
        """The log-probability of each text, where the model is one of texts; `search.rescore` asks for it."""
        scores: list[float] = self.task.log_prob(self, texts)
        return scores

    def embed(self, inputs: Any) -> Any:
        """A vector for an input, (D,), or for each of a list of them, (N, D): a NumPy array."""
        return self.task.embed(self, inputs)

    def word_vectors(self) -> Vectors:
        """The vectors of the words it knows: neighbours, analogies, a file of them."""
        vectors: Vectors = self.task.word_vectors(self)
        return vectors

    def stream(self, **options: Any) -> Any:
        """For input in pieces: the split never changes the result."""
        self.task.options.check("stream", options)
        return self.task.stream(self, **options)

    def trace(self, inputs: Any, **options: Any) -> ModelTrace:
        """Everything that happened inside on an input: gates, states, gradients, attention, search."""
        trace: ModelTrace = self.task.trace(self, inputs, **options)
        return trace

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.network.parameters())

    def save(self, path: str | Path, scores: Mapping[str, float] | None = None) -> None:
        """Writes the one file: weights, and in its metadata all the rest."""
        about = {
            "format": FORMAT,
            "task": self.task.name,
            "config": self.config.model_dump(mode="json"),
            "assets": self.task.assets_to_json(self.assets),
            "scores": dict(self.scores if scores is None else scores),
            "versions": current_versions(),
        }
        weights = {name: value.detach().cpu().contiguous() for name, value in unique_weights(self.network).items()}
        write_atomically(Path(path), save(weights, {"unrolled": signed(about, weights)}))


def check_path(given: Any, what: str) -> None:
    """Refuses anything but a path where a file is meant; `what` it is for begins the message."""
    if isinstance(given, (str, PathLike)):
        return
    size = f" of {len(given):,}" if hasattr(given, "__len__") else ""
    raise UserError(
        f"{what} is {type(given).__name__}{size}. Expected the path of a file: data in memory is not read.",
        'Write it to one, for example a .jsonl with a line {"text": …, "label": …} for each example.',
    )


def current_versions() -> dict[str, str]:
    return {"unrolled": __version__, "torch": torch.__version__, "python": platform.python_version()}


def find_file(path: str | Path) -> Path:
    """A model file, or a run folder's best."""
    path = Path(path)
    if path.is_dir():
        for name in ("best.safetensors", "last.safetensors"):
            if (path / name).is_file():
                return path / name
        if (path / "config.toml").is_file():
            raise UserError(
                f"{path} was stopped before its first evaluation: it holds no model yet.",
                f"Go on with: unrolled train --resume {path}",
            )
        raise UserError(f"{path} holds no model.", "Give a run folder made by `unrolled train`, or a model file.")
    if not path.exists():
        raise UserError(f"{path} does not exist.", "Give a run folder made by `unrolled train`, or a model file.")
    return path
