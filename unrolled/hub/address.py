"""The address of a model on the hub: hub:ORG/NAME, with a file and a revision if wanted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from unrolled.errors import UserError

HUB = "hub:"
FILE = "model.safetensors"  # the name of our file in a repository
_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
_FORM = re.compile(rf"(?P<repo>{_PART}/{_PART})(?:/(?P<file>[^@]+))?(?:@(?P<revision>.+))?")
_EXPECTED = "Expected hub:ORG/NAME, such as hub:anna/tagger, or hub:anna/tagger@REVISION."


@dataclass(frozen=True)
class Address:
    """A repository, a revision (a branch, tag or commit), and a file in it; None: the usual one.

    >>> Address.parse("hub:anna/tagger@v1")
    Address(repo='anna/tagger', revision='v1', file=None)
    >>> print(Address.parse("hub:anna/tagger/small.safetensors"))
    hub:anna/tagger/small.safetensors
    """

    repo: str
    revision: str | None = None
    file: str | None = None

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address that a text such as hub:ORG/NAME@REVISION gives."""
        found = _FORM.fullmatch(text.removeprefix(HUB))
        if found is None:
            raise UserError(f"{text!r} is not the address of a model on the hub.", _EXPECTED)
        file = found["file"]
        if file is not None and (not file.endswith(".safetensors") or ".." in file.split("/")):
            raise UserError(f"{text!r} names {file!r}.", "Models are .safetensors files: nothing else is downloaded.")
        return cls(found["repo"], found["revision"], file)

    def __str__(self) -> str:
        file = f"/{self.file}" if self.file else ""
        return f"{HUB}{self.repo}{file}" + (f"@{self.revision}" if self.revision else "")


def is_address(path: str | Path) -> bool:
    """True for hub:…; a file of that name is ./hub:…"""
    return str(path).startswith(HUB)
