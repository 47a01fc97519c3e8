"""A language model of text: writing, reading, and streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError
from unrolled.search import Beam, Limits, Ranking, Sampling, Scorer, StopStrings, Token, WordList, generate
from unrolled.search.tokens.token_model import Graph
from unrolled.tasks.generate import options as declared
from unrolled.tasks.generate.texts import Direction
from unrolled.tasks.options import check_values
from unrolled.tasks.shared import options as shared
from unrolled.tasks.shared.answers import within
from unrolled.tasks.shared.dictionary import Dictionary, LexicalOptions, with_dictionary
from unrolled.tasks.shared.rescoring import RescoringOptions
from unrolled.tasks.shared.stream_state import packed, unpacked
from unrolled.text import StreamDecoder, Tokenizer

if TYPE_CHECKING:
    from unrolled.model import Model
    from unrolled.models import LanguageModel


@dataclass(frozen=True)
class GenerationOptions(LexicalOptions, RescoringOptions):
    """Values of the options of `generate`."""

    max_tokens: int = declared.MAX_TOKENS.default
    temperature: float = declared.TEMPERATURE.default
    top_k: int = declared.TOP_K.default
    top_p: float = declared.TOP_P.default
    min_p: float = declared.MIN_P.default
    repetition_penalty: float = declared.REPETITION_PENALTY.default
    stop: tuple[str, ...] = declared.STOP.default
    seed: int | None = declared.SEED.default
    words: str | tuple[str, ...] | None = declared.WORDS.default  # a file with one per line, or the words
    beam: int | None = declared.BEAM.default  # None: text is sampled
    n_best: int = declared.N_BEST.default
    margin: float | None = shared.MARGIN.default
    per_node: int | None = shared.PER_NODE.default
    weights: str = declared.WEIGHTS.default
    graph: Graph = shared.GRAPH.default
    scorers: tuple[Scorer, ...] = declared.SCORERS.default  # see docs/scorers.md

    def __post_init__(self) -> None:
        self.check(self.words, per_node=self.per_node)
        check_values(self, (declared.BEAM, declared.N_BEST, shared.GRAPH))
        self.check_rescoring(self.beam)
        for option in declared.SEARCHING if self.beam is None else ():
            if getattr(self, option.key) != option.default:
                beam = "--beam 10" if option is shared.RESCORE else "--beam 5"
                raise UserError(
                    f"{option.key} is for a search, and without a beam text is drawn.", f"Give one ({beam})."
                )
        for option in declared.SAMPLING if self.beam is not None else ():
            if getattr(self, option.key) != option.default:
                raise UserError(
                    f"{option.key} is for drawing, and with a beam the likeliest text is searched for.",
                    "Leave out one of the two.",
                )

    @property
    def search(self) -> Beam:
        assert self.beam is not None
        return Beam(self.beam, self.n_best, Ranking("none"), margin=self.margin, per_node=self.per_node)

    @property
    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_k, self.top_p, self.min_p, self.repetition_penalty)

    def limits(self, tokenizer: Tokenizer, forbidden: Sequence[int] = ()) -> Limits:
        chosen = self.lexicon if self.words is None else WordList.of(tokenizer, self.words)
        words = () if chosen is None else (chosen,)
        return Limits(self.max_tokens, forbidden=forbidden, scorers=(*words, *self.scorers))


class TextWriter:
    """Turns one row's tokens into text; knows its stop strings."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: list[int],
        stop: Sequence[str],
        backward: bool,
        dictionary: Dictionary | None = None,
    ) -> None:
        self._tokenizer, self._backward, self._prompt = tokenizer, backward, prompt
        self._respells = dictionary if dictionary is not None and dictionary.respells else None
        self._decoder, self._stop = StreamDecoder(tokenizer), StopStrings(stop)
        self._ids: list[int] = []
        self._first = prompt[-1] if backward and len(prompt) > 1 else None  # of the prompt's text
        self.ended = False
        for number in prompt[1:]:
            self._decoder.feed(number)

    def feed(self, number: int) -> str:
        if self._backward:
            # right to left the text is certain only when all of it is there
            self._ids.append(number)
            text = self._tokenizer.decode(self._ids[::-1])
            self.ended = any(s in text for s in self._stop.strings)
            return ""
        if self.ended:
            return ""
        if self._respells is not None:  # a word is certain only when what follows it is there
            self._ids.append(number)
            text = self._respells.text(self._ids, self._prompt) if self._stop.strings else ""
            self.ended = any(s in text for s in self._stop.strings)
            return ""
        piece, self.ended = self._stop.feed(self._decoder.feed(number))
        return piece

    def finish(self) -> str:
        if self._backward:
            text = self._tokenizer.decode(self._ids[::-1])
            ends = [text.rindex(s) + len(s) for s in self._stop.strings if s in text]
            return self._before_prompt(text[max(ends, default=0) :])
        if self._respells is not None:
            text = self._respells.text(self._ids, self._prompt)
            return text[: min((text.index(s) for s in self._stop.strings if s in text), default=len(text))]
        if self.ended:
            return ""
        piece, _ = self._stop.feed(self._decoder.finish())
        return piece + self._stop.finish()

    def _before_prompt(self, text: str) -> str:
        """The text, and the blank between it and the prompt if the tokenizer puts one there."""
        if not text or self._first is None:
            return text
        after, alone = (self._tokenizer.piece(self._first, before) for before in (self._ids[0], None))
        return text + after.removesuffix(alone).decode()


class TextPiece(NamedTuple):
    """A piece of a row's text, with the token that brought it."""

    row: int  # the number of its prompt
    text: str
    token: Token
    finished: Literal["stop", "length"] | None  # on a row's last piece: a stop string, or the most tokens


def write_texts(
    model: Model, prompts: Sequence[str], options: GenerationOptions, state: Any = None
) -> Iterator[tuple[int, str]]:
    """Text while it is drawn: (number of the prompt, new piece). A backward model's pieces go before the prompt."""
    for piece in write_pieces(model, prompts, options, state):
        if piece.text:
            yield piece.row, piece.text


def write_pieces(
    model: Model, prompts: Sequence[str], options: GenerationOptions, state: Any = None, top: int = 0
) -> Iterator[TextPiece]:
    """A piece for each token that is drawn; its text may be empty. `top` is that of `search.generate`."""
    model.network.eval()
    tokenizer: Tokenizer = model.assets
    options = with_words(model, options)
    backward = direction_of(model) == "backward"
    ids = [prompt_tokens(model, prompt) for prompt in prompts]
    writers = [TextWriter(tokenizer, prompt, options.stop, backward, options.lexicon) for prompt in ids]
    with model.answering():
        network = network_of(model).for_writing(len(ids), options.weights)
    ended: set[int] = set()
    steps = generate(
        network,
        ids,
        limits_of(model, options),
        memory=state,
        sampling=options.sampling,
        stop=lambda row, _: row in ended,
        seeds=options.seed,
        graph=options.graph,
        top=top,
    )
    for step in within(model.answering, steps):
        for token in step:
            if token.row in ended:  # the search sees a stop string one token later
                continue
            writer = writers[token.row]
            text = writer.feed(token.id)
            finished: Literal["stop", "length"] | None = None
            if writer.ended or token.stopped_by is not None:
                ended.add(token.row)
                text += writer.finish()
                finished = "stop" if writer.ended else "length"
            yield TextPiece(token.row, text, token, finished)


def with_words(model: Model, options: GenerationOptions) -> GenerationOptions:
    """The options with their lexicon read; an error where the model cannot keep to a list of words."""
    for name in ("words", "lexicon") if direction_of(model) == "backward" else ():
        if getattr(options, name) is not None:
            raise UserError(
                "A backward model writes words from their end: it cannot keep to a list.",
                f"Train with data.direction=forward, or leave out --{name}.",
            )
    ends = model.assets.ids("\n").tolist() if options.beam is not None else []  # a search ends with the line
    return with_dictionary(options, model.assets, end=ends[0] if len(ends) == 1 else None)


def limits_of(model: Model, options: GenerationOptions) -> Limits:
    unknown = model.assets.vocabulary.unk
    return options.limits(model.assets, forbidden=[unknown] if unknown is not None else [])


def prompt_tokens(model: Model, text: str) -> list[int]:
    """The tokens of a prompt in the order that the model reads them, after the start token."""
    tokenizer: Tokenizer = model.assets
    return [start_token(tokenizer), *directed(tokenizer.ids(text), direction_of(model)).tolist()]


class TextStream:
    """A model that reads a text in pieces, and scores or continues it; the split does not change the result.

    A word may continue in the next piece: the end of a piece waits for the next one, for `write` or for `finish`.
    """

    def __init__(self, model: Model) -> None:
        if direction_of(model) == "backward":
            raise UserError(
                "A backward model reads a text from its end: it cannot be fed from the beginning.",
                "Use predict, or train with data.direction=forward.",
            )
        self.model, self._tokenizer, self._network = model, model.assets, network_of(model)
        self._last = start_token(self._tokenizer)
        self._state: Any = None
        self._waiting = ""
        self.nats = 0.0
        self.tokens = 0

    def __enter__(self) -> TextStream:
        self._network.eval()
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def feed(self, text: str) -> float:
        """Read a piece; the summed loss in nats of the tokens that it completes."""
        text = self._waiting + text
        cut = len(text) if self._tokenizer.level == "char" else max(text.rfind(" "), text.rfind("\n"), 0)
        self._waiting = text[cut:]
        return self._read(text[:cut])

    def finish(self) -> float:
        """Read the waiting rest."""
        text, self._waiting = self._waiting, ""
        return self._read(text)

    def state(self) -> bytes:
        """Everything the stream keeps, for `model.stream(state=…)`."""
        kept = {"last": self._last, "state": self._state, "waiting": self._waiting}
        return packed(self.model, "a text's stream", {**kept, "nats": self.nats, "tokens": self.tokens})

    def resume(self, state: bytes) -> None:
        """Go on where a stream was whose `state` this is."""
        kept = unpacked(self.model, "a text's stream", state)
        self._last, self._state, self._waiting = kept["last"], kept["state"], kept["waiting"]
        self.nats, self.tokens = kept["nats"], kept["tokens"]

    def _read(self, text: str) -> float:
        ids = self._tokenizer.ids(text).tolist()
        before = self.nats
        for first in range(0, len(ids), 1000):
            part = ids[first : first + 1000]
            with self.model.answering():
                losses, self._state = self._network.nats([self._last, *part[:-1]], part, self._state)
            for loss in losses:  # one after the other: how the text is cut changes no bit of the sum
                self.nats += loss
            self._last = part[-1]
        self.tokens += len(ids)
        return self.nats - before

    def write(self, **options: Any) -> Iterator[str]:
        """Continue the text, piece by piece. Options: see `GenerationOptions`."""
        self.finish()
        settings = with_dictionary(GenerationOptions(**options), self._tokenizer)
        if settings.beam is not None:
            raise UserError("A stream draws its text.", "Leave out beam, or use predict.")
        writer = TextWriter(self._tokenizer, [], settings.stop, backward=False, dictionary=settings.lexicon)
        with self.model.answering():
            network = self._network.for_writing(1, settings.weights)
        steps = generate(
            network,
            [[self._last]],
            settings.limits(self._tokenizer),
            memory=self._state,
            sampling=settings.sampling,
            stop=lambda row, _: writer.ended,
            seeds=settings.seed,
            graph=settings.graph,
        )
        for step in within(self.model.answering, steps):
            if piece := writer.feed(step[0].id):
                yield piece
        if piece := writer.finish():
            yield piece


def start_token(tokenizer: Tokenizer) -> int:
    """The token before the first one: a new line, if the tokenizer has it."""
    ids = tokenizer.ids("\n")
    return int(ids[0]) if len(ids) else 0


def directed(ids: NDArray[np.integer], direction: str) -> NDArray[np.integer]:
    return ids[::-1].copy() if direction == "backward" else ids


def direction_of(model: Model) -> Direction:
    config: Any = model.config
    direction: Direction = config.data.direction
    return direction


def network_of(model: Model) -> LanguageModel:
    network: Any = model.network
    found: LanguageModel = network
    return found


def predict(model: Model, inputs: str | Sequence[str] = "", **options: Any) -> Any:
    """The continuation of a prompt, or of each of a list of prompts: drawn, or with a beam a `Continuation`."""
    prompts = [inputs] if isinstance(inputs, str) else inputs
    if not isinstance(prompts, (list, tuple)) or not all(isinstance(p, str) for p in prompts):
        raise UserError(f"A prompt must be a text or a list of texts, got {inputs!r}.")
    chosen = GenerationOptions(**options)
    if chosen.beam is not None:
        from unrolled.tasks.generate.search import searched  # which imports this module

        found = searched(model, prompts, chosen)
        return found[0] if isinstance(inputs, str) else found
    texts = ["" for _ in prompts]
    for row, piece in write_texts(model, prompts, chosen):
        texts[row] = piece + texts[row] if direction_of(model) == "backward" else texts[row] + piece
    return texts[0] if isinstance(inputs, str) else texts
