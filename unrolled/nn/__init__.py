"""Layers: drop-in RNN, LSTM and GRU, `Recurrent` for a cell of your own, attention, the Transformer; the CTC loss."""

from __future__ import annotations

from typing import Any

from torch import nn

from unrolled.cells import Cell
from unrolled.errors import UserError, unknown_name
from unrolled.nn.attention import SCORES, Attention, MultiHeadAttention
from unrolled.nn.attention_decoder import AttentionDecoder
from unrolled.nn.ctc import ctc_align, ctc_loss, find_infeasible
from unrolled.nn.from_keras import from_keras
from unrolled.nn.handover import to_torch
from unrolled.nn.init import INITS, initialize
from unrolled.nn.layers import GRU, LSTM, RNN
from unrolled.nn.plane import MDLSTM
from unrolled.nn.positions import POSITIONS, Positions
from unrolled.nn.recurrent import Recurrent
from unrolled.nn.stack import COMBINATIONS
from unrolled.nn.state_files import TakenWeights, read_state, take_weights
from unrolled.nn.transformer import TransformerDecoder, TransformerEncoder

__all__ = [
    "CELLS",
    "COMBINATIONS",
    "GRU",
    "INITS",
    "LSTM",
    "MDLSTM",
    "POSITIONS",
    "RNN",
    "SCORES",
    "Attention",
    "AttentionDecoder",
    "MultiHeadAttention",
    "Positions",
    "Recurrent",
    "TakenWeights",
    "TransformerDecoder",
    "TransformerEncoder",
    "ctc_align",
    "ctc_loss",
    "find_infeasible",
    "from_keras",
    "initialize",
    "layer",
    "read_state",
    "take_weights",
    "to_torch",
]

CELLS: dict[str, type[nn.Module]] = {"rnn": RNN, "lstm": LSTM, "gru": GRU}


def layer(cell: str | type[Cell], input_size: int, hidden_size: int, **options: Any) -> nn.Module:
    """The layer for a cell's name, or for a cell class of your own.

    >>> layer("gru", 8, 16, num_layers=2, reset_after=False)
    GRU(8, 16, num_layers=2, reset_after=False)
    """
    if isinstance(cell, str):
        if cell not in CELLS:
            raise unknown_name("cell", cell, CELLS)
        return CELLS[cell](input_size, hidden_size, **options)
    if not (isinstance(cell, type) and issubclass(cell, Cell)):
        raise UserError(
            f"A cell must be a name or a class derived from unrolled.Cell, got {cell!r}.",
            f"Names: {', '.join(sorted(CELLS))}.",
        )
    return Recurrent(cell, input_size, hidden_size, **options)
