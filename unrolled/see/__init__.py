"""From traces and runs to pictures."""

from unrolled.see.captions import attention_maps
from unrolled.see.curves import curves
from unrolled.see.text import TextTrace
from unrolled.see.translation import attention_figure, length_figure

__all__ = ["TextTrace", "attention_figure", "attention_maps", "curves", "length_figure"]
