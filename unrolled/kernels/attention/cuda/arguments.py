"""The arguments of the kernels of decoders with attention: one structure for Python and for CUDA."""

from __future__ import annotations

import ctypes

from unrolled.kernels.cuda.structures import arguments_header, members

# name → type of the numbers; all are contiguous. B rows, T steps, S positions; H units, G gates, P blocks of the step's
# product, F numbers fed to the cell, A of a key, C of a value, Q of a product of W_q. Sequences of the caller are
# (B, T, ·), ours (T, B, ·).
POINTERS = {
    "gates_x": "const uint16_t",  # (B, T, G·H)
    "keys": "const uint16_t",  # (B, S, A)
    "values": "const uint16_t",  # (B, S, C)
    "mask": "const uint8_t",  # (B, S), 1 where real
    "lengths": "const int64_t",  # (B,)
    "bias_h": "const float",  # (G·H,)
    "peepholes": "const float",  # (3, H)
    "vector": "const float",  # (A,)
    "bias_mix": "const float",  # (F,)
    "feed_mask": "const uint16_t",  # (B, T, F)
    "mix_mask": "const uint16_t",  # (B, T, C + H)
    # forward
    "h": "float",  # (B, H), the state
    "fed": "float",  # (B, F), the state of Luong's form
    "entering": "uint16_t",  # (T + 1, B, H + F): h and what is fed, as they enter each step
    "products": "const float",  # (B, P·H), of the step's entering row and [U | W_feed]
    "second_products": "const float",  # (B, H): U_n (r∘h) of a GRU that resets before its product
    "mixed_products": "const float",  # (B, F): W_c [c; h]
    "queries": "const float",  # (T, B, Q): W_q h, and with a gate w_β·h after it
    "reset_h": "uint16_t",  # (T, B, H): r∘h
    "mixing": "uint16_t",  # (T, B, C + H): [c; h]
    "saved": "uint16_t",  # (T, B, saved, H): gates for the backward pass
    "c_states": "float",  # (T + 1, B, H): c as it enters each step, and after the last
    "kept_weights": "float",  # (T, B, S)
    "output": "uint16_t",  # (B, T, H), or (B, T, F)
    "context": "uint16_t",  # (B, T, C)
    "weights": "uint16_t",  # (B, T, S)
    # backward
    "d_output": "const uint16_t",
    "d_context": "const uint16_t",
    "d_weights": "const uint16_t",
    "d_h": "float",  # (B, H): of the h that entered a later step, without what its products give
    "d_c": "float",  # (B, H)
    "d_fed": "float",  # (B, F)
    "d_entering": "const float",  # (B, H + F): through the product of the step after
    "d_hidden": "float",  # (B, H): through the query
    "d_mixing": "const float",  # (B, C + H)
    "d_reset_h": "const float",  # (B, H)
    "d_gates": "uint16_t",  # (T, B, P·H)
    "d_mixed": "uint16_t",  # (T, B, F), before the tanh
    "d_queries": "uint16_t",  # (T, B, Q)
    "d_contexts": "float",  # (T, B, C)
    "d_scores": "float",  # (T, B, S)
    "d_keys": "float",  # (B, S, A)
    "d_vectors": "float",  # (blocks, A), which add up to the gradient of the vector
}
INTEGERS = ("step", "steps", "batch", "positions", "hidden", "feed", "key_size", "value_size", "query_size")


class DecoderArguments(ctypes.Structure):
    """The structure; every member has 8 bytes, so that no compiler adds padding."""

    _fields_ = members(POINTERS, INTEGERS, "scale")


def header() -> str:
    """`arguments.h`, which the kernels include."""
    return arguments_header(POINTERS, INTEGERS, "scale")
