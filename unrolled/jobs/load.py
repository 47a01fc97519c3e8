"""A model from its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from unrolled import __version__
from unrolled.errors import UserError
from unrolled.model import Model, find_file
from unrolled.model_file import building, load_weights, read_about
from unrolled.search import NGram, TextScorer
from unrolled.tasks import TASKS, Task
from unrolled.training.devices import pick_device


def load_model(path: str | Path, *, task: Task | None = None, device: str = "cpu", mapped: bool = False) -> Model:
    """A model from its file, or the best of a run folder. No code is ever loaded from the file.

    `mapped`: the weights stay in the file's memory map, which processes share; they must not be changed.
    """
    file = find_file(path)
    about = read_about(file)
    if task is None:
        if about.task not in TASKS:
            raise UserError(
                f"{file} is a model of the task {about.task!r}, which is not built in.",
                "Give it: --task FILE.py:CLASS, or load(path, task=MyTask()).",
            )
        task = TASKS[about.task]()
    elif task.name != about.task:
        raise UserError(f"{file} is a model of {about.task}, not of {task.name}.", "Give one of the same task.")
    try:
        config: Any = task.config_class.model_validate(about.config)
    except ValidationError as error:
        keys = ", ".join(".".join(map(str, one["loc"])) for one in error.errors()[:10])
        raise UserError(
            f"{file} was written by unrolled {about.written_by}, "
            f"whose configs this version, {__version__}, does not read: {keys}.",
            "Use that version, or train the model again.",
        ) from None
    with building(file, config):
        assets = task.assets_from_json(about.assets)
        network = task.build(config, assets)
    load_weights(network, file, about, mapped=mapped)
    network.eval()
    model = Model(task, config, assets, network, about.scores, about.versions, about.data or {})
    return model.to(pick_device(device, "device"))


def text_scorer(path: str | Path, *, device: str = "cpu") -> TextScorer:
    """A model that gives texts their log-probabilities: an n-gram model (.arpa, .arpa.gz), or one of `generate`."""
    if str(path).endswith((".arpa", ".arpa.gz")):
        return NGram.load(path)
    model = load_model(path, device=device)
    model.log_prob([""])  # a model of another task says so
    return model
