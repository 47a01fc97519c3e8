"""`/v1/audio/transcriptions`: recordings to texts, in the shape of OpenAI's clients."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect

from unrolled.data.readers.media.audio import audio_facts
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.serve.service.errors import ServiceError, unsupported
from unrolled.serve.service.http import ERRORS, event, event_stream, json_response, while_connected
from unrolled.serve.service.inputs import Upload, size_of
from unrolled.serve.service.lanes import Work
from unrolled.serve.service.media import decoded
from unrolled.tasks.recognize.search import Recognized
from unrolled.tasks.recognize.subtitles import Cue, cues_of, srt, vtt

if TYPE_CHECKING:
    from unrolled.serve.service.app import Service

Format = Literal["json", "text", "srt", "vtt", "verbose_json"]
Granularity = Literal["word", "segment"]
UNKNOWN_LANGUAGE = "und"  # ISO 639-2: undetermined
LANGUAGE = re.compile(r"[a-zA-Z]{2,3}(-[a-zA-Z0-9]{1,8})*")


class TranscriptionRequest(BaseModel):
    """The fields of the form."""

    file: bytes
    model: str
    language: str | None = None
    prompt: str | None = None
    response_format: Format = "json"
    temperature: float | None = None
    timestamp_granularities: list[Granularity] = []
    stream: bool = False
    timeout: float | None = None


class TranscriptSegment(BaseModel):
    """A part of the transcript."""

    id: int
    start: float
    end: float
    text: str


class TranscriptWord(BaseModel):
    """A word of the transcript."""

    word: str
    start: float
    end: float


class TranscriptionAnswer(BaseModel):
    """The transcript; all but the text is there with verbose_json."""

    text: str
    task: Literal["transcribe"] | None = None
    language: str | None = None
    duration: float | None = None
    words: list[TranscriptWord] | None = None
    segments: list[TranscriptSegment] | None = None


def router(service: Service) -> APIRouter:
    routes = APIRouter(prefix="/v1/audio", tags=["transcriptions"])
    settings = service.settings

    def transcribe(model: Model, inputs: list[Upload], options: Mapping[str, Any]) -> Sequence[tuple[Any, float]]:
        if getattr(model.assets.reader, "kind", None) != "audio":
            raise UserError("This model reads no recordings.", "Use /v1/models/NAME/predict for its inputs.")
        recordings = [decoded(model, one, settings) for one in inputs]
        seconds = [audio_facts(one).seconds for one in recordings]
        return list(zip(model.predict(recordings), seconds, strict=True))

    work = Work("transcribe", transcribe, size_of)

    async def transcriptions(request: Request) -> Response:
        form = await read_form(request)
        task = service.registry.served(form.model).task
        check_fields(form)
        if task != "recognize":
            raise ServiceError(
                400, f"{form.model} is a model of {task}, not of recognize.", "unsupported_model", "model"
            )
        asked = service.batcher.submit(form.model, work, [Upload(form.file)], timeout=form.timeout)
        ((found, seconds),) = await while_connected(request, asked)
        cues = cues_of(found.words, found.text, seconds)
        if form.stream:
            return event_stream(events(found.text, cues))
        return written(form, found, cues, seconds)

    text = {"schema": {"type": "string"}}
    routes.add_api_route(
        "/transcriptions",
        transcriptions,
        methods=["POST"],
        response_model=TranscriptionAnswer,
        responses={**ERRORS, 200: {"content": {"text/plain": text, "text/vtt": text, "text/event-stream": text}}},
        openapi_extra={
            "requestBody": {"content": {"multipart/form-data": {"schema": form_schema()}}, "required": True}
        },
        summary="The text of a recording, as OpenAI's clients ask for it",
        operation_id="transcriptions",
    )
    return routes


def written(form: TranscriptionRequest, found: Recognized, cues: Sequence[Cue], seconds: float) -> Response:
    """The transcript in the format of the request."""
    if form.response_format == "text":
        return PlainTextResponse(f"{found.text}\n")
    if form.response_format == "srt":
        return PlainTextResponse(srt(cues))
    if form.response_format == "vtt":
        return PlainTextResponse(vtt(cues), media_type="text/vtt")
    if form.response_format == "json":
        return json_response({"text": found.text})
    answer: dict[str, Any] = {
        "task": "transcribe",
        "language": form.language or UNKNOWN_LANGUAGE,
        "duration": seconds,
        "text": found.text,
    }
    wanted = form.timestamp_granularities or get_args(Granularity)
    if "word" in wanted:
        answer["words"] = [{"word": one.text, "start": one.start, "end": one.end} for one in found.words]
    if "segment" in wanted:
        answer["segments"] = [
            {"id": number, "start": cue.start, "end": cue.end, "text": cue.text} for number, cue in enumerate(cues)
        ]
    return json_response(answer)


def form_schema() -> dict[str, Any]:
    """The form for OpenAPI: what is left out is not there, and never null."""
    schema = TranscriptionRequest.model_json_schema()
    values = {
        name: next((one for one in value.get("anyOf", ()) if one["type"] != "null"), value)
        for name, value in schema["properties"].items()
    }
    values["file"] = {"type": "string", "format": "binary", "minLength": 1, "description": "wav, flac, ogg, mp3 …"}
    values["model"] = {"type": "string", "minLength": 1, "description": "The name of a model of recognize."}
    values["prompt"] = {"type": "string", "maxLength": 0, "description": "Only an empty one."}
    values["temperature"] = {"type": "number", "minimum": 0, "maximum": 0, "description": "Only 0."}
    values["timestamp_granularities[]"] = values.pop("timestamp_granularities")
    return {**schema, "properties": values, "additionalProperties": False}


async def events(text: str, cues: Sequence[Cue]) -> AsyncIterator[str]:
    """The transcript as OpenAI's events, a cue at a time. It is whole before the first of them."""
    for delta in deltas(text, cues):
        yield event({"type": "transcript.text.delta", "delta": delta})
    yield event({"type": "transcript.text.done", "text": text})


def deltas(text: str, cues: Sequence[Cue]) -> list[str]:
    """The text in parts that end where cues do; joined they are the text.

    >>> deltas("yes  no way", [Cue(0, 1, "yes", range(1)), Cue(2, 3, "no way", range(1, 3))])
    ['yes', '  no way']
    """
    ends, at = [], 0
    for cue in cues:
        for word in cue.text.split():
            place = text.find(word, at)
            at = at if place < 0 else place + len(word)
        ends.append(at)
    ends = [*ends[:-1], len(text)]
    return [part for start, end in zip([0, *ends], ends, strict=False) if (part := text[start:end])]


async def read_form(request: Request) -> TranscriptionRequest:
    """The fields of the upload, checked; what cannot be honoured is an error."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise ServiceError(415, "The body is no form. Send multipart/form-data.", "unsupported_media_type")
    try:
        async with request.form(max_files=1, max_fields=16, max_part_size=2**16) as form:
            file = form.get("file")
            data = await file.read() if isinstance(file, UploadFile) else None
    except MultiPartException as error:
        raise ServiceError(400, f"The form is wrong: {error.message}", "invalid_form") from None
    except ClientDisconnect:
        raise ServiceError(400, "The body is not whole.", "incomplete_body") from None
    return checked_form(form, data)


def checked_form(form: FormData, data: bytes | None) -> TranscriptionRequest:
    known = {name: name for name in TranscriptionRequest.model_fields}
    known["timestamp_granularities[]"] = "timestamp_granularities"
    values: dict[str, Any] = {}
    for name, value in form.multi_items():
        if name not in known:
            raise unsupported(name, "is not supported. Leave it out.")
        if name == "file" or value == "":
            continue
        if not isinstance(value, str):
            raise ServiceError(400, f"{name} is a file, expected a text.", "invalid_value", name)
        values.setdefault(known[name], []).append(value)
    if not data:
        raise ServiceError(400, "There is no recording. Upload one as `file`.", "no_input", "file")
    several = values.pop("timestamp_granularities", [])
    one = {name: given[-1] for name, given in values.items()}
    return TranscriptionRequest(file=data, timestamp_granularities=several, **one)


def check_fields(form: TranscriptionRequest) -> None:
    """Refuse what no model of recognize can do."""
    if form.prompt:
        raise unsupported("prompt", "is not supported: a model of recognize reads nothing but the recording.")
    if form.temperature:
        raise unsupported("temperature", "is not supported: nothing is drawn. Leave it out, or give 0.")
    if form.language is not None and not LANGUAGE.fullmatch(form.language):
        raise unsupported("language", "is no code of a language, such as en.")
    if form.timestamp_granularities and form.response_format != "verbose_json":
        raise unsupported("timestamp_granularities", "is for response_format=verbose_json.")
    if form.stream and form.response_format not in ("json", "text"):
        raise unsupported("stream", f"is not for response_format={form.response_format}.")
    if form.timeout is not None and not 0 < form.timeout < float("inf"):
        raise unsupported("timeout", "is not a number of seconds.")
