"""Options that tasks declare: each once, with its name, type, meaning, range and default. No torch is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from numbers import Integral
from typing import Any, Literal

from unrolled.errors import UnknownOption, UserError, unknown_name

Verb = Literal["train", "run", "eval", "predict", "stream"]


@dataclass(frozen=True)
class Option:
    """One option: a flag of a command, and the keyword argument of the same name in Python.

    For `train` the key is the config key that the flag sets, such as data.images.

    >>> Option("top_k", "Sample from the k most likely tokens.", int).flags
    ('--top-k',)
    """

    key: str
    help: str
    kind: type = str  # int, float, str, bool (a flag without a value) or tuple (texts, repeatable)
    default: Any = None  # the value in Python when the option is not given
    default_text: str = ""  # for --help, where the default depends on something
    minimum: float | None = None
    choices: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # the flags, where the key does not name the only one
    metavar: str | None = None
    parse: Callable[[Any], Any] = lambda value: value  # from the command line's value to the key's
    only: Literal["command line", "python"] | None = None  # where it is offered; None: both

    @property
    def flags(self) -> tuple[str, ...]:
        return self.names or ("--" + self.key.rpartition(".")[2].replace("_", "-"),)

    @property
    def shown_default(self) -> str:
        """The default for --help; nothing for a flag without a value and where there is none."""
        shown = "" if self.default is None or self.kind in (bool, tuple) else str(self.default)
        return self.default_text or shown

    def check(self, value: Any) -> None:
        """Reject a value that is not among the choices or below the minimum."""
        if value is None and self.default is None:
            return
        if self.choices and value not in self.choices:
            raise unknown_name(self.key, value, self.choices)
        if self.kind is int and self.minimum is not None:
            least = int(self.minimum)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise UserError(f"{self.key}={value!r} is not a whole number from {least} up.", f"Use {max(1, least)}.")


@dataclass(frozen=True)
class TaskOptions:
    """The options of one task by the command or function that takes them.

    `run` and `eval` are flags of those commands, `train` flags that set config keys; `predict` and `stream` are
    keyword arguments in Python.
    """

    train: tuple[Option, ...] = ()
    run: tuple[Option, ...] = ()
    eval: tuple[Option, ...] = ()
    predict: tuple[Option, ...] | None = None  # None: those of `run`
    stream: tuple[Option, ...] = ()

    def of(self, verb: Verb) -> dict[str, Option]:
        """The options of a command or function by key."""
        chosen = self.run if verb == "predict" and self.predict is None else getattr(self, verb)
        return {option.key: option for option in chosen}

    def check(self, verb: Verb, given: Iterable[str]) -> None:
        """Reject the first key that the function does not take."""
        known = [key for key, option in self.of(verb).items() if option.only != "command line"]
        for key in given:
            if key not in known:
                raise UnknownOption(verb, key, known)


def check_values(settings: Any, options: Iterable[Option]) -> None:
    """Check the fields of a dataclass against the options of the same names."""
    for option in options:
        option.check(getattr(settings, option.key))


# The train options of every task.
EVERY_TASK = (
    Option(
        "data.train", "Training data: a file, a folder, or a pattern in quotes; default: embedded data", metavar="FILE"
    ),
    Option("data.valid", "Validation data", metavar="FILE"),
    Option("train.device", "auto, cpu, cuda, …"),
)


def options_of(task: str) -> TaskOptions:
    """The options of a built-in task, without importing the task itself."""
    options: TaskOptions = import_module(f"unrolled.tasks.{task}.options").OPTIONS
    return options


def declared(verb: Verb, tasks: Iterable[str]) -> dict[str, dict[str, Option]]:
    """For each key of a command, the tasks that take it and their options."""
    found: dict[str, dict[str, Option]] = {}
    for task in tasks:
        for key, option in options_of(task).of(verb).items():
            found.setdefault(key, {})[task] = option
    return found
