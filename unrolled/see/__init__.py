"""From traces and runs to pictures."""

from unrolled.see.curves import curves
from unrolled.see.recognition import recognition_figure
from unrolled.see.text import TextTrace
from unrolled.see.translation import attention_figure, length_figure

__all__ = ["TextTrace", "attention_figure", "curves", "length_figure", "recognition_figure"]
