"""One time step each: the recurrent cells in plain torch, under their equations."""

from unrolled.cells.activations import ACTIVATIONS, Activation, activation
from unrolled.cells.attending import AttentionStep, BahdanauCell, LuongCell, Score
from unrolled.cells.base import AnyCell, BuiltIn, Cell, State, Step
from unrolled.cells.gru import GRUCell
from unrolled.cells.lstm import LSTMCell
from unrolled.cells.rnn import RNNCell
from unrolled.cells.trace import CellOf, ScanTrace, Trace
from unrolled.cells.visual import AttentionCell, VisualCell, drawn_place

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "AnyCell",
    "AttentionCell",
    "AttentionStep",
    "BahdanauCell",
    "BuiltIn",
    "Cell",
    "CellOf",
    "GRUCell",
    "LSTMCell",
    "LuongCell",
    "RNNCell",
    "ScanTrace",
    "Score",
    "State",
    "Step",
    "Trace",
    "VisualCell",
    "activation",
    "drawn_place",
]
