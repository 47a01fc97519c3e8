"""A task of the user's from the command line: trained, resumed, run, scored, described and inspected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_generate import call
from tests.corpus.warm_crew import warm_crew
from unrolled.corpus import job

TASK = """
from typing import Any, ClassVar, Literal

from pydantic import Field

from unrolled.config import Section
from unrolled.tasks import Classify, Option, TaskOptions
from unrolled.tasks.classify.config import ClassifyConfig


class MoodConfig(ClassifyConfig):
    task: Literal["mood"] = Field("mood", description="The task.")


class Mood(Classify):
    name: ClassVar[str] = "mood"
    config_class: ClassVar[type[Section]] = MoodConfig
    options: ClassVar[TaskOptions] = TaskOptions(
        train=(Option("model.hidden_size", "Units of a layer", int, names=("--units",)),),
        run=(Option("bracket", "The text around a label", default="", metavar="TEXT"),),
        eval=(Option("only", "Return this score alone"),),
    )

    def predict(self, model: Any, inputs: Any, bracket: str = "", **options: Any) -> Any:
        answers = super().predict(model, inputs)
        return [f"{bracket}{answer.label}{bracket}" for answer in answers]

    def evaluate_file(self, model: Any, path: Any, only: str | None = None, **options: Any) -> dict[str, Any]:
        scores = super().evaluate_file(model, path)
        return scores if only is None else {only: scores[only]}


class Other:
    pass
"""
RUNNER = """

from unrolled.tasks import Runner


class Plain(Mood):
    runner: ClassVar[type[Runner]] = Runner
"""
SMALL = ["--set", "train.max_steps=2", "--set", "data.level=char"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("own")
    (place / "my_task.py").write_text(TASK + RUNNER)
    rows = "".join(f"{'good' if i % 2 else 'bad'}\ttext {'fine' if i % 2 else 'poor'} {i}\n" for i in range(24))
    (place / "moods.tsv").write_text(rows)
    return place


@pytest.fixture(scope="module")
def task(place: Path) -> str:
    return f"{place / 'my_task.py'}:Plain"


@pytest.fixture(scope="module")
def trained(place: Path, task: str) -> Path:
    words: list[str | Path] = ["--train", place / "moods.tsv", "--units", "6", "--out", place / "run"]
    code, _, said = call("train", "--quiet", task, *words, *SMALL)
    assert code == 0, said
    return place / "run"


def test_its_options_work_in_train_run_and_eval(trained: Path, place: Path, task: str) -> None:
    assert "hidden_size = 6" in (trained / "config.toml").read_text()
    code, out, _ = call("run", trained, "--task", task, "--text", "text fine", "--bracket", "*")
    assert (code, out.strip() in ("*good*", "*bad*")) == (0, True)
    code, out, _ = call("eval", trained, place / "moods.tsv", f"--task={task}", "--only", "accuracy", "--json")
    assert (code, list(json.loads(out))) == (0, ["accuracy"])
    code, out, _ = call("run", "--task", task, "--help")
    assert code == 0
    assert "--bracket" in out
    assert "--bracket" not in call("run", "--help")[1]


def test_two_workers_answer_a_file(trained: Path, place: Path, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "texts.txt").write_text("".join(f"text {number}\n" for number in range(30)))
    monkeypatch.setattr(job, "PART", 8)
    words = ("run", trained, place / "texts.txt", "--task", task, "--bracket", "*")
    code, plain, _ = call(*words)
    assert code == 0
    with warm_crew(monkeypatch):
        code, _, said = call(*words, "--out", place / "answers.txt", "--workers", "2")
    assert code == 0, said
    assert (place / "answers.txt").read_text() == plain


def test_it_goes_on_and_is_described(trained: Path, place: Path, task: str) -> None:
    code, _, said = call("train", "--resume", trained, "--task", task, "--set", "train.max_steps=3", "--quiet")
    assert code == 0, said
    assert json.loads(call("info", trained, "--task", task, "--json")[1])["task"] == "mood"
    code, said, _ = call("inspect", trained, "text fine", "--task", task, "--step", "0")
    assert code == 0
    assert said.startswith("layer ")
    code, _, said = call("new", task, place / "mood.toml")
    assert code == 0
    assert said.endswith(f"Next: unrolled check {place / 'mood.toml'} --task {task}\n")
    words = ("--train", place / "moods.tsv", "--units", "5")
    code, out, _ = call("check", place / "mood.toml", "--task", task, *words)
    assert code == 0
    assert out.startswith("task ")


def test_nothing_is_imported_without_the_flag(trained: Path, place: Path) -> None:
    file = trained / "best.safetensors"
    for words in (("run", trained, "--text", "x"), ("eval", trained, place / "moods.tsv"), ("info", trained)):
        code, _, said = call(*words)
        assert code == 2
        assert said == (
            f"unrolled: {file} is a model of the task 'mood', which is not built in. "
            "Give it: --task FILE.py:CLASS, or load(path, task=MyTask()).\n"
        )
    code, _, said = call("train", "--resume", trained)
    assert code == 2
    assert said.startswith("unrolled: Unknown task 'mood'. ")
    assert said.endswith(" A task of your own: --task FILE.py:CLASS.\n")


def test_mistakes(trained: Path, place: Path, task: str) -> None:
    file = place / "my_task.py"
    named = {
        "mood": "'mood' does not name a task of your own. Expected FILE.py:CLASS: my_task.py:MyTask",
        f"{place}/none.py:Mood": f"{place}/none.py does not exist. Give the Python file of your task.",
        f"{file}:Moot": f"Unknown task of {file} 'Moot'. Did you mean 'Mood'? Choices: Mood, Plain.",
        f"{file}:Other": f"Other of {file} is not a task. Make it a class that inherits from unrolled.tasks.Task.",
    }
    for text, message in named.items():
        assert call("run", trained, "--task", text, "--text", "x") == (2, "", f"unrolled: {message}\n")
    code, _, said = call("run", trained, "--task", task, "--text", "x", "--beam", "3")
    assert (code, said) == (2, "unrolled: --beam is not for a model of mood. It takes --bracket.\n")
    code, _, said = call("train", task, "--images", place)
    assert (code, said) == (2, "unrolled: --images is not for mood. It takes --units.\n")
