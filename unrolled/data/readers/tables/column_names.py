"""Roles of columns in a table, found by their usual names in any order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unrolled.data.readers.tables.languages import language_pair
from unrolled.errors import UserError


@dataclass(frozen=True)
class Role:
    """The role of a column: the config key that names it, and its usual names, ours first."""

    key: str
    names: tuple[str, ...]


_TEXT = (
    *("text", "sentence", "review", "content", "body", "document", "message", "comment", "tweet", "post"),
    *("utterance", "review_text", "review_body", "comment_text", "full_text", "raw_text", "clean_text", "frames"),
)
_LABEL = (
    *("label", "labels", "class", "category", "target", "tag", "y", "gold_label", "class_name", "label_name"),
    *("class_index", "sentiment", "polarity", "topic", "intent", "emotion", "stars", "rating"),
)
_FILE = ("file", "path", "filename", "file_name", "file_path", "filepath", "input")
_AUDIO = (
    *("audio", "wav", "recording", "audio_path", "audio_file", "audio_filepath", "wav_path", "wav_file"),
    *("wav_filename", "wav_filepath"),
)
_IMAGE = ("image", "img", "picture", "image_path", "image_file", "image_name", "image_filename", "img_path")

ROLES: Mapping[str, Role] = {
    "text": Role("data.text_column", _TEXT),
    "label": Role("data.label_column", _LABEL),
    "number": Role("data.label_column", (*_LABEL, "score")),
    "source": Role("data.source_column", ("source", "src", "source_text", "src_text", "source_sentence", "input")),
    "target": Role(
        "data.target_column",
        ("target", "tgt", "trg", "target_text", "tgt_text", "target_sentence", "translation", "output"),
    ),
    "file": Role("data.input_column", (*_FILE, *_AUDIO, *_IMAGE)),
    "transcript": Role(
        "data.text_column",
        ("text", "transcript", "transcription", "sentence", "transcripts", "normalized_text", "words", "label"),
    ),
    "tag": Role(
        "data.tag_column",
        (
            "label",
            "labels",
            "class",
            "tag",
            "tags",
            "target",
            "category",
            "class_name",
            "label_name",
            "phone",
            "phoneme",
            "gesture",
            "event",
            "activity",
        ),
    ),
    "sequence": Role(
        "data.sequence_column",
        (
            "sequence",
            "sequence_id",
            "seq",
            "seq_id",
            "session",
            "session_id",
            "recording",
            "recording_id",
            "trial",
            "trial_id",
            "utterance",
            "utterance_id",
            "id",
        ),
    ),
    "image": Role("data.image_column", ("image", *_IMAGE[1:], *_FILE)),
    "captions": Role(
        "data.caption_column", ("captions", "caption", "text", "sentence", "sentences", "description", "descriptions")
    ),
}
"""A name may have several roles: `target` is a label for classify and a text for translate."""

_NAME = re.compile(r"[^\W\d][\w .:/()#-]{0,39}")


def usual(name: str) -> str:
    """A name normalised for comparison: lower case, with underscores.

    >>> usual(" Review Text "), usual("class-index")
    ('review_text', 'class_index')
    """
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def column_key(role: str) -> str:
    """The config key that names the column of a role."""
    return ROLES[role].key if role in ROLES else f"data.{role}_column"


def our_name(role: str) -> str:
    """Our own name for the column of a role."""
    return ROLES[role].names[0] if role in ROLES else role


def find_column(names: Sequence[str], role: str, place: str, taken: Sequence[int] = ()) -> int | None:
    """The index of the column of a role among `names`; None if no name fits.

    Our own name wins; two of the other names are an error that names the key to set. A source and a target may be
    named after their languages: the left one is the source.

    >>> find_column(["id", "Sentence", "label"], "text", "t.tsv:1")
    1
    """
    usual_names = [usual(name) for name in names]
    own = our_name(role)
    if usual_names.count(own) > 1:
        raise UserError(f"{place} has {usual_names.count(own)} columns {own!r}.", "Give each a different name.")
    if own in usual_names and usual_names.index(own) not in taken:
        return usual_names.index(own)
    others = ROLES[role].names if role in ROLES else (role,)
    found = [i for i, name in enumerate(usual_names) if name in others and i not in taken]
    if len(found) > 1:
        candidates = " or ".join(repr(names[i].strip()) for i in found)
        raise UserError(
            f"{place} has {len(found)} columns that may hold the {role}: {candidates}.",
            f"Say which: --set {column_key(role)}={names[found[0]].strip()}",
        )
    if not found and role in ("source", "target"):
        return _language(names, role, taken)
    return found[0] if found else None


def _language(names: Sequence[str], role: str, taken: Sequence[int]) -> int | None:
    """The index of the source or target in columns named after two languages, from left to right."""
    pair = language_pair(names) or ()
    free = [at for at in (pair if role == "source" else reversed(pair)) if at not in taken]
    return free[0] if free else None


def find_columns(names: Sequence[str], roles: Sequence[str], place: str, taken: Sequence[int] = ()) -> list[int | None]:
    """`find_column` for several roles, each with a different column; our own names are assigned first."""
    found: list[int | None] = [None] * len(roles)
    gone = list(taken)
    usual_names = [usual(name) for name in names]
    for own in (True, False):
        for i, role in enumerate(roles):
            if found[i] is None and (not own or our_name(role) in usual_names):
                found[i] = find_column(names, role, place, gone)
                if found[i] is not None:
                    gone.append(found[i])  # type: ignore[arg-type]
    return found


def column_named(names: Sequence[str], column: str) -> int | None:
    """The index of a column by its exact name, or by the same name in another case."""
    stripped = [name.strip() for name in names]
    if column in stripped:
        return stripped.index(column)
    alike = [i for i, name in enumerate(stripped) if usual(name) == usual(column)]
    return alike[0] if len(alike) == 1 else None


def looks_like_names(cells: Sequence[str]) -> bool:
    """True if all cells could be names of columns: short, not sentences.

    >>> looks_like_names(["sentence", "stars"]), looks_like_names(["pos", "A fine film, all in all."])
    (True, False)
    """
    return all(_NAME.fullmatch(cell.strip()) and len(cell.split()) <= 3 for cell in cells)
