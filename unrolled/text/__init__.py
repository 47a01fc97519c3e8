"""Text to ids and back: characters, words, sub-words or symbols between blanks, with offsets into the text."""

from unrolled.text.base import Encoding, Tokenizer
from unrolled.text.bpe import BPETokenizer
from unrolled.text.char import CharTokenizer
from unrolled.text.stream import StreamDecoder
from unrolled.text.tokenizer import LEVELS, tokenizer_from_json, train_tokenizer
from unrolled.text.vectors import Vectors
from unrolled.text.vocabulary import UNK, Vocabulary
from unrolled.text.word import SymbolTokenizer, WordTokenizer
from unrolled.text.words import Words, split_words

__all__ = [
    "LEVELS",
    "UNK",
    "BPETokenizer",
    "CharTokenizer",
    "Encoding",
    "StreamDecoder",
    "SymbolTokenizer",
    "Tokenizer",
    "Vectors",
    "Vocabulary",
    "WordTokenizer",
    "Words",
    "split_words",
    "tokenizer_from_json",
    "train_tokenizer",
]
