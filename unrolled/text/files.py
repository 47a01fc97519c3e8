"""Opening files, with a clear error where that fails."""

from __future__ import annotations

import codecs
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from unrolled.config.paths import in_memory, title_of
from unrolled.errors import UserError
from unrolled.text.packed import is_packed, shell_command, unpacking


def _path_of(kind: str) -> str:
    """
    >>> _path_of("ARPA file")
    'Give the path of an ARPA file.'
    """
    return f"Give the path of {'an' if kind[0] in 'AEIOaeio' else 'a'} {kind}."


def suffix_of(path: Path) -> str:
    """The suffix that names the format of a file, without .gz and .zst."""
    return Path(path.stem).suffix if is_packed(path) else path.suffix


def not_held(path: object, folder: object = "FOLDER") -> UserError:
    """The error for data that was in memory when a config was made, and is not now."""
    return UserError(
        f"The data was given from Python ({title_of(path)}), and no file keeps it.",
        f"Give it again from there: unrolled.resume({str(folder)!r}, train=…). Or write the same examples to a file "
        "and name it: --set data.train=FILE",
    )


@contextmanager
def reading(path: Path, kind: str = "UTF-8 text file") -> Iterator[None]:
    """Turn errors of the file system into messages."""
    try:
        yield
    except FileNotFoundError:
        if in_memory(path):
            raise not_held(path) from None
        raise UserError(f"{path} does not exist.", _path_of(kind)) from None
    except IsADirectoryError:
        raise UserError(f"{path} is a directory.", _path_of(kind)) from None
    except PermissionError:
        raise UserError(f"{path} cannot be read: permission denied.", f"Try: chmod u+r {path}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None


def as_utf8(raw: bytes, name: str | Path) -> bytes:
    """Text with a byte order mark of UTF-16 or UTF-32 as UTF-8; all other bytes unchanged."""
    marks = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16"}
    marks[codecs.BOM_UTF16_BE] = "utf-16"
    for mark, encoding in marks.items():  # UTF-32 first: its mark begins like that of UTF-16
        if raw.startswith(mark):
            try:
                return raw.decode(encoding).encode()
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{name} is not whole {encoding.upper()}, as its first bytes say: {error.reason} at offset "
                    f"{error.start}.",
                    "Save it again, as UTF-8.",
                ) from None
    return raw


def iconv_command(path: str | Path, encoding: str) -> str:
    """The shell command that converts a file to UTF-8. The suffix stays, since it decides how the file is read.

    >>> iconv_command("old/reviews.csv", "latin1")
    'iconv -f latin1 -t utf-8 old/reviews.csv > converted.csv'
    >>> iconv_command("reviews.tsv.gz", "latin1")
    'gzip -dc reviews.tsv.gz | iconv -f latin1 -t utf-8 > converted.tsv'
    """
    path = Path(path)
    name, convert = shlex.quote(str(path)), f"iconv -f {encoding} -t utf-8"
    command = f"{shell_command(path)} | {convert}" if is_packed(path) else f"{convert} {name}"
    return f"{command} > converted{suffix_of(path) or '.txt'}"


def not_text(path: str | Path, raw: bytes, offset: int = 0) -> UserError | None:
    """The error for a zero byte in `raw`, part of a text file from an offset on; None without one. UTF-16 has many."""
    zero = raw.find(b"\0")
    if zero < 0:
        return None
    problem = f"{path} is not text: it has a zero byte at offset {offset + zero}."
    start, even = raw[:1000], offset % 2
    half = len(start) // 2
    for encoding, zeros, others in (
        ("utf-16le", start[1 - even :: 2], start[even::2]),
        ("utf-16be", start[even::2], start[1 - even :: 2]),
    ):
        if half > 1 and zeros.count(0) > 0.5 * half and others.count(0) < 0.1 * half:
            fix = f"It seems to be UTF-16 without a byte order mark. Convert it: {iconv_command(path, encoding)}"
            return UserError(problem, fix)
    return UserError(problem, "Give a UTF-8 text file.")


def as_text(start: bytes) -> str:
    """The first bytes of a file decoded leniently, for a guess of its format."""
    for marks, encoding in (((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), "utf-16"), ((codecs.BOM_UTF8,), "utf-8-sig")):
        if start.startswith(marks):
            return start.decode(encoding, "replace")
    return start.decode("utf-8", "replace")


def is_file(path: Path) -> bool:
    """True for an existing file; False also for names that no file can have, such as very long ones."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


@contextmanager
def opened(path: Path, kind: str) -> Iterator[IO[bytes]]:
    """A file opened for reading, unpacked on the fly if its name ends in .gz or .zst."""
    with reading(path, kind), path.open("rb") as file:
        if not is_packed(path):
            yield file
            return
        with unpacking(path, file) as content:
            yield content


def check_new(path: Path) -> None:
    """Refuse to overwrite a file."""
    if path.exists():
        raise UserError(f"{path} exists already.", "Choose another name, or remove it first.")


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Iterator[Path]:
    """A temporary path to write to; it becomes `path` at the end, so that the file is complete or absent.

    force: a file that exists is replaced.
    """
    if not force:
        check_new(path)
    beside = path.with_name(f".new-{path.name}")
    try:
        yield beside
        beside.rename(path)
    except OSError as error:
        raise UserError(f"{path} could not be written: {error.strerror or error}.", "Choose another place.") from None
    finally:
        beside.unlink(missing_ok=True)


def utf8_lines(path: Path, expected: str) -> list[str]:
    """The lines of a small UTF-8 file; `expected` is the advice where it cannot be read."""
    try:
        return as_utf8(path.read_bytes(), path).decode("utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}.", expected) from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8.", "Convert it, for example with iconv.") from None
