"""Pretrained vectors in the embeddings of word-level tokens."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from unrolled.errors import UserError, note
from unrolled.text import Tokenizer, Vectors


def load_token_vectors(embedding: nn.Embedding, tokenizer: Tokenizer, path: str, key: str, width: str) -> None:
    """Set the embeddings of all words that a file of vectors has, as they are written or in lower case.

    A note says how many were found. `key` is the config key of the file, `width` the one of the embeddings' size.
    """
    if tokenizer.level != "word":
        level = f"{key.removesuffix('vectors').rstrip('_')}.level" if key != "data.vectors" else "data.level"
        raise UserError(f"{key} are of words, and the tokens are of level {tokenizer.level}.", f"Use {level}=word.")
    first = len(tokenizer.vocabulary.specials)
    words = tokenizer.vocabulary.tokens[first:]
    vectors = Vectors.read(path, keep={*words, *(word.lower() for word in words)})
    if vectors.size != embedding.embedding_dim:
        raise UserError(
            f"The vectors of {path} have {vectors.size} numbers, and the model's have {embedding.embedding_dim}.",
            f"Use {width}={vectors.size}.",
        )
    places = vectors.ids(words)
    found = np.flatnonzero(places >= 0)
    with torch.no_grad():
        embedding.weight[torch.from_numpy(found + first)] = torch.from_numpy(vectors.matrix[places[found]])
    note(f"{path} has vectors of {len(found):,} of {len(words):,} words; the others start at random.")
