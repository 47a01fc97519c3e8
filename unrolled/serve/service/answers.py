"""Answers of `model.predict` as JSON, without rounding, and their types for OpenAPI."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np
from pydantic import BaseModel, create_model

from unrolled.see.views.trace import finite


class WordSpan(BaseModel):
    """A word, and its tokens from the first to the one after the last."""

    text: str
    start: int
    end: int
    known: bool


class TimedText(BaseModel):
    """A word or label with its time."""

    text: str
    start: float
    end: float


class TextAnswer(BaseModel):
    """A text that a language model drew; of a search also its scores and the next best."""

    text: str
    score: float | None = None
    log_prob: float | None = None
    ended: bool | None = None
    tokens: list[str] | None = None
    words: list[WordSpan] | None = None
    others: list[TextAnswer] | None = None


class ClassifyAnswer(BaseModel):
    """A label with the probability of each, or a number; and which words decided, if that was asked for."""

    label: str | None = None
    labels: list[str] | None = None
    probabilities: dict[str, float] | None = None
    value: float | None = None
    explanation: dict[str, Any] | None = None


class TagAnswer(BaseModel):
    """A tag for each word or frame."""

    tokens: list[str] | None = None
    tags: list[str]
    probabilities: list[float] | None = None
    segments: list[list[Any]] | None = None


class ForecastAnswer(BaseModel):
    """The next rows, with bounds where an interval was asked for. null is a number that is not finite."""

    forecast: list[Any]
    lower: list[Any] | None = None
    upper: list[Any] | None = None


class TranslateAnswer(BaseModel):
    """A translation; `others` are the next best."""

    text: str
    score: float
    log_prob: float
    ended: bool
    source_tokens: list[str]
    target_tokens: list[str]
    attention: list[list[float]] | None = None
    words: list[WordSpan] | None = None
    others: list[TranslateAnswer] = []


class RecognizeAnswer(BaseModel):
    """The text of a recording or line, with times in `unit`."""

    text: str
    score: float
    words: list[Any]
    labels: list[Any]
    unit: str
    complete: bool
    others: list[RecognizeAnswer] = []


class CaptionAnswerBody(BaseModel):
    """A caption; `others` are the next best."""

    text: str
    score: float
    log_prob: float
    ended: bool
    tokens: list[str]
    attention: list[Any] | None = None
    words: list[WordSpan] | None = None
    others: list[CaptionAnswerBody] = []


ANSWERS: dict[str, type[BaseModel]] = {
    "generate": TextAnswer,
    "classify": ClassifyAnswer,
    "tag": TagAnswer,
    "forecast": ForecastAnswer,
    "translate": TranslateAnswer,
    "recognize": RecognizeAnswer,
    "caption": CaptionAnswerBody,
}


@cache
def predictions_model(task: str) -> type[BaseModel]:
    """The body of an answer to `predict`: one prediction for each input, in order."""
    answer: Any = ANSWERS.get(task, Any)
    fields_of: dict[str, Any] = {"model": (str, ...), "predictions": (list[answer], ...)}
    made: type[BaseModel] = create_model(f"{task.capitalize()}Response", **fields_of)
    made.__doc__ = "One prediction for each input, in order."
    return made


def prediction(task: str, answer: Any) -> Any:
    """The answer to one input as JSON."""
    if task == "generate":
        return _text(answer)
    if task == "classify":
        return _classified(answer)
    if task == "tag":
        return _tagged(answer)
    if task == "forecast":
        return _forecast(answer)
    return finite(plain(answer))[0]


def _text(answer: Any) -> dict[str, Any]:
    if not hasattr(answer, "log_prob"):
        return {"text": str(answer)}
    found = {
        "text": str(answer),
        "score": answer.score,
        "log_prob": answer.log_prob,
        "ended": answer.ended,
        "tokens": list(answer.tokens),
        "words": plain(answer.words),
        "others": [_text(one) for one in answer.others],
    }
    checked: dict[str, Any] = finite(found)[0]
    return checked


def _classified(answer: Any) -> dict[str, Any]:
    why = {} if answer.explanation is None else {"explanation": finite(answer.explanation.to_json())[0]}
    if not hasattr(answer, "probabilities"):
        return {"value": finite(float(answer.value))[0], **why}
    label = None if answer.abstains else answer.label
    return {"label": label, "labels": list(answer.labels), "probabilities": dict(answer.probabilities), **why}


def _tagged(answer: Any) -> dict[str, Any]:
    if hasattr(answer, "segments"):
        return {
            "tags": list(answer.tags),
            "probabilities": list(answer.probabilities) or None,
            "segments": [list(span) for span in answer.segments],
        }
    tokens, tags, *chances = zip(*answer, strict=True) if answer else ((), ())
    return {"tokens": tokens, "tags": tags, "probabilities": chances[0] if chances else None}


def _forecast(answer: Any) -> dict[str, Any]:
    if hasattr(answer, "point"):
        names = {"forecast": answer.point, "lower": answer.lower, "upper": answer.upper}
    else:
        names = {"forecast": answer}
    return {name: finite(plain(value))[0] for name, value in names.items()}


def plain(value: Any) -> Any:
    """Dataclasses, named tuples and arrays as dictionaries and lists; numbers keep every bit."""
    if isinstance(value, (str, bool, int, float)) or value is None:
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "_asdict"):
        return {name: plain(one) for name, one in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return str(value)
