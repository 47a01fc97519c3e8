"""The task of docs/tasks.md, as it stands there: trained, resumed, loaded, used and inspected."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

import unrolled
from tests import warm
from unrolled import Model, UserError, api
from unrolled.see.figures.kinds import save_all
from unrolled.tasks import Request, Task
from unrolled.tasks.own import load_task

DOCUMENT = Path(__file__).parents[2] / "docs" / "tasks.md"
SETTINGS = {"train.max_steps": 120, "train.eval_every": 60, "train.threads": 1, "train.lr": 0.02}


def code() -> str:
    (block,) = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    return str(block)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("own")
    (place / "my_task.py").write_text(code())
    lines = ("".join(bits) for size in range(1, 8) for bits in itertools.product("01", repeat=size))
    (place / "bits.txt").write_text("\n".join(lines) + "\n")
    return place


@pytest.fixture(scope="module")
def task(folder: Path) -> Task:
    return load_task(f"{folder / 'my_task.py'}:Parity")


@pytest.fixture(scope="module")
def model(folder: Path, task: Task) -> Model:
    return unrolled.train(task, train=folder / "bits.txt", out=folder / "run", set=SETTINGS, quiet=True)


def test_the_document_shows_a_task_in_under_80_lines() -> None:
    assert len(code().splitlines()) < 80


def test_it_learns_and_answers(model: Model, folder: Path) -> None:
    assert model.predict("1101") == "1001"
    assert model.predict(["1", "0110100"]) == ["1", "0100111"]
    assert model.evaluate(folder / "bits.txt")["loss"] < 0.1
    assert model.scores["loss"] == pytest.approx(model.evaluate(folder / "bits.txt")["loss"], rel=1e-4)


def test_it_reads_texts_in_memory(folder: Path, task: Task) -> None:
    settings, lines = SETTINGS | {"train.max_steps": 4}, (folder / "bits.txt").read_text().splitlines()
    run, data = folder / "memory", iter(lines)
    of_memory = unrolled.train(task, train=data, out=run, set=settings, quiet=True)
    of_file = unrolled.train(task, train=folder / "bits.txt", out=folder / "file", set=settings, quiet=True)
    assert of_memory.evaluate(lines) == of_file.evaluate(folder / "bits.txt")
    unrolled.resume(run, train=lines, task=task, set={"train.max_steps": 6}, quiet=True)
    with pytest.raises(UserError, match="The data is not what"):
        unrolled.resume(run, train=lines[1:], task=task, quiet=True)


def test_a_file_holds_no_code_and_loads_with_the_task(model: Model, folder: Path, task: Task) -> None:
    loaded = unrolled.load(folder / "run", task=task)
    assert loaded.predict("10011") == model.predict("10011")
    model.save(folder / "copy.safetensors")
    assert unrolled.load(folder / "copy.safetensors", task=task).predict("10011") == model.predict("10011")
    with pytest.raises(UserError, match=r"is a model of the task 'parity', which is not built in. Give it: --task"):
        unrolled.load(folder / "run")


def test_a_run_goes_on_as_if_never_stopped(model: Model, folder: Path, task: Task) -> None:
    half = {**SETTINGS, "train.max_steps": 60, "train.schedule": "constant"}
    whole = {**half, "train.max_steps": 120}
    data = folder / "bits.txt"
    unrolled.train(task, train=data, out=folder / "half", set=half, quiet=True)
    resumed = api.resume(folder / "half", set={"train.max_steps": 120}, task=task, quiet=True)
    straight = unrolled.train(task, train=data, out=folder / "whole", set=whole, quiet=True)
    for a, b in zip(resumed.network.parameters(), straight.network.parameters(), strict=True):
        assert a.equal(b)


def test_it_runs_on_texts_and_files(model: Model, folder: Path) -> None:
    (folder / "in.txt").write_text("11\n101\n")
    assert "".join(model.runner.run(Request(texts=["1101"]))) == "1001\n"
    lines = "".join(model.runner.run(Request(files=[str(folder / "in.txt")], format="jsonl"))).splitlines()
    assert [json.loads(line) for line in lines] == [{"input": "11", "answer": "10"}, {"input": "101", "answer": "110"}]
    with pytest.raises(UserError, match=r"'12' is not a line of 0 and 1. Expected bits: 01101"):
        list(model.runner.run(Request(texts=["12"])))
    with pytest.raises(UserError, match="A model of parity needs its whole input: it does not stream"):
        model.stream()


def test_it_can_be_inspected(model: Model, folder: Path) -> None:
    trace = model.trace("1101")
    assert trace.answer == "1001"
    assert {"losses", "states", "gates", "gradients"} <= set(trace.kinds)
    assert save_all(trace, folder / "figures", only=["gates"])
    assert model.tracer.example(model.task.read(model.config).valid, 2) == "00"


def test_a_dry_run_takes_it(folder: Path, task: Task) -> None:
    facts = api.check(task, extra={"data.train": str(folder / "bits.txt")}).facts
    assert facts["task"] == "parity"


def test_a_name_that_is_not_a_task_is_an_error(folder: Path) -> None:
    file = folder / "wrong.py"
    file.write_text("from unrolled.tasks import Task\nclass Half(Task):\n    name = 'half'\nx = 1\n")
    for text, message in {
        "task:Parity": "'task:Parity' does not name a task of your own. Expected FILE.py:CLASS: my_task.py:MyTask",
        "nowhere.py:Parity": "nowhere.py does not exist. Give the Python file of your task.",
        f"{file}:x": f"x of {file} is not a task. Make it a class that inherits from unrolled.tasks.Task.",
        f"{file}:Half": f"The task Half of {file} lacks batches, build, loss, predict, read. Write these methods.",
    }.items():
        with pytest.raises(UserError) as caught:
            load_task(text)
        assert str(caught.value) == message


def command(folder: Path, *arguments: str) -> str:
    return warm.unrolled(*arguments, folder=folder, check=True).stdout


def test_the_command_line_takes_it(model: Model, folder: Path) -> None:
    own = ("--task", "my_task.py:Parity")
    sets = [f"--set={key}={value}" for key, value in {**SETTINGS, "train.max_steps": 2}.items()]
    command(folder, "train", "my_task.py:Parity", "--train", "bits.txt", "--out", "line", *sets)
    command(folder, "train", "--resume", "line", *own, "--set=train.max_steps=3")
    assert command(folder, "run", "run", *own, "--text", "1101") == "1001\n"
    assert "loss" in json.loads(command(folder, "eval", "run", "bits.txt", *own, "--json"))
    command(folder, "inspect", "run", "1101", *own, "--figures", "pictures", "--only", "gates")
    assert list((folder / "pictures").iterdir())
