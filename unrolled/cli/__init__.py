"""The `unrolled` command: one small file per verb, each calling a plain Python function."""

from unrolled.cli.app import main

__all__ = ["main"]
