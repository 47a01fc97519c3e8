"""True texts of a model of symbols: words of a lexicon, or the symbols themselves."""

from __future__ import annotations

from collections.abc import Sequence

from unrolled.errors import UserError
from unrolled.metrics.recognition import ReferenceKind, reference_kind
from unrolled.search import Lexicon
from unrolled.search.ctc.label_text import label_text
from unrolled.tasks.shared.options import REFERENCE_KIND


def told_apart(
    references: Sequence[str],
    labels: Sequence[str],
    lexicon: Lexicon | None,
    asked: ReferenceKind | None,
    *,
    symbols: bool,
    lowercase: bool,
) -> ReferenceKind | None:
    """The kind of the references, `asked` if the user names one; None: labels are letters, so words and labels are
    one text."""
    REFERENCE_KIND.check(asked)
    if asked and not symbols:
        raise UserError(
            f"reference_kind={asked} tells words from labels, and this model's labels are letters.", "Leave it out."
        )
    if asked == "words" and lexicon is None:
        raise UserError("reference_kind=words needs the words.", "Give them with lexicon (--lexicon).")
    if not symbols:
        return None
    spelt = () if lexicon is None else lexicon.spellings()
    words = [word for word, spelling in spelt if label_text(spelling, symbols=True) != word]
    return reference_kind(references, labels, [word.lower() for word in words] if lowercase else words, asked)
