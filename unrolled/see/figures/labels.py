"""How tokens, gates and layers are written in pictures."""

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
SQUASHED = ("i", "f", "o", "r", "z")  # between 0 and 1; all else has a sign
OWN = ("DejaVu Sans", "DejaVu Sans Mono")  # they come with matplotlib
# for characters that they lack, where one of these is installed
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
    """A token as it can be shown: blanks and line ends are marked.

    >>> plain("a b\\n")
    'a␣b↵'
    """
    return token.replace("\n", "↵").replace(" ", "␣").replace("\t", "⇥")


def shown(token: str) -> str:
    """The same for matplotlib."""
    return drawable(plain(token))


def drawable(text: str) -> str:
    """A text as matplotlib can draw it with `fonts`: dollars are no formulas, a box stands for what no font has."""
    if not text.isascii():
        known = _characters()
        if any(ord(letter) not in known for letter in text):
            text = "".join(letter if ord(letter) in known else BOX for letter in text)
            _tell_of_boxes()
    return text.replace("$", r"\$")


@cache  # once, not for every label
def _tell_of_boxes() -> None:
    note(
        "No font of this machine has some characters of the picture: boxes stand for them. Install one that has them, "
        "such as Noto Sans CJK for Chinese, Japanese and Korean."
    )


@cache
def fonts(family: str = OWN[0]) -> list[str]:
    """Fonts to look through for a character, those of this machine."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return list(dict.fromkeys([family, *OWN, *(name for name in FALLBACKS if name in installed)]))


@cache
def _characters() -> frozenset[int]:
    """All that `fonts` can draw."""
    from matplotlib import font_manager

    places = [font_manager.findfont(font_manager.FontProperties(family=[name])) for name in fonts()]
    codes = (code for place in places for code in font_manager.get_font(place).get_charmap())
    return frozenset([ord("\n"), *codes])
