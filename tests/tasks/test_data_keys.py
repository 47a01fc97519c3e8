"""Every key of the data and train sections: it changes what is read or computed, or it is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tasks.test_keys import Case, a_case, another, folder
from unrolled import UserError, api
from unrolled.config import apply, keys
from unrolled.config.applies import applies
from unrolled.tasks.contract import Training
from unrolled.training import TrainSettings

__all__ = ["folder"]
pytestmark = pytest.mark.filterwarnings("ignore")

READING = [  # one kind of model for each kind of data
    *("generate, lstm", "classify, words", "classify, characters", "classify, frames", "tag, words"),
    *("translate, attention", "recognize, frames", "caption, soft", "forecast"),
]
NOWHERE = dict.fromkeys(
    ("vectors", "source_vectors", "target_vectors", "images", "valid_images", "train_source", "train_target",
     "valid_source", "valid_target"),
    "nowhere.txt",
)  # fmt: skip
COLUMNS = {"text_column": "1", "label_column": "2", "source_column": "2", "target_column": "1"}
COLUMNS |= {"input_column": "2", "image_column": "2", "caption_column": "1", "time_column": "a"}
VALUES: dict[str, Any] = {
    **NOWHERE, **COLUMNS, "min_count": 45, "label_separator": ",", "valid_fraction": 0.5, "level": "bpe",
    "max_steps": 5, "max_size": 5, "category_columns": ["a"], "feature_columns": [1], "sequence_column": "a",
    "tag_names": ["a", "b"], "max_tokens": 4, "center_bands": True, "height": 16, "sample_rate": 8000,
    "input_columns": ["a"], "target_columns": ["b"], "class_weights": "balanced",
}  # fmt: skip
ELSEWHERE = {  # keys that act in scores, on which weights are trained, or on where things are kept
    *("forecast: data.period", "recognize: data.memory", "caption: data.memory", "recognize: data.too_short"),
    *(
        "generate: data.cache",
        "generate: data.cache_workers",
        "translate: train.valid_free",
        "caption: train.valid_free",
        "translate: train.select",
    ),
    *("forecast: train.tune_linear", "forecast: train.rollout_steps", "classify: train.calibrate"),
}
SHARED: dict[str, Any] = {
    "seed": 1, "precision": "bf16", "epochs": 1, "max_steps": 4, "batch_size": 2, "accumulate": 2, "lr": 0.1,
    "optimizer": "sgd", "weight_decay": 0.5, "weight_noise": 0.5, "warmup_steps": 2, "schedule": "constant",
    "hold": 0.5, "decay_to": 0.5, "clip_norm": 0.01, "clip_value": 0.0001, "average": 0.01, "average_last": 2,
    "average_stalled": 1, "eval_every": 3, "momentum": 0.9, "plateau_factor": 0.1, "plateau_patience": 0, "patience": 1,
}  # fmt: skip
OF_THE_MACHINE = {"device", "graph", "deterministic", "threads", "backend", "timeout", "log"}


def plain(value: Any) -> Any:
    """A batch as plain values."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return {key: plain(one) for key, one in value.items()} if isinstance(value, dict) else value


def read_with(case: Case, config: Any) -> str:
    """Everything that a key of the data section can change: vocabularies, batches of both parts, first weights."""
    torch.manual_seed(0)
    data = case.task.read(config)
    assets = case.task.make_assets(config, data)
    found: list[Any] = [data.fingerprint, case.task.assets_to_json(assets)]
    for examples, training in ((data.train, True), (data.valid, False)):
        batches = case.task.batches(config, assets, examples, training=training)
        found += [len(batches), plain(vars(batches[0]))]
    network = case.task.build(config, assets)
    case.task.initialize(network, config, assets, data)
    found.append([float(p.detach().double().sum()) for p in network.parameters()])
    return json.dumps(found, default=str)


def trained_with(case: Case, config: Any) -> str:
    """Everything that a key of a task's own training can change: the loop's needs, batches, losses."""
    batches = case.task.batches(config, case.assets, case.examples, training=True)
    torch.manual_seed(0)
    network = case.task.build(config, case.assets).train()
    torch.manual_seed(1)
    loss = case.task.loss(network, batches[0], None, Training(config.train, done=0.5, step=10, epoch=2))
    traits = case.task.traits(config, case.assets)
    found = [
        replace(traits, padding=None),
        len(batches),
        plain(vars(batches[0])),
        plain(vars(batches[len(batches) - 1])),
    ]
    return json.dumps([*found, float(loss.sum.detach()), loss.penalty is None], default=str)


def silent(case: Case, paths: list[str], mark: Any) -> list[str]:
    """The keys that do nothing and say nothing."""
    facts = {**case.task.facts(case.config, case.assets), "init": False}
    usual, wrong = mark(case, case.config), []
    for path in paths:
        end = path.rpartition(".")[2]
        value = VALUES[end] if end in VALUES else another(keys(type(case.config))[path], attrgetter(path)(case.config))
        if facts.get(path) == value:
            continue
        try:
            changed = apply(case.config, {path: value})
            effect = mark(case, changed) != usual
        except UserError:
            continue  # it is read, and the value is refused with a reason
        if not effect and applies(changed, path, facts):
            wrong.append(path)
    return wrong


@pytest.mark.parametrize("name", READING)
def test_a_key_of_the_data_does_something_or_is_refused(name: str, folder: Path) -> None:
    case = a_case(name, folder)
    paths = [path for path in keys(type(case.config)) if path.startswith("data.")]
    left = [path for path in paths if path not in ("data.train", "data.valid")]
    assert not silent(case, [path for path in left if f"{case.task.name}: {path}" not in ELSEWHERE], read_with)


@pytest.mark.parametrize("name", [*READING, "generate, transformer", "translate, stepwise", "caption, none"])
def test_a_key_of_its_own_training_does_something_or_is_refused(name: str, folder: Path) -> None:
    case = a_case(name, folder)
    shared = {f"train.{name}" for name in TrainSettings.model_fields}
    paths = [path for path in keys(type(case.config)) if path.startswith("train.") and path not in shared]
    assert not silent(case, [path for path in paths if f"{case.task.name}: {path}" not in ELSEWHERE], trained_with)


@pytest.fixture(scope="module")
def usual_run(folder: Path) -> str:
    return run_with(folder, {}, "usual")


def run_with(folder: Path, changes: dict[str, Any], name: str) -> str:
    """The scores and weights of a short run."""
    keys = {"train.max_steps": 6, "train.eval_every": 2, "train.batch_size": 8, "data.level": "char"}
    keys |= {
        "model.hidden_size": 8,
        "model.embedding_size": 6,
        "train.threads": 1,
        "train.patience": 0,
        "train.warmup_steps": 0,
    }
    model = api.train("classify", train=folder / "classify.tsv", out=folder / name, set={**keys, **changes}, quiet=True)
    rows = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    scores = [{key: one for key, one in row.items() if "second" not in key and "time" not in key} for row in rows]
    return json.dumps([scores, [p.detach().double().sum().item() for p in model.network.parameters()]])


@pytest.mark.parametrize("key", sorted({*TrainSettings.model_fields} - OF_THE_MACHINE))
def test_a_key_of_every_training_changes_a_run_or_is_refused(key: str, usual_run: str, folder: Path) -> None:
    stalled = {"train.lr": 1e-12, "train.eval_every": 1}  # so that no score improves
    bases: dict[str, dict[str, Any]] = {
        "plateau_factor": {**stalled, "train.schedule": "plateau"},
        "plateau_patience": {**stalled, "train.schedule": "plateau"},
        "momentum": {"train.optimizer": "sgd", "train.lr": 1.0},
        "patience": stalled,
    }
    changes = bases.get(key, {})
    usual = run_with(folder, changes, f"usual-{key}") if changes else usual_run
    assert run_with(folder, {**changes, f"train.{key}": SHARED[key]}, f"run-{key}") != usual


@pytest.mark.parametrize(
    ("task", "file", "changes", "message"),
    [
        ("classify", "classify.tsv", {"data.old_labels": "drop"},
         "data.old_labels='drop' does nothing here: it belongs to init=true, and init is false. Leave it out."),
        ("tag", "tag.txt", {"data.tag_names": ["A", "B"]},
         "data.tag_names=['A', 'B'] does not apply. Leave it out: it names tags that are numbers."),
    ],
)  # fmt: skip
def test_keys_of_other_data(task: str, file: str, changes: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(UserError) as error:
        api.train(task, train=folder / file, out=folder / f"refused-{task}", set=changes, quiet=True)
    assert message in str(error.value)
