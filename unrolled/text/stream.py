"""Text from ids that come one at a time."""

from __future__ import annotations

import codecs

from unrolled.text.base import Tokenizer


class StreamDecoder:
    """Gives the text of each id as soon as it is certain; all that it gave, joined, is `decode` of all ids.

    A character of several bytes can be split over BPE tokens: it is held back until its last byte has come.
    To continue a prompt, feed the prompt's ids first and throw their text away: what follows is joined to them.

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
        """The text that has become certain with this id; often one token, sometimes none."""
        number = int(self._tokenizer.vocabulary.check([number])[0])
        if self._tokenizer.vocabulary.is_control(number):
            return ""
        piece = self._tokenizer.piece(number, self._previous)
        self._previous = number
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """What was still held back: a character whose end never came becomes U+FFFD. A new text can follow."""
        self._previous = None
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
