"""The arguments of a kernel: one structure for Python and for CUDA."""

from __future__ import annotations

import ctypes

from unrolled.kernels.cuda.structures import arguments_header, members

# name → type of the numbers; (T, B, ·) and contiguous unless strides are among the integers below. H is the number of
# units, H' the number with padding.
POINTERS = {
    "gates_x": "const uint16_t",  # (B, T, G·H), strided: the input's part of each gate
    "weights": "const uint16_t",  # (G·H, H)
    "second_weights": "const uint16_t",  # those of the candidate, for a GRU that resets before its product
    "weights_x": "const uint16_t",  # (G·H, D), for a single step
    "bias_x": "const void",  # (G, H): the input's bias and the recurrent one; 16-bit numbers, or floats if bias_wide
    "bias_h": "const void",
    "unit_weights": "const float",  # (≤ 6, H): peepholes, or gains and shifts of norms
    "lengths": "const int64_t",  # (B,)
    "resets": "const uint8_t",  # (B, T), strided
    "h_initial": "const uint16_t",  # (B, H), as the other states
    "c_initial": "const uint16_t",
    "h_reset": "const float",
    "c_reset": "const float",
    "exchange": "uint16_t",  # (T, B, H'): the h that enters each step
    "second_exchange": "uint16_t",  # (T, B, H'): r∘h of a GRU that resets before its product
    "output": "uint16_t",  # (B, T, H), strided
    "saved": "uint16_t",  # (T, B, S·H'): gates for the backward pass
    "cell_states": "float",  # (T, B, H'): the c that leaves each step
    "h_final": "uint16_t",
    "c_final": "uint16_t",
    "d_output": "const uint16_t",  # (B, T, H), strided
    "d_h_final": "const uint16_t",
    "d_c_final": "const uint16_t",
    "d_gates": "uint16_t",  # (T, B, G·H'): of the recurrent product
    "d_candidate": "uint16_t",  # (T, B, H'): of the candidate's product of a GRU that resets before it
    "d_gates_x": "uint16_t",  # (T, B, G·H): of the input's part, if not the same as d_gates
    "d_bias": "float",  # (S, G, H'): sums over the steps of S rows, which add up to the gradient
    "d_unit_weights": "float",  # (S, ≤ 6, H')
    "d_h_initial": "uint16_t",
    "d_c_initial": "uint16_t",
    "d_h_reset": "float",  # added to
    "d_c_reset": "float",
}
INTEGERS = (
    "steps",
    "batch",
    "first_row",  # of this launch
    "end_row",
    "reverse",
    "group_rows",
    "chunk_rows",
    "first_accumulator",  # of S
    "gates_x_row",
    "gates_x_step",
    "output_row",
    "output_step",
    "d_output_row",
    "d_output_step",
    "resets_row",
    "resets_step",
    "bias_wide",
    "units",  # that a norm counts; of a single step: H, its inputs, and the strides of its states
    "inputs",
    "state_row",
    "final_row",
)


class Arguments(ctypes.Structure):
    """The structure; every member has 8 bytes, so that no compiler adds padding."""

    _fields_ = members(POINTERS, INTEGERS)


def header() -> str:
    """`arguments.h`, which the kernels include."""
    return arguments_header(POINTERS, INTEGERS)
