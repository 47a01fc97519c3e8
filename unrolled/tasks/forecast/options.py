"""Options of `forecast`."""

from __future__ import annotations

from collections.abc import Sequence

from unrolled.errors import UserError
from unrolled.tasks.options import Option, TaskOptions
from unrolled.tasks.shared.options import SEED


def read_horizon(given: Sequence[str]) -> int | list[int]:
    """The value of data.horizon for the texts of --horizon.

    >>> read_horizon(["1,6", "24"]), read_horizon(["[1, 6]"]), read_horizon(["3"])
    ([1, 6, 24], [1, 6], 3)
    """
    words = []
    for text in given:
        inner = text.strip()
        inner = inner[1:-1] if inner.startswith("[") and inner.endswith("]") else inner
        parts = [word.strip() for word in inner.split(",")]
        if not all(word.removeprefix("-").isdecimal() for word in parts):
            raise UserError(f"--horizon {text!r} is not a number of steps.", "Expected whole numbers: 1, or 1,6,24.")
        words += parts
    steps = [int(word) for word in words]
    return steps[0] if len(steps) == 1 else steps


TRAIN = (Option("data.horizon", "Steps ahead; several: 1,6,24", tuple, metavar="STEPS", parse=read_horizon),)
RUN = (
    SEED,
    Option("steps", "Continue for this many steps from the model's own predictions", int, minimum=1),
    Option("sample", "With --steps: sample from the predicted distribution", bool),
    Option("hold_inputs", "With --steps: repeat the last values of inputs that are not predicted", bool),
    Option("interval", "Add the bounds of this share of the distribution, such as 0.9", float, metavar="P"),
)
EVAL = ()
OPTIONS = TaskOptions(TRAIN, RUN, EVAL)
