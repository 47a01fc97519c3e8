"""What a kernel is given: one structure, written down once for Python and for CUDA."""

from __future__ import annotations

import ctypes

# name → what it points to; (T, B, ·) and contiguous unless strides are among the integers below. H is the number of
# units, H' that with those which fill it up.
POINTERS = {
    "gates_x": "const uint16_t",  # (B, T, G·H), strided: the input's part of each gate
    "weights": "const uint16_t",  # (G·H, H)
    "second_weights": "const uint16_t",  # of a GRU that resets before: those of its candidate
    "weights_x": "const uint16_t",  # (G·H, D), where a step has its input as it is
    "bias_x": "const void",  # (G, H): the input's bias and the recurrent one, in 16 bits, or in 32 if they are wide
    "bias_h": "const void",
    "own": "const float",  # (≤ 3, H): a unit's own weights
    "lengths": "const int64_t",  # (B,)
    "resets": "const uint8_t",  # (B, T), strided
    "h_initial": "const uint16_t",  # (B, H), and so the other states
    "c_initial": "const uint16_t",
    "h_reset": "const float",
    "c_reset": "const float",
    "exchange": "uint16_t",  # (T, B, H'): h as it enters each step
    "second_exchange": "uint16_t",  # (T, B, H'): r∘h, where a GRU resets before
    "output": "uint16_t",  # (B, T, H), strided
    "saved": "uint16_t",  # (T, B, S·H'): gates for the backward pass
    "memory": "float",  # (T, B, H'): c as it leaves each step
    "h_final": "uint16_t",
    "c_final": "uint16_t",
    "d_output": "const uint16_t",  # (B, T, H), strided
    "d_h_final": "const uint16_t",
    "d_c_final": "const uint16_t",
    "d_gates": "uint16_t",  # (T, B, G·H'): of the recurrent product
    "d_candidate": "uint16_t",  # (T, B, H'): of the candidate's product, where a GRU resets before
    "d_gates_x": "uint16_t",  # (T, B, G·H): of the input's part, where it is not d_gates
    "d_bias": "float",  # (S, G, H'): sums over the steps; S threads share the rows
    "d_own": "float",  # (S, ≤ 3, H')
    "d_h_initial": "uint16_t",
    "d_c_initial": "uint16_t",
    "d_h_reset": "float",  # summed into
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
    "first_slot",  # of S
    "gates_x_row",
    "gates_x_step",
    "output_row",
    "output_step",
    "d_output_row",
    "d_output_step",
    "resets_row",
    "resets_step",
    "bias_wide",
    "units",  # of a single step: H, the input's, and the strides of its states
    "inputs",
    "state_row",
    "final_row",
)


class Arguments(ctypes.Structure):
    """The structure itself; every member has 8 bytes, so that no compiler pads it in a way of its own."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in POINTERS),
        *((name, ctypes.c_int64) for name in INTEGERS),
    )


def header() -> str:
    """`arguments.h`, which the kernels include."""
    pointers = "".join(f"    {kind}* {name};\n" for name, kind in POINTERS.items())
    integers = "".join(f"    int64_t {name};\n" for name in INTEGERS)
    return f"#pragma once\n\nstruct Arguments {{\n{pointers}{integers}}};\n"
