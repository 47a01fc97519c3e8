"""Input layers: a vector for each token, word or frame of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from unrolled.data import Batch
from unrolled.nn import LSTM
from unrolled.nn.embedding import Embedding
from unrolled.nn.front import DenseFront, ImageFront
from unrolled.text import Tokenizer, Vectors, Words


class TokenInput(nn.Module):
    """Token ids (B, T) → their vectors (B, T, E)."""

    timed = ()  # entries of a batch's `more` with a value for each step

    def __init__(self, vocabulary_size: int, size: int) -> None:
        super().__init__()
        self.embedding = Embedding(vocabulary_size, size)
        nn.init.normal_(self.embedding.weight, std=0.5)
        self.output_size = size

    def forward(self, batch: Batch) -> Tensor:
        vectors: Tensor = self.embedding(batch.inputs)
        return vectors


class WordInput(nn.Module):
    """Words (B, T) → [a vector looked up ; a vector made from the letters], (B, T, E + 2·letter_hidden).

    A bidirectional LSTM reads the letters of each distinct word of a batch once. In training a word's embedding is
    masked with the probability `word_dropout`, so that the network learns to handle unknown words.
    """

    timed = ("spelt",)

    def __init__(
        self,
        words: int,
        letters: int,
        *,
        size: int,
        letter_size: int,
        letter_hidden: int,
        word_dropout: float,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        self.word_dropout = word_dropout
        self.words = Embedding(words, size)
        nn.init.normal_(self.words.weight, std=0.1)
        self.words.weight.requires_grad_(not frozen)
        self.output_size = size
        self.letters: nn.Embedding | None = None
        if letter_hidden:
            self.letters = Embedding(letters, letter_size)
            self.speller = LSTM(letter_size, letter_hidden, batch_first=True, bidirectional=True)
            self.output_size += 2 * letter_hidden

    def forward(self, batch: Batch) -> Tensor:
        ids = batch.inputs
        if self.training and self.word_dropout:
            ids = ids.masked_fill(torch.rand(ids.shape, device=ids.device) < self.word_dropout, 0)
        vectors: Tensor = self.words(ids)
        if self.letters is None:
            return vectors
        spelt = self.letters(batch.more["spellings"])  # (U, C, letter_size)
        _, (final, _) = self.speller(spelt, lengths=batch.more["spelling_lengths"])  # (2, U, letter_hidden)
        shapes = final.transpose(0, 1).flatten(1)  # (U, 2·letter_hidden)
        return torch.cat([vectors, nn.functional.embedding(batch.more["spelt"], shapes)], dim=-1)

    def word_vectors(self, words: Words) -> Vectors:
        """Embeddings of the words, without their letters."""
        known = len(words.vocabulary.specials)
        return Vectors(words.vocabulary.tokens[known:], self.words.weight[known:].detach().float().cpu())

    def load_vectors(self, rows: Sequence[int], vectors: NDArray[np.float32]) -> None:
        """Set pretrained vectors for words by their ids."""
        with torch.no_grad():
            self.words.weight[list(rows)] = torch.from_numpy(vectors)


def token_vectors(tokenizer: Tokenizer, weight: Tensor) -> Vectors:
    """The vectors (V, E) of a tokenizer's tokens, each under its displayed name."""
    rows: dict[str, int] = {}
    for number in range(len(tokenizer)):
        rows.setdefault(tokenizer.token(number), number)
    return Vectors(rows, weight[list(rows.values())].detach().float().cpu())


class ScaledInput(nn.Module):
    """The scaling of frames: mean and deviation of each number over the training data, stored in the model."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.register_buffer("mean", torch.zeros(self.shape))
        self.register_buffer("deviation", torch.ones(self.shape))

    def fit(self, mean: NDArray[np.floating], deviation: NDArray[np.floating]) -> None:
        """Set the scaling; constant features are not scaled."""
        self.mean.copy_(torch.from_numpy(mean))
        self.deviation.copy_(torch.from_numpy(np.where(deviation > 1e-8, deviation, 1.0)))

    def fit_to(self, sequences: Sequence[NDArray[np.float32]]) -> None:
        """Set the scaling to the mean and deviation over all frames of some sequences."""
        frames = np.concatenate(sequences)
        self.fit(frames.mean(axis=0, dtype=np.float64), frames.std(axis=0, dtype=np.float64))


class FrameInput(ScaledInput):
    """Frames (B, T, D), or small images (B, T, H, W) or (B, T, H, W, C), scaled, through the front layers."""

    timed = ()

    def __init__(self, shape: Sequence[int], sizes: Sequence[int], dropout: float) -> None:
        super().__init__(shape)
        self.images = len(self.shape) > 1
        self.front: DenseFront | ImageFront
        if self.images:
            height, width, channels = (*self.shape, 1)[:3]
            self.front = ImageFront(channels, height, width, sizes[-1] if sizes else 64)
        else:
            self.front = DenseFront(self.shape[0], sizes, dropout)
        self.output_size = self.front.output_size

    def forward(self, batch: Batch) -> Tensor:
        x = (batch.inputs - self.mean) / self.deviation
        if self.images:
            x = x.unsqueeze(2) if len(self.shape) == 2 else x.movedim(-1, 2)  # (B, T, C, H, W)
        vectors: Tensor = self.front(x)
        return vectors
