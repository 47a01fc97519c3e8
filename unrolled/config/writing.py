"""A configuration as TOML, with a comment above each key if wanted."""

from __future__ import annotations

import re
import textwrap
from operator import attrgetter

from unrolled.config.describe import Key, Section, describe, sections_of, toml_value

COMMENT_WIDTH = 100


def write_toml(config: Section, *, comments: bool, header: str = "") -> str:
    """The TOML text of all keys; `comments` puts meaning, choices or range, and default above each.

    A key whose value is None is written as a comment, or as "none" where its default is something else.

    >>> from pydantic import Field
    >>> from unrolled.config import Section
    >>> class Train(Section):
    ...     lr: float = Field(3e-4, gt=0, description="Learning rate.")
    ...     steps: int | None = Field(None, ge=1, description="Most steps.")
    >>> print(write_toml(Train(lr=0.1), comments=True), end="")
    # Learning rate. A number above 0. Default: 0.0003.
    lr = 0.1
    <BLANKLINE>
    # Most steps. A whole number, 1 or more, or none. Default: none.
    # steps =
    """
    clean = re.sub(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]", " ", header)  # TOML allows none of these
    blocks = ["\n".join(f"# {line}".rstrip() for line in clean.split("\n"))] if header else []
    known = describe(type(config))
    for section, meaning in {"": "", **sections_of(type(config))}.items():
        block = [_comment(_sentence(meaning))] if comments and meaning else []
        block += [f"[{section}]"] if section else []
        for key in known:
            parent, _, name = key.path.rpartition(".")
            if parent != section:
                continue
            if comments:
                blocks.append("\n".join(block))
                block = [_comment(_explain(key))]
            value = attrgetter(key.path)(config)
            if value is None:
                block.append(f"# {name} =" if key.default is None else f'{name} = "none"')
            else:
                block.append(f"{name} = {toml_value(value)}")
        blocks.append("\n".join(block))
    return "\n\n".join(block for block in blocks if block) + "\n"


def _explain(key: Key) -> str:
    """The comment of a key: meaning, possible values, default."""
    text = f"choices: {', '.join(key.choice_texts)}" if key.only_choices else key.type_text
    can_be = text[:1].upper() + text[1:]
    default = "none" if key.default is None else "" if key.default is ... else toml_value(key.default)
    parts = [_sentence(key.meaning), _sentence(can_be), f"Default: {default}." if default else "Required."]
    return " ".join(part for part in parts if part)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text[-1] in ".!?" else f"{text}."


def _comment(text: str) -> str:
    lines = textwrap.wrap(text, COMMENT_WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"# {line}" for line in lines)
