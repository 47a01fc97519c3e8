"""Flags made from the options that tasks declare."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from unrolled.errors import UserError
from unrolled.tasks import TASKS
from unrolled.tasks.options import EVERY_TASK, Option, Verb, declared

if TYPE_CHECKING:
    from unrolled.model import ModelTask
    from unrolled.tasks import Task

    OwnTask = Task | None
else:
    OwnTask = object  # the task itself is not imported for --help

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a config key, such as --set model.cell=gru; repeatable. `unrolled new` lists the keys.",
    ),
]
FileKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Read files with other columns, such as --set data.text_column=body; repeatable.",
    ),
]
ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="A run folder, a model file, or hub:ORG/NAME.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
OWN_TASK = typer.Option("--task", metavar="FILE.py:CLASS", help="A task of your own: a class in a Python file.")


def with_options(
    function: Callable[..., None], verb: Verb | None = None, own: Task | None = None
) -> Callable[..., None]:
    """The function of a command with a parameter for each of its flags.

    An argument that is a dataclass is replaced by its fields, `own` by --task, and **values by the options that tasks
    declare. `own` is a task of the user's, whose options are flags too.
    """
    arguments = inspect.signature(function, eval_str=True).parameters
    groups: dict[str, Any] = {name: one.annotation for name, one in arguments.items() if is_dataclass(one.annotation)}
    parameters: list[inspect.Parameter] = []
    for name, one in arguments.items():
        if name in groups:
            parameters += _fields(groups[name])
        elif name == "own":
            parameters.append(_flag("task", Annotated[str | None, OWN_TASK]))
        elif one.kind is not one.VAR_KEYWORD:
            parameters.append(one.replace(kind=one.KEYWORD_ONLY))
        elif verb is not None:
            taken = {"--" + one.name.replace("_", "-") for one in parameters}  # the command's own flags
            free = [some for some in _by_task(verb, own).values() if taken.isdisjoint(next(iter(some.values())).flags)]
            parameters += [_declared(verb, by_task) for by_task in free]

    def command(**values: Any) -> None:
        if "own" in arguments:
            values.pop("task")
            values["own"] = own
        made = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        function(**made, **values)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _flag(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _fields(group: Any) -> list[inspect.Parameter]:
    """The flags that the fields of a dataclass are annotated with."""
    hints = get_type_hints(group, include_extras=True)
    return [
        _flag(field.name, hints[field.name], inspect.Parameter.empty if field.default is MISSING else field.default)
        for field in fields(group)
    ]


def _by_task(verb: Verb, own: Task | None = None) -> dict[str, dict[str, Option]]:
    """For the name of each flag, the tasks that take it; "" stands for every task."""
    found: dict[str, dict[str, Option]] = {}
    if verb == "train":
        found = {_name(option): {"": option} for option in EVERY_TASK}
    options = declared(verb, TASKS)
    if own is not None:
        for key, option in own.options.of(verb).items():
            options.setdefault(key, {})[own.name] = option
    for by_task in options.values():
        shown = {task: option for task, option in by_task.items() if option.only != "python"}
        for option in shown.values():
            found.setdefault(_name(option), shown)
    return found


def _name(option: Option) -> str:
    return option.key.replace(".", "_")


def _declared(verb: Verb, by_task: Mapping[str, Option]) -> inspect.Parameter:
    """The flag of an option that one or several tasks declare."""
    option = next(iter(by_task.values()))
    minimums = {one.minimum for one in by_task.values()}
    minimum = minimums.pop() if len(minimums) == 1 else None
    shown = option.metavar or "|".join(option.choices) or None
    flag = typer.Option(*option.flags, metavar=shown, min=minimum, help=_help(verb, by_task))
    kind: Any = list[str] if option.kind is tuple else option.kind
    return _flag(_name(option), Annotated[kind | None, flag])


def _help(verb: Verb, by_task: Mapping[str, Option]) -> str:
    """The tasks that take an option, its meaning and its default.

    >>> beam = Option("beam", "Beam size", int, default=5)
    >>> _help("run", {"translate": beam, "caption": beam})
    'translate, caption: Beam size. Default: 5.'
    """
    meanings = _grouped({task: option.help for task, option in by_task.items()})
    texts = [f"{', '.join(tasks)}: {text}" if all(tasks) else text for text, tasks in meanings.items()]
    key = f" ({next(iter(by_task.values())).key})" if verb == "train" else ""
    defaults = _grouped({task: option.shown_default for task, option in by_task.items() if option.shown_default})
    shown = [text if len(tasks) == len(by_task) else f"{text} ({', '.join(tasks)})" for text, tasks in defaults.items()]
    return "; ".join(texts) + key + "." + (f" Default: {'; '.join(shown)}." if shown else "")


def _grouped(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """The tasks of each text."""
    found: dict[str, list[str]] = {}
    for task, text in texts.items():
        found.setdefault(text, []).append(task)
    return found


def chosen_options(verb: Verb, task: Task | ModelTask, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the user gave, by key. One that the task does not take is an error."""
    taken = {_name(option): option for option in task.options.of(verb).values() if option.only != "python"}
    known = taken | {_name(option): option for option in EVERY_TASK if verb == "train"}
    found: dict[str, Any] = {}
    for name, value in values.items():
        if value is None or value == []:
            continue
        if name not in known:
            flag = next(iter(_by_task(verb)[name].values())).flags[0]
            takes = ", ".join(option.flags[0] for option in taken.values())
            raise UserError(
                f"{flag} is not for {'' if verb == 'train' else 'a model of '}{task.name}.",
                f"It takes {takes}." if takes else "Leave it out.",
            )
        option = known[name]
        option.check(value)
        found[option.key] = option.parse(tuple(value) if option.kind is tuple else value)
    return found


def config_keys(task: Task, values: Mapping[str, Any], overrides: Sequence[str] | None) -> dict[str, Any]:
    """The config keys that the flags of `train` set. One that --set changes too is an error."""
    found = chosen_options("train", task, values)
    changed = {change.partition("=")[0].strip() for change in overrides or ()}
    for key in found:
        if key in changed:
            flag = next(option.flags[0] for option in (*EVERY_TASK, *task.options.train) if option.key == key)
            raise UserError(f"{flag} and --set {key} are the same thing.", "Give one of the two.")
    return found
