"""Pictures of letters with their names: all Latin letters in matplotlib's fonts."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np

from unrolled.data.readers.media.captions import Captioned
from unrolled.data.signals.views import View

GLYPHS = (
    "pictures of Latin letters → their Unicode names, all with their marks (matplotlib's DejaVu fonts); "
    "scores are not comparable with published ones"
)
FACES = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSerif-Italic", "DejaVuSansMono")
SIDE, SIZE, BASELINE = 32, 20, 23  # pixels: size of a picture, size of the letters, their position


def embedded_glyphs() -> list[Captioned]:
    """About 4,600 pictures of 32×32: `ä` → `latin small letter a with diaeresis`, in five faces."""
    import matplotlib
    from matplotlib.ft2font import FT2Font
    from PIL import Image, ImageDraw, ImageFont

    found = []
    for face in FACES:
        path = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{face}.ttf")
        font = ImageFont.truetype(str(path), SIZE)
        for code in sorted(FT2Font(str(path)).get_charmap()):
            name = unicodedata.name(chr(code), "")
            if not name.startswith("LATIN"):
                continue
            picture = Image.new("L", (SIDE, SIDE), 255)
            ImageDraw.Draw(picture).text((SIDE // 2, BASELINE), chr(code), fill=0, font=font, anchor="ms")
            pixels = np.repeat(np.array(picture)[..., None], 3, axis=-1)
            found.append(Captioned(View(pixels), (name.lower(),), f"{chr(code)} ({face})"))
    return found
