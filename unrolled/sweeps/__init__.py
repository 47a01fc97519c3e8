"""Sweeps: trials of one task with other settings, searched by Optuna, in a folder that processes and machines share."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from unrolled.errors import UserError
from unrolled.lazy import lazy_names

if TYPE_CHECKING:
    from unrolled.sweeps.settings import SweepSettings, seconds_of
    from unrolled.sweeps.spaces import choice, integer, log, uniform
    from unrolled.sweeps.sweep import Sweep, run_sweep

__all__ = ["Sweep", "SweepSettings", "choice", "integer", "log", "run_sweep", "seconds_of", "uniform"]

_find = lazy_names(
    __name__,
    {
        "unrolled.sweeps.spaces": "choice integer log uniform",
        "unrolled.sweeps.settings": "SweepSettings seconds_of",
        "unrolled.sweeps.sweep": "Sweep run_sweep",
    },
)


def __getattr__(name: str) -> Any:
    if name == "run_sweep" and find_spec("optuna") is None:
        raise UserError("Sweeps need optuna, which is not installed.", "Install it: pip install 'unrolled[tune]'")
    return _find(name)
