"""The bodies of requests and answers, for each task: pydantic models that OpenAPI describes."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from unrolled.serve.service.inputs import AudioBody, ColumnsBody, FramesBody, PictureBody, RowsBody, WordsBody
from unrolled.tasks import TASKS
from unrolled.tasks.options import Option

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
LARGEST = 2**31 - 1
FLAG = re.compile(r"--([a-z][a-z-]*)")  # of the command line, in the help of an option
SOME = Field(json_schema_extra={"minItems": 1})  # `check_count` says so in a better message
# options that multiply the work, and what a request may ask for at the most
MOST = {
    "beam": 256,
    "n_best": 100,
    "candidates": 256,
    "max_tokens": 4096,
    "min_tokens": 4096,
    "per_node": 10_000,
    "steps": 10_000,
    "seed": 2**53,
}
IN_PYTHON = (
    "scorers",
    "rescore",
    "rescore_weight",
    "rescore_bonus",
    "candidates",
)  # Python objects, and what needs them
# options whose values are files of the service's own, from ServeSettings.files
FILES = ("lexicon", "lm")

# What an input of a task may be. Of a list each element is one input.
INPUTS: dict[str, Any] = {
    "generate": str,
    "translate": str,
    "classify": str | FramesBody,
    "tag": str | WordsBody | ColumnsBody | FramesBody,
    "forecast": RowsBody,
    "recognize": AudioBody | PictureBody | FramesBody,
    "caption": PictureBody | FramesBody,
}
OWN = str | FramesBody  # of a task of the user's


class BodyOfEvery(BaseModel):
    """The keys of every request beside its inputs."""

    model_config = STRICT
    timeout: float | None = Field(None, ge=0.001, description="Seconds until the answer must be there.")
    priority: int = Field(0, ge=-9, le=9, description="Higher ones are answered first.")


class ModelFacts(BaseModel):
    """A model of the service."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["unrolled"] = "unrolled"
    task: str
    loaded: bool
    parameters: int | None = None
    bytes: int | None = None
    reads: str | None = Field(None, description="Of a model of recognize: audio, line or frames.")
    scores: dict[str, float] = {}
    loads: int
    error: str | None = Field(None, description="Why the newest state of the model's file is not in use.")


class ModelList(BaseModel):
    """The models of the service."""

    object: Literal["list"] = "list"
    data: list[ModelFacts]


class EmbedAnswer(BaseModel):
    """A vector for each input."""

    model: str
    vectors: list[list[float]]


class ScoreAnswer(BaseModel):
    """The natural logarithm of each input's probability."""

    model: str
    log_probs: list[float]


class TraceAnswer(BaseModel):
    """One view of a trace, as `unrolled inspect` shows it."""

    model: str
    view: str
    found: dict[str, Any]


def inputs_of(task: str) -> Any:
    return INPUTS.get(task, OWN)


def option_kind(option: Option) -> Any:
    """The type of an option's value in a request."""
    if option.choices:
        return Literal[option.choices]
    if option.key == "words":
        return list[str]
    if option.kind is tuple:
        return Annotated[list[str], Field(max_length=100)]
    if option.kind is int:
        least = None if option.minimum is None else int(option.minimum)
        return Annotated[int, Field(ge=-LARGEST if least is None else least, le=MOST.get(option.key, LARGEST))]
    if option.kind is float:
        return Annotated[float, Field(ge=option.minimum)]
    return option.kind


def is_offered(option: Option) -> bool:
    """True if a request may give the option: no Python objects, and no files but those of the service."""
    if option.only == "command line" or option.key in IN_PYTHON:
        return False
    return option.metavar not in ("FILE", "MODEL") or option.key in ("words", *FILES)


@cache
def options_model(task: str) -> type[BaseModel]:
    """The options of a task as a body: those of `predict`, with their help."""
    declared = TASKS[task].options.of("predict") if task in TASKS else {}
    values: dict[str, Any] = {}
    for key, option in declared.items():
        if not is_offered(option):
            continue
        help = FLAG.sub(lambda found: found[1].replace("-", "_"), f"{option.help}.")
        help += f" Default: {option.shown_default}." if option.shown_default else ""
        if key in FILES:
            help = f"{help} The name of a file of the service."
        elif key == "words":
            help = "Write only these words."
        values[key] = (option_kind(option) | None, Field(None, description=help))
    made: type[BaseModel] = create_model(f"{task.capitalize()}Options", __config__=STRICT, **values)
    made.__doc__ = f"The options of a model of {task}, as in `unrolled run`."
    return made


def body_model(name: str, help: str, **values: Any) -> type[BaseModel]:
    """A body with these keys beside those of every request."""
    made: type[BaseModel] = create_model(name, __base__=BodyOfEvery, **values)
    made.__doc__ = help
    return made


def one_or_many(kind: Any) -> Any:
    return (kind | Annotated[list[kind], SOME], Field(description="One input, or a list of them."))


@cache
def predict_model(task: str) -> type[BaseModel]:
    """The body of a request for predictions."""
    options = options_model(task)
    return body_model(
        f"{task.capitalize()}Request",
        "One input, or a list of them.",
        inputs=one_or_many(inputs_of(task)),
        options=(options, Field(default_factory=options)),
    )


@cache
def embed_model(task: str) -> type[BaseModel]:
    """The body of a request for vectors."""
    return body_model(
        f"{task.capitalize()}EmbedRequest",
        "One input, or a list of them, for a vector each.",
        inputs=one_or_many(inputs_of(task)),
        pooling=(
            Literal["last", "mean", "max"] | None,
            Field(None, description="From the states of the input's steps. Default: the task's."),
        ),
    )


class ScoreRequest(BodyOfEvery):
    """Texts to score."""

    inputs: str | Annotated[list[str], SOME] = Field(description="One text, or a list of them.")


@cache
def trace_model(task: str) -> type[BaseModel]:
    """The body of a request for a trace."""
    return body_model(
        f"{task.capitalize()}TraceRequest",
        "One input to trace.",
        input=(inputs_of(task), Field(description="The input.")),
        view=(str, Field("overview", description="overview, values, gradients, attention, …")),
        query=(
            dict[str, str],
            Field(default_factory=dict, description="What the view shows: layer, quantity, unit, step, map, …"),
        ),
        options=(dict[str, str], Field(default_factory=dict, description="Changes of the trace: truth, hide, …")),
    )
