"""From traces and runs to pictures."""

from unrolled.see.curves import curves
from unrolled.see.text import TextTrace

__all__ = ["TextTrace", "curves"]
