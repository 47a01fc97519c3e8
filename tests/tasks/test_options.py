"""Options are declared once: flags, keyword arguments and the dataclasses of their values agree."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest

from unrolled.errors import UnknownOption
from unrolled.tasks import TASKS, Option, TaskOptions
from unrolled.tasks.generate.predict import GenerationOptions
from unrolled.tasks.options import Verb, declared, options_of
from unrolled.tasks.recognize.search import RecognitionOptions
from unrolled.tasks.shared.writing import WritingOptions

VALUES = {
    "generate": GenerationOptions,
    "translate": WritingOptions,
    "caption": WritingOptions,
    "recognize": RecognitionOptions,
}


@pytest.mark.parametrize("task", VALUES)
def test_a_field_for_each_option_of_predict(task: str) -> None:
    found: Any = VALUES[task]
    assert {field.name: field.default for field in fields(found)} == {
        key: option.default for key, option in options_of(task).of("predict").items()
    }


@pytest.mark.parametrize("verb", ["train", "run", "eval"])
def test_tasks_agree_on_a_flag(verb: Verb) -> None:
    for by_task in declared(verb, TASKS).values():
        assert len({(option.flags, option.kind, option.metavar) for option in by_task.values()}) == 1
        assert all(option.help and not option.help.endswith(".") for option in by_task.values())


def test_a_task_has_the_options_of_its_folder() -> None:
    for name, task in TASKS.items():
        assert task.options is options_of(name) or task.options == TaskOptions()


def test_an_unknown_key_is_named() -> None:
    options = TaskOptions(run=(Option("beam", "Beam size", int), Option("picture", "A picture", only="command line")))
    options.check("predict", ["beam"])
    for key in ("bean", "picture"):
        with pytest.raises(
            UnknownOption, match=f"^Unknown predict option '{key}'. (Did you mean 'beam'. )?Choices: beam.$"
        ):
            options.check("predict", [key])


def test_declarations_need_no_torch() -> None:
    code = "import sys; from unrolled.cli import app\nassert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
