"""Labels of tokens and gates in figures, and the fonts to draw them."""

from __future__ import annotations

from functools import cache

from unrolled.errors import note

GATES = {
    "i": "i, input gate",
    "f": "f, forget gate",
    "g": "g, candidate",
    "o": "o, output gate",
    "r": "r, reset gate",
    "z": "z, update gate",
    "n": "n, candidate",
    "h": "h, state",
    "c": "c, memory",
}
SQUASHED = ("i", "f", "o", "r", "z")  # between 0 and 1; other quantities are signed
OWN = ("DejaVu Sans", "DejaVu Sans Mono")  # included in matplotlib
# used, if installed, for characters that the fonts above lack
FALLBACKS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans CJK KR",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "Arial Unicode MS",
    "PingFang SC",
    "Hiragino Sans",
    "Apple SD Gothic Neo",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Nirmala UI",
    "Leelawadee UI",
    "Noto Sans",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Sans Bengali",
    "Noto Sans Tamil",
    "Noto Sans Thai",
    "FreeSans",
    "Unifont",
)
BOX = "□"


def plain(token: str) -> str:
    """A token with visible spaces, tabs and line ends.

    >>> plain("a b\\n")
    'a␣b↵'
    """
    return token.replace("\n", "↵").replace(" ", "␣").replace("\t", "⇥")


def shown(token: str) -> str:
    """The same token for matplotlib."""
    return drawable(plain(token))


def drawable(text: str) -> str:
    """A text for matplotlib and `fonts`: dollars are escaped, characters without a glyph are boxes."""
    if not text.isascii():
        known = _characters()
        if any(ord(letter) not in known for letter in text):
            text = "".join(letter if ord(letter) in known else BOX for letter in text)
            _note_missing_glyphs()
    return text.replace("$", r"\$")


@cache  # once, not for every label
def _note_missing_glyphs() -> None:
    note(
        "The installed fonts lack some characters of the figure, which are drawn as boxes. Install a font that has "
        "them, such as Noto Sans CJK for Chinese, Japanese and Korean."
    )


@cache
def fonts(family: str = OWN[0]) -> list[str]:
    """Installed fonts in the order of lookup."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return list(dict.fromkeys([family, *OWN, *(name for name in FALLBACKS if name in installed)]))


@cache
def _characters() -> frozenset[int]:
    """Code points of all characters that `fonts` can draw."""
    from matplotlib import font_manager

    places = [font_manager.findfont(font_manager.FontProperties(family=[name])) for name in fonts()]
    codes = (code for place in places for code in font_manager.get_font(place).get_charmap())
    return frozenset([ord("\n"), *codes])
