"""The error of a user's mistake, and its wording for unknown names."""

from __future__ import annotations

import difflib
import errno
import warnings
from collections.abc import Iterable


class UserError(ValueError, RuntimeError):
    """A user's mistake: `problem` says what is wrong, `fix` what to do about it.

    It is a ValueError and a RuntimeError because torch.nn raises one or the other for the same mistakes:
    code that catches torch's errors keeps working.

    >>> print(UserError("lengths[2]=9 is longer than the input's 7 steps.", "Pass lengths between 0 and 7."))
    lengths[2]=9 is longer than the input's 7 steps. Pass lengths between 0 and 7.
    """

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(f"{problem} {fix}".strip())
        self.problem = problem
        self.fix = fix


class UserTypeError(UserError, TypeError):
    """A `UserError` about a value of the wrong type, where torch.nn raises a TypeError."""


def unknown_name(kind: str, got: object, choices: Iterable[str]) -> UserError:
    """The error for a name that is not one of `choices`, with the nearest one suggested.

    >>> print(unknown_name("cell", "lstn", ["rnn", "lstm", "gru"]))
    Unknown cell 'lstn'. Did you mean 'lstm'? Choices: gru, lstm, rnn.
    """
    names = sorted(choices)
    if not names:
        return UserError(f"Unknown {kind} {got!r}.", "There are none.")
    lowered = {name.lower(): name for name in names}
    near = difflib.get_close_matches(str(got).lower(), lowered, n=1)
    hint = f"Did you mean {lowered[near[0]]!r}? " if near else ""
    return UserError(f"Unknown {kind} {got!r}.", f"{hint}Choices: {', '.join(names)}.")


class UnknownOption(UserTypeError):
    """An option that a layer or function does not have. Callers that rename options (CLI flags) can reword it."""

    def __init__(self, owner: str, name: str, known: Iterable[str]) -> None:
        self.name, self.known = name, list(known)
        error = unknown_name(f"{owner} option", name, self.known)
        super().__init__(error.problem, error.fix)


class Note(UserWarning):
    """A remark for the user. The command line prints it; in Python it is a warning."""


def note(text: str) -> None:
    """Show a remark to the user."""
    warnings.warn(text, Note, stacklevel=2)


def remedy(error: OSError) -> str:
    """The remedy for an error of the operating system, or "" where none is known.

    >>> remedy(OSError(errno.ENOSPC, "No space left on device"))
    'Free some space'
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space"
    if error.errno == errno.EFBIG:
        return "Raise the limit on the size of files (ulimit -f)"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "Raise the limit on open files (ulimit -n 4096)"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Make it writable"
    return ""
