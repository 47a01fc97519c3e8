"""Phones by their names: the error rate of phones is called by its own name."""

from __future__ import annotations

import re
from collections.abc import Iterable

# ARPAbet (CMUdict, TIMIT), and signs of silence and noise that stand beside phones.
ARPABET = {
    "AA", "AE", "AH", "AO", "AW", "AX", "AXR", "AY", "B", "CH", "D", "DH", "DX", "EH", "EL", "EM", "EN", "ENG", "ER",
    "EY", "F", "G", "HH", "HV", "IH", "IX", "IY", "JH", "K", "L", "M", "N", "NG", "NX", "OW", "OY", "P", "Q", "R",
    "S", "SH", "T", "TH", "UH", "UW", "UX", "V", "W", "WH", "Y", "Z", "ZH", "AX-H", "BCL", "DCL", "GCL", "KCL", "PCL",
    "TCL", "PAU", "EPI", "H#",
}  # fmt: skip
SILENCE = {"SIL", "SP", "SPN", "NSN", "NOISE", "<SIL>", "[SIL]", "|", "#"}
_IPA = re.compile(r"[\u0250-\u02b8\u02c8\u02cc\u02d0æðŋøœçβθχ]")


def are_phones(names: Iterable[str]) -> bool:
    """True if symbols are phones: all of ARPAbet, with or without stress, or many with letters of the IPA.

    >>> are_phones(["AH0", "L", "OW1"]), are_phones(["dʒ", "ʌ", "s", "t"]), are_phones(["one", "two"])
    (True, True, False)
    >>> are_phones(["a", "b", "c"])
    False
    """
    spoken = [name for name in names if name.upper() not in SILENCE]
    bare = [name.upper().rstrip("012") for name in spoken]
    if not bare:
        return False
    if all(name in ARPABET for name in bare):
        return any(len(name) > 1 for name in bare)  # B, D and G alone may be letters
    return sum(bool(_IPA.search(name)) for name in spoken) >= len(spoken) / 4


def error_rate_name(names: Iterable[str]) -> str:
    """The name of the error rate of symbols: `phone_error_rate`, or `label_error_rate`."""
    return "phone_error_rate" if are_phones(names) else "label_error_rate"
