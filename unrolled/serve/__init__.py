"""Models to look at: one input, several models, the page."""

from unrolled.serve.asked import Asked

__all__ = ["Asked"]
