"""The files that a path means: one file, those of a folder, or those that a pattern matches."""

from __future__ import annotations

import glob
from collections.abc import Collection
from pathlib import Path

from unrolled.errors import UserError, note
from unrolled.text.files import is_file, reading, suffix_of

MAGIC = frozenset("*?[")
HIDDEN = (".", "_")  # first letters of files in a folder that are no data: .DS_Store, _SUCCESS


def is_several(path: str | Path) -> bool:
    """True for a folder, and for a pattern with *, ? or [ that is not itself a file."""
    path = Path(path)
    return _is_folder(path) or (not MAGIC.isdisjoint(str(path)) and not is_file(path))


def files_of(path: str | Path, suffixes: Collection[str] = ()) -> list[Path]:
    """The path itself, or the files of a folder or a pattern in the order of their names.

    Of a folder only files with one of the `suffixes` are taken, apart from .gz and .zst; () takes all. In a pattern **
    stands for folders.
    """
    path = Path(path)
    if not is_several(path):
        return [path]
    if not _is_folder(path):
        found = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]
        if not (files := [one for one in found if one.is_file()]):
            raise UserError(f"No file matches {path}.", "Give a file, a folder, or a pattern such as data/*.csv.")
        return files
    with reading(path, "folder"):
        inside = sorted(one for one in path.iterdir() if not one.name.startswith(HIDDEN) and one.is_file())
    files = [one for one in inside if not suffixes or suffix_of(one) in suffixes]
    if not files:
        expected = f"Expected files that end in {', '.join(suffixes)}." if suffixes else "Expected files in it."
        raise UserError(f"The folder {path} holds no data.", expected)
    if len(files) < len(inside):
        others = [one.name for one in inside if one not in files]
        note(f"{path}: {len(others)} files of other kinds are left out: {', '.join(others[:3])}.")
    return files


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # such as a very long name
        return False
