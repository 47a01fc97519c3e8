"""The layers and engines against outside references, and against properties that hold for any recurrence."""

from __future__ import annotations

from collections.abc import Callable

from unrolled.errors import UserError
from unrolled.kernels import ENGINES


def engines_for(accepts: Callable[[str], object]) -> list[str]:
    """The engines for which `accepts(engine)` does not raise.

    An engine that cannot compute a case must say so, by name, in a UserError; `reference` computes every case.
    """
    accepting = []
    for engine in ENGINES:
        try:
            accepts(engine)
        except UserError as refusal:
            if f"engine {engine!r} cannot do this" not in str(refusal):
                raise
        else:
            accepting.append(engine)
    assert "reference" in accepting
    return accepting
