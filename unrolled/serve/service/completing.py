"""Texts for `/v1/completions`, part by part: one way for whole answers and for those that are read along."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.search import Token, token_scores
from unrolled.serve.service.inputs import size_of
from unrolled.serve.service.lanes import Work
from unrolled.tasks.generate.log_probs import prompt_scores
from unrolled.tasks.generate.predict import GenerationOptions, TextPiece, direction_of, prompt_tokens, write_pieces
from unrolled.tasks.shared.writing import WritingOptions
from unrolled.tasks.translate.batches import source_batch
from unrolled.tasks.translate.predict import searched
from unrolled.text import StreamDecoder, Tokenizer

Finished = Literal["stop", "length"]
TASKS_THAT_WRITE = ("generate", "translate")
OF_REQUEST = ("logprobs", "echo", "stop", "max_tokens")  # options of a request that are not simply those of `predict`
SCORED_AT_ONCE = 32  # translations whose tokens are scored together


class TokenText(NamedTuple):
    """A token as text, with log-probabilities, and where in the text it begins."""

    text: str
    log_prob: float
    top: dict[str, float]
    offset: int


class CompletionPart(NamedTuple):
    """A part of one text; on its last part the counts of its tokens."""

    row: int
    text: str
    tokens: Sequence[TokenText] = ()
    finished: Finished | None = None
    read: int = 0
    written: int = 0


@dataclass(frozen=True)
class Completion:
    """A whole text."""

    text: str
    tokens: list[TokenText]
    finished: Finished
    read: int  # tokens of its prompt
    written: int


def complete(model: Model, prompts: Sequence[str], options: Mapping[str, Any]) -> list[list[Completion]]:
    """The texts for each prompt."""
    rows: dict[int, list[CompletionPart]] = {}
    each = 1 if model.task.name == "generate" else options.get("n_best", 1)
    for part in written_parts(model, prompts, options):
        rows.setdefault(part.row, []).append(part)
    found: list[list[Completion]] = [[] for _ in prompts]
    for row in sorted(rows):
        found[row // each].append(whole(rows[row]))
    return found


COMPLETE = Work("complete", complete, size_of)


def whole(parts: Sequence[CompletionPart]) -> Completion:
    last = parts[-1]
    assert last.finished is not None
    tokens = [token for part in parts for token in part.tokens]
    return Completion("".join(part.text for part in parts), tokens, last.finished, last.read, last.written)


def written_parts(model: Model, prompts: Sequence[str], options: Mapping[str, Any]) -> Iterator[CompletionPart]:
    """The parts of all texts as they come; the row of a translation counts the `n_best` of each prompt."""
    return (_generated if model.task.name == "generate" else _translated)(model, prompts, options)


def _generated(model: Model, prompts: Sequence[str], options: Mapping[str, Any]) -> Iterator[CompletionPart]:
    top, echo, most = (options.get(name) for name in ("logprobs", "echo", "max_tokens"))
    if direction_of(model) == "backward" and (top is not None or echo):
        raise UserError(
            "This model writes from right to left: its tokens do not follow the prompt.",
            "Leave out logprobs and echo.",
        )
    given = {key: value for key, value in options.items() if key not in ("logprobs", "echo")}
    chosen = GenerationOptions(**{**given, "max_tokens": 1} if most == 0 else given)
    rows = [_TextRow(model, prompt, top, bool(echo)) for prompt in prompts]
    if echo:
        scored: dict[str, list[TokenText]] = {}
        for number, row in enumerate(rows):
            if top is not None and row.prompt not in scored:
                scored[row.prompt] = row.read_tokens()
            yield CompletionPart(number, row.prompt, scored.get(row.prompt, ()))
    if most == 0:
        yield from (CompletionPart(number, "", (), "length", len(row.ids)) for number, row in enumerate(rows))
        return
    for piece in write_pieces(model, prompts, chosen, top=top or 0):
        yield rows[piece.row].part(piece)


class _TextRow:
    """A text while it is written: the tokens whose text is not shown yet wait."""

    def __init__(self, model: Model, prompt: str, top: int | None, echo: bool) -> None:
        self.model, self.prompt, self.top = model, prompt, top
        self.start, *self.ids = prompt_tokens(model, prompt)
        self._base = len(prompt) if echo else 0
        self._previous = self.ids[-1] if self.ids else None
        self._waiting: list[TokenText] = []
        self._written = self._decoded = self._shown = 0
        self._decoder = StreamDecoder(model.assets)
        for number in self.ids:
            self._decoder.feed(number)

    def read_tokens(self) -> list[TokenText]:
        """The tokens of the prompt."""
        tokenizer: Tokenizer = self.model.assets
        before, previous, found = 0, None, []
        ends = tokenizer.encode(self.prompt).offsets[:, 1].tolist()
        scores = prompt_scores(self.model, [self.start, *self.ids], self.top or 0)
        for token, end in zip(scores, ends, strict=True):
            found.append(token_text(tokenizer, token, previous, before, self.prompt[before:end]))
            before, previous = max(before, end), token.id
        return found

    def part(self, piece: TextPiece) -> CompletionPart:
        token, self._written = piece.token, self._written + 1
        self._shown += len(piece.text)
        if self.top is not None:
            tokenizer: Tokenizer = self.model.assets
            self._waiting.append(token_text(tokenizer, token, self._previous, self._base + self._decoded))
            self._decoded += len(self._decoder.feed(token.id))
            self._previous = token.id
        end = self._base + self._shown
        ready = [one for one in self._waiting if one.offset < end or piece.finished == "length"]
        self._waiting = self._waiting[len(ready) :]
        counts = (len(self.ids), self._written) if piece.finished else (0, 0)
        return CompletionPart(piece.row, piece.text, ready, piece.finished, *counts)


def token_text(
    tokenizer: Tokenizer, token: Token, previous: int | None, offset: int, text: str | None = None
) -> TokenText:
    """A token as it reads after another one, with the likeliest in its place; its own is always among them."""
    own = text or shown(tokenizer, token.id, previous)
    top = {shown(tokenizer, number, previous): value for number, value in token.top if value > float("-inf")}
    return TokenText(own, token.log_prob, {**top, own: token.log_prob}, offset)


def shown(tokenizer: Tokenizer, number: int, previous: int | None) -> str:
    r"""The text that a token adds; part of a character as `bytes:\xe2\x80`."""
    piece = tokenizer.piece(number, previous)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def _translated(model: Model, prompts: Sequence[str], options: Mapping[str, Any]) -> Iterator[CompletionPart]:
    top, stops = options.get("logprobs"), options.get("stop") or ()
    given = {key: value for key, value in options.items() if key not in ("logprobs", "stop")}
    chosen = WritingOptions(**given)
    found = searched(model, prompts, chosen)
    tokens = _scored(model, prompts, [some for _, some in found], top)
    for place, (answer, hypotheses) in enumerate(found):
        read = len(model.assets.source.ids(prompts[place]))
        for number, one in enumerate((answer, *answer.others)):
            cut = min((one.text.index(stop) for stop in stops if stop in one.text), default=None)
            text = one.text[:cut]
            finished: Finished = "stop" if one.ended or cut is not None else "length"
            row = place * chosen.n_best + number
            scores = _target_texts(model, tokens[place][number], text) if top is not None else ()
            yield CompletionPart(row, text, scores, finished, read, len(hypotheses[number].tokens))


def _scored(
    model: Model, prompts: Sequence[str], found: Sequence[Sequence[Any]], top: int | None
) -> list[list[list[Token]]]:
    """The tokens of each hypothesis of each prompt with their log-probabilities; none where nobody asked."""
    if top is None:
        return []
    network: Any = model.network
    rows = [(place, one) for place, some in enumerate(found) for one in some]
    scored: list[list[list[Token]]] = [[] for _ in found]
    room = model.together(SCORED_AT_ONCE)
    for first in range(0, len(rows), room):
        part = rows[first : first + room]
        sources = source_batch(model.assets, [model.assets.source.ids(prompts[place]) for place, _ in part])
        with model.answering("auto"):
            memory = network.encode(model.placed(sources))
            tokens = [one.tokens for _, one in part]
            results = token_scores(network, tokens, start=model.assets.target.begin, memory=memory, top=top)
        for (place, _), one in zip(part, results, strict=True):
            scored[place].append(one)
    return scored


def _target_texts(model: Model, tokens: Sequence[Token], text: str) -> list[TokenText]:
    """The tokens that begin inside the text of a translation."""
    tokenizer: Tokenizer = model.assets.target.tokenizer
    decoder, previous, at, found, lead = StreamDecoder(tokenizer), None, 0, [], 0
    for token in tokens:
        piece = decoder.feed(token.id)
        if not at:
            lead = len(piece) - len(piece.lstrip())  # sub-words begin with a blank
        own = shown(tokenizer, token.id, previous)
        offset = max(0, at - lead)
        found.append(token_text(tokenizer, token, previous, offset, own[lead:] if not at else None))
        at, previous = at + len(piece), token.id
    return [one for one in found if one.offset < len(text)]
