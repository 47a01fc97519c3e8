"""How tokens, gates and layers are written in pictures."""

from __future__ import annotations

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
# for scripts that matplotlib's own font lacks, where one of these is installed
FALLBACKS = ("Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans", "Droid Sans Fallback", "Arial Unicode MS")


def plain(token: str) -> str:
    """A token as it can be shown: blanks and line ends are marked.

    >>> plain("a b\\n")
    'a␣b↵'
    """
    return token.replace("\n", "↵").replace(" ", "␣").replace("\t", "⇥")


def shown(token: str) -> str:
    """The same for matplotlib, which reads formulas between dollars."""
    return plain(token).replace("$", r"\$")


def fonts(family: str = "DejaVu Sans") -> list[str]:
    """Fonts to look through for a character, those of this machine."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return [family, *(name for name in FALLBACKS if name in installed)]
