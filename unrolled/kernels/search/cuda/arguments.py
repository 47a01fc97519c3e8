"""The arguments of the kernels of searches: one structure for Python and for CUDA."""

from __future__ import annotations

import ctypes

from unrolled.kernels.cuda.structures import arguments_header, members

# name → type of the numbers, all contiguous. B rows with W hypotheses; K best tokens of each; C continuations of a row,
# which a history of T steps keeps
POINTERS = {
    "values": "const float",  # (B·W, K), the best log-probabilities
    "best_tokens": "const int64_t",  # (B·W, K)
    "endings": "const float",  # (B·W,), log-probabilities of the end
    "cover": "const double",  # (B, W), coverage terms; or none
    "forced": "const int64_t",  # (T, B), tokens of prefixes, -1 after them; or none
    "divisors": "const double",  # of outputs of 0, 1, … tokens
    "lengths": "const int64_t",  # (B,), the most tokens
    "time": "const int64_t",  # (1,), the number of this step
    "totals": "double",  # (B, W), of the hypotheses; overwritten with those of the next step
    "out_scores": "double",  # (B, W), of finished outputs, the best first
    "out_places": "int64_t",  # (B, W), time · C + continuation of each
    "active": "uint8_t",  # (B,), rows that go on
    "active_steps": "int64_t",  # (B,), the steps in which they did
    "going": "int64_t",  # (1,), set to one if a row goes on
    "past_totals": "double",  # (T, B, C), the continuations, the best first
    "past_tokens": "int64_t",  # (T, B, C)
    "past_origins": "int64_t",  # (T, B, C), the hypotheses that they continue
    "past_chosen": "int64_t",  # (T, B, W), the continuations that become the hypotheses of the next step
    "past_ends": "double",  # (T, B, W), totals with the end as the next token
    "flat": "int64_t",  # (B·W,), the row of the state that each hypothesis of the next step continues
    "next": "int64_t",  # (B·W,), its token; of drawing (B,), 0 if there is none to choose
    "times": "const int64_t",  # (B, n), the last step of each output
    "starts": "const int64_t",  # (B, n), its hypothesis there
    "traced": "int64_t",  # (B·n, T), its tokens before that step, then zeros
    "path": "int64_t",  # (B·n, T), its hypothesis at each step
    "log_probs": "const float",  # (B, V), of the next token
    "uniform": "const double",  # (slots, B), numbers in [0, 1)
    "slot": "const int64_t",  # (1,), the row of `uniform`, `drawn` and `picked` in this step
    "written": "const int64_t",  # (1,), tokens so far
    "forbidden": "const int64_t",  # tokens that are never drawn
    "drawn": "int64_t",  # (slots, B), the token; -1 if there is none to choose
    "picked": "float",  # (slots, B), its log-probability
}
INTEGERS = (
    "rows",
    "width",  # W
    "count",  # K
    "columns",  # C
    "best",  # outputs that are wanted of each row, n
    "steps",  # T of `traced`
    "end",  # the token that ends an output; -1: none
    "enough",  # a row is done when it has W outputs
    "vocabulary",
    "row_stride",  # of `log_probs`
    "forbidden_count",
    "min_tokens",  # before the end
)
DOUBLES = ("margin", "temperature")  # margin: infinite if there is none; temperature 0: the likeliest token


class SearchArguments(ctypes.Structure):
    """The structure; every member has 8 bytes, so that no compiler adds padding."""

    _fields_ = members(POINTERS, INTEGERS, *DOUBLES)


def header() -> str:
    """`arguments.h`, which the kernels include."""
    return arguments_header(POINTERS, INTEGERS, *DOUBLES)
