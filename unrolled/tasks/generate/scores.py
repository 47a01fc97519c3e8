"""The log-probabilities of whole texts by a language model, many at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from unrolled.errors import UserError
from unrolled.models import LanguageModel
from unrolled.text import Tokenizer

ROWS = 64  # texts in a batch, of similar lengths


@torch.no_grad()
def log_probs_of(
    network: LanguageModel, tokenizer: Tokenizer, texts: Sequence[str], *, start: int, backward: bool
) -> list[float]:
    """log p of each text as a line of its own: what comes before it is a new line, and so is what follows it."""
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"log_prob takes a list of texts, got {texts!r}.")
    return token_log_probs(network, [_sequence(tokenizer, text, start, backward) for text in texts])


@torch.no_grad()
def token_log_probs(network: LanguageModel, given: Sequence[NDArray[np.int64]]) -> list[float]:
    """log p of each sequence of tokens after its first one."""
    network.eval()
    sequences = [torch.from_numpy(one) for one in given]
    scores = [0.0] * len(sequences)
    order = sorted(range(len(sequences)), key=lambda number: len(sequences[number]))
    for first in range(0, len(order), ROWS):
        rows = order[first : first + ROWS]
        for number, score in zip(rows, _scores(network, [sequences[n] for n in rows]), strict=True):
            scores[number] = score
    return scores


def _sequence(tokenizer: Tokenizer, text: str, start: int, backward: bool) -> NDArray[np.int64]:
    end = tokenizer.ids("\n")  # none where the model has never seen a new line
    ids = tokenizer.ids(text)
    return np.concatenate([[start], ids[::-1] if backward else ids, end]).astype(np.int64)


def _scores(network: LanguageModel, sequences: Sequence[Tensor]) -> list[float]:
    lengths = torch.tensor([len(sequence) - 1 for sequence in sequences], device=network.device)
    if int(lengths.max()) == 0:
        return [0.0] * len(sequences)
    padded = pad_sequence(list(sequences), batch_first=True).to(network.device)  # (B, T + 1)
    real = torch.arange(padded.shape[1] - 1, device=network.device) < lengths[:, None]
    scores, _ = network(padded[:, :-1], None, lengths=lengths)
    picked = scores.float().log_softmax(-1).gather(-1, padded[:, 1:, None]).squeeze(-1)
    totals: list[float] = picked.double().where(real, 0.0).sum(dim=1).tolist()
    return totals
