"""Sweeps: trials of one task with other settings, searched by Optuna, in a folder that processes and machines share."""

from unrolled.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "unrolled.sweeps.spaces": "choice integer log uniform",
        "unrolled.sweeps.settings": "SweepSettings seconds_of",
        "unrolled.sweeps.sweep": "Sweep run_sweep",
    },
)
