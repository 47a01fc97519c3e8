"""The messages that a client of a stream sends, as pydantic models for each task."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, create_model

from unrolled.serve.service.errors import ServiceError, checked
from unrolled.serve.service.inputs import STRICT, ColumnsBody, FramesBody, RowsBody, WordsBody
from unrolled.serve.service.schemas import is_offered, option_kind, options_model
from unrolled.tasks import TASKS

INPUTS: dict[str, Any] = {
    "generate": str,
    "tag": str | WordsBody | ColumnsBody | FramesBody,
    "forecast": RowsBody,
    "recognize": FramesBody,
}
WITHOUT = ("rate", "window", "n_best")  # options of streams in Python that a start has no use for, or says beside them


class EndMessage(BaseModel):
    """The input ends. The answer to all of it follows, and the stream closes, or begins anew with `again`."""

    model_config = STRICT
    type: Literal["end"]
    again: bool = False


class StateMessage(BaseModel):
    """Asks for a token to go on with from another connection."""

    model_config = STRICT
    type: Literal["state"]


class StopMessage(BaseModel):
    """Ends what is being written."""

    model_config = STRICT
    type: Literal["stop"]


@cache
def stream_options(task: str) -> type[BaseModel]:
    """The options of a stream: those of `model.stream`; of a forecaster the share between its bounds."""
    values: dict[str, Any] = {
        key: (option_kind(option) | None, None)
        for key, option in TASKS[task].options.of("stream").items()
        if is_offered(option) and key not in WITHOUT
    }
    if task == "forecast":
        values["interval"] = (Annotated[float, Field(gt=0, lt=1)] | None, None)
    return create_model(f"{task.capitalize()}StreamOptions", __config__=STRICT, **values)


@cache
def start_model(task: str) -> type[BaseModel]:
    """The first message of a client."""
    options = stream_options(task)
    values: dict[str, Any] = {
        "type": (Literal["start"], ...),
        "options": (options, Field(default_factory=options)),
        "resume": (str | None, None),
    }
    if task == "recognize":
        values |= {"format": (Literal["s16le", "f32le"] | None, None), "rate": (float | None, None)}
    return create_model(f"{task.capitalize()}Start", __config__=STRICT, **values)


@cache
def _later(task: str) -> TypeAdapter[Any]:
    """Every message after the first."""
    fields: dict[str, Any] = {"type": (Literal["feed"], ...), "input": (INPUTS[task], ...)}
    feed = create_model(f"{task.capitalize()}Feed", __config__=STRICT, **fields)
    kinds: Any = feed | EndMessage | StateMessage
    if task == "generate":
        options = options_model(task)
        fields = {"type": (Literal["write"], ...), "options": (options, Field(default_factory=options))}
        write = create_model("GenerateWrite", __config__=STRICT, **fields)
        kinds = kinds | write | StopMessage
    return TypeAdapter(Annotated[kinds, Field(discriminator="type")])


def read_start(task: str, message: str | bytes) -> Any:
    """The first message, checked."""
    if task not in INPUTS:
        raise ServiceError(
            400, f"A model of {task} does not stream. Models of {', '.join(INPUTS)} do.", "no_stream", "model"
        )
    if isinstance(message, bytes):
        raise ServiceError(400, 'The first message is binary. Send {"type": "start", …} first.', "no_start", "type")
    return checked(start_model(task), message)


def read_message(task: str, message: str) -> Any:
    """A later message, checked."""
    return _later(task).validate_json(message)
