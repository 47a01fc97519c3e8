"""Names of languages as column names: codes such as de or pt-BR, and words."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CODES = frozenset(
    re.findall(
        r"\w+",
        "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz "
        "ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik "
        "io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml "
        "mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd "
        "se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi "
        "vo wa wo xh yi yo za zh zu ara ces cze dan deu ger ell gre eng fin fra fre heb hin hun ind ita jpn kor "
        "lat nld dut nor pol por ron rum rus spa swe tur ukr vie zho chi",
    )
)
_NAMES = frozenset(
    re.findall(
        r"\w+",
        "arabic bengali bulgarian catalan chinese croatian czech danish dutch english estonian finnish french "
        "german greek hebrew hindi hungarian icelandic indonesian irish italian japanese korean latin latvian "
        "lithuanian malay mandarin norwegian persian polish portuguese romanian russian serbian slovak slovenian "
        "spanish swahili swedish tamil thai turkish ukrainian urdu vietnamese welsh deutsch englisch französisch "
        "spanisch italienisch français anglais allemand español inglés italiano português",
    )
)


def language_pair(names: Sequence[str]) -> tuple[int, int] | None:
    """Positions of two columns named after different languages, if there are exactly two.

    >>> language_pair(["id", "de", "en"]), language_pair(["English", "pt-BR"]), language_pair(["de", "text"])
    ((1, 2), (0, 1), None)
    """
    found = [i for i, name in enumerate(names) if _is_language(name, alone=len(names) == 2)]
    if len(found) != 2 or names[found[0]].strip().lower() == names[found[1]].strip().lower():
        return None
    return found[0], found[1]


def _is_language(name: str, *, alone: bool) -> bool:
    """True if a column is named after a language; `id` is Indonesian only in a table of two columns."""
    name = name.strip().lower()
    if name == "id" and not alone:
        return False
    return name in _NAMES or re.sub(r"[-_][a-z]{2,4}$", "", name) in _CODES
