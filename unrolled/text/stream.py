"""Incremental decoding: text from ids that arrive one at a time."""

from __future__ import annotations

import codecs

from unrolled.text.base import Tokenizer


class StreamDecoder:
    """Decodes ids one by one; the pieces, joined, equal `decode` of all ids.

    A character of several bytes can be split over BPE tokens: it is held back until its last byte has arrived.
    To continue a prompt, feed the prompt's ids first and discard their text.

    >>> from unrolled.text.word import WordTokenizer
    >>> stream = StreamDecoder(WordTokenizer.train(["to be or not"]))
    >>> [stream.feed(number) for number in [4, 1, 2]] + [stream.finish()]
    ['to', ' be', ' not', '']
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._previous: int | None = None

    def feed(self, number: int) -> str:
        """The text that this id completes; sometimes empty."""
        number = int(self._tokenizer.vocabulary.check([number])[0])
        if self._tokenizer.vocabulary.is_control(number):
            return ""
        piece = self._tokenizer.piece(number, self._previous)
        self._previous = number
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """The rest that was held back: an incomplete character becomes U+FFFD. A new text can follow."""
        self._previous = None
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
