"""Traces of models, and pictures and pages of traces and training runs."""

from unrolled.see.beams import Beams
from unrolled.see.figures.attention import attention_figure
from unrolled.see.figures.caption import attention_maps, compared_maps, hard_attention_maps, looked_at
from unrolled.see.figures.lengths import length_figure
from unrolled.see.frames import Frames
from unrolled.see.trace import AttentionMap, Forecasts, Guesses, ModelTrace, Part, Probe, check_memory

__all__ = [
    "AttentionMap",
    "Beams",
    "Forecasts",
    "Frames",
    "Guesses",
    "ModelTrace",
    "Part",
    "Probe",
    "attention_figure",
    "attention_maps",
    "check_memory",
    "compared_maps",
    "hard_attention_maps",
    "length_figure",
    "looked_at",
]
