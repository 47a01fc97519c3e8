"""The bodies of `/v1/completions`, as OpenAI's clients send and read them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from unrolled.serve.service.errors import unsupported
from unrolled.serve.service.schemas import MOST, STRICT, BodyOfEvery
from unrolled.tasks.shared.writing import USUAL_BEAM

MOST_CHOICES = 16
MOST_LOGPROBS = 20
# what a request may give only so that it changes nothing: key → such values
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "suffix": (None, ""),
    "presence_penalty": (None, 0.0),
    "frequency_penalty": (None, 0.0),
    "logit_bias": (None, {}),
}
# JSON has one kind of number: 2.0 is whole, too
WHOLE = BeforeValidator(lambda one: int(one) if isinstance(one, float) and one.is_integer() else one)
Length = Annotated[int, Field(ge=0, le=MOST["max_tokens"]), WHOLE]
Kept = Annotated[int, Field(ge=0, le=2**31 - 1), WHOLE]
Choices = Annotated[int, Field(ge=1, le=MOST_CHOICES), WHOLE]
Seed = Annotated[int, Field(ge=0, le=MOST["seed"]), WHOLE]
Shown = Annotated[int, Field(ge=0, le=MOST_LOGPROBS), WHOLE]
ZERO: dict[str, Any] = {"minimum": 0, "maximum": 0}
Stop = Annotated[str, Field(min_length=1, max_length=1000)]


class StreamOptions(BaseModel):
    """Options of an answer in pieces."""

    model_config = STRICT
    include_usage: bool = Field(False, description="A last piece counts the tokens.")
    include_obfuscation: Literal[False] | None = Field(None, description="Pieces are never padded.")


class CompletionRequest(BodyOfEvery):
    """A prompt to continue, or a source to translate. What is not given is as in `model.predict`."""

    model_config = ConfigDict(**STRICT, json_schema_extra={"description": "As OpenAI's clients send it."})
    model: str = Field(description="The name of a model of generate or translate.")
    prompt: str | Annotated[list[str], Field(min_length=1)] = Field("", description="One text, or a list of them.")
    max_tokens: Length | None = Field(None, description="0 only with echo.")
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: Kept | None = Field(None, description="Draw from the k most likely tokens; 0: all.")
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=0.01, le=100, description="Of models of generate.")
    stop: Stop | Annotated[list[Stop], Field(max_length=4)] | None = Field(None, description="Texts to stop before.")
    n: Choices | None = Field(None, description="Texts for each prompt.")
    best_of: Choices | None = Field(None, description="Only 1, or n.")
    seed: Seed | None = None
    logprobs: Shown | None = Field(None, description="Log-probabilities, with so many others.")
    echo: bool | None = Field(None, description="The prompt stands before its continuation.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    suffix: str | None = Field(None, description="Only an empty one.", json_schema_extra={"maxLength": 0})
    presence_penalty: float | None = Field(None, description="Only 0.", json_schema_extra=ZERO)
    frequency_penalty: float | None = Field(None, description="Only 0.", json_schema_extra=ZERO)
    logit_bias: dict[str, float] | None = Field(
        None, description="Only an empty one.", json_schema_extra={"maxProperties": 0}
    )
    user: str | None = Field(None, description="Not used.")
    metadata: dict[str, str] | None = Field(None, description="Not used.")

    @property
    def prompts(self) -> list[str]:
        return self.prompt if isinstance(self.prompt, list) else [self.prompt]

    @property
    def choices(self) -> int:
        return self.n or 1

    def check(self, task: str) -> None:
        """Refuse what a model of this task cannot do."""
        for name, values in NEUTRAL.items():
            if getattr(self, name) not in values:
                raise unsupported(name, "is not supported. Leave it out.")
        if self.best_of not in (None, 1, self.choices):
            raise unsupported("best_of", "is not supported beyond n. Ask for more texts with n.")
        if self.stream_options is not None and not self.stream:
            raise unsupported("stream_options", "is for stream=true.")
        if self.max_tokens == 0 and not self.echo:
            raise unsupported("max_tokens", "is 0, and there is nothing to write. Give 1 or more, or echo=true.")
        if task != "translate":
            return
        if self.echo:
            raise unsupported("echo", "is not for translations: they do not continue their prompt.")
        if self.repetition_penalty not in (None, 1.0):
            raise unsupported("repetition_penalty", "is not for translations. Leave it out.")

    def options(self, task: str) -> dict[str, Any]:
        """The options of the texts: those of `predict`, and `logprobs` and `echo`."""
        names = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "logprobs")
        found = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.stop:
            found["stop"] = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        if task == "generate":
            if self.repetition_penalty is not None:
                found["repetition_penalty"] = self.repetition_penalty
            return found | ({"echo": True} if self.echo else {})
        if self.choices > 1:
            found["n_best"] = self.choices
        if self.temperature is None:  # a search, which draws nothing
            found.pop("seed", None)
            for name, all_tokens in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0)):
                if found.get(name) == all_tokens:
                    found.pop(name)
            if self.choices > USUAL_BEAM:
                found["beam"] = self.choices
        return found


class CompletionLogProbs(BaseModel):
    """Lists with an entry for each token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    """One text."""

    index: int
    text: str
    logprobs: CompletionLogProbs | None
    finish_reason: Literal["stop", "length"] | None


class CompletionUsage(BaseModel):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionAnswer(BaseModel):
    """The texts; with `stream` each piece has this shape too, as a server-sent event."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage | None = None
