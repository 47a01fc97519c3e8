"""The data of recipes: which files they read, the SHA-256 of each, and those that the stored scores were made with."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import unrolled
from unrolled.config import read_toml
from unrolled.config.stored import parsed
from unrolled.errors import UserError
from unrolled.training.checkpoint import write_atomically

FOLDER = Path(unrolled.__file__).parent.parent / "recipes"
RESULTS = FOLDER / "results"
STORED = "data.json"  # recipe → file → SHA-256, beside the stored scores
NAMED = 3  # files in a message


@dataclass(frozen=True)
class RecipeData:
    """The SHA-256 of every file that a recipe reads, and of those that its stored score was made with."""

    recipe: str
    files: Mapping[str, str]
    stored: Mapping[str, str] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        """The SHA-256 of all files together, in the order of their names: `sha256sum FILE… | sha256sum`."""
        return hashlib.sha256(_sums(self.files).encode()).hexdigest()

    @property
    def same(self) -> bool | None:
        """True if the stored score was made with the same data; none: no hash is stored, or there are no files."""
        return self.files == self.stored if self.stored and self.files else None

    @property
    def verdict(self) -> str:
        """A sentence about whether the stored score was made with this data."""
        if not self.files:
            return f"{self.recipe} reads no data files: it makes its own data."
        if not self.stored:
            return f"No hash of the data is stored with the score of {self.recipe}."
        if self.same:
            return "The stored score was made with the same data."
        other = [name for name in {**self.files, **self.stored} if self.files.get(name) != self.stored.get(name)]
        return f"The stored score was made with other data. Different: {_some(other)}."

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {"hash": self.hash, "same_as_stored": self.same, "files": dict(self.files)}

    def __str__(self) -> str:
        return f"data {self.hash}\n{self.verdict}" if self.files else self.verdict


def recipe_data(path: Path, data: Path, results: Path = RESULTS) -> RecipeData | None:
    """The data of a recipe in the folder `data`; None if the recipe does not name its files."""
    patterns = file_patterns(path)
    if patterns is None:
        return None
    files = {name: sha256_of(file) for name, file in files_of(patterns, data).items()}
    return RecipeData(path.stem, files, stored_hashes(results).get(path.stem, {}))


def file_patterns(path: Path) -> tuple[str, ...] | None:
    """The files that a recipe reads, relative to the data folder: names, or patterns such as names/*.txt.

    A config names them in its table `recipe`, a script in the constant DATA, which is read without running the script.
    """
    if path.suffix == ".toml":
        table = read_toml(path).data.get("recipe", {})
        return tuple(dict.fromkeys(table[part] for part in ("train", "valid", "test") if table.get(part)))
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == "DATA" for one in node.targets):
            return tuple(ast.literal_eval(node.value))
    return None


def files_of(patterns: Sequence[str], data: Path) -> dict[str, Path]:
    """The files by name, in the order of their names; an error says which are missing."""
    if patterns and not data.is_dir():
        raise UserError(f"{data} is not a folder.", "Give the folder of the data sets: --data FOLDER.")
    found: dict[str, Path] = {}
    missing: list[str] = []
    for pattern in patterns:
        files = [file for file in data.glob(pattern) if file.is_file()]
        missing += [] if files else [pattern]
        found |= {file.relative_to(data).as_posix(): file for file in files}
    if missing:
        raise UserError(
            f"{data} lacks files that this recipe reads: {_some(missing)}.",
            "Put them there. recipes/README.md names every data set.",
        )
    return dict(sorted(found.items()))


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stored_hashes(results: Path = RESULTS) -> dict[str, dict[str, str]]:
    """By recipe, the SHA-256 of the files that its score in a folder of results was made with."""
    path = results / STORED
    if not path.is_file():
        return {}
    try:
        found: dict[str, dict[str, str]] = parsed(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}.", "Restore it from the repository.") from None
    return found


def store_hashes(path: Path, data: Path | None, results: Path = RESULTS) -> None:
    """Store the hashes of a recipe's data beside its results. Files that are missing keep their old ones."""
    stored = stored_hashes(results)
    files = {
        file.relative_to(data).as_posix(): sha256_of(file)
        for pattern in file_patterns(path) or ()
        if data is not None
        for file in data.glob(pattern)
    }
    stored[path.stem] = dict(sorted({**stored.get(path.stem, {}), **files}.items()))
    write_atomically(results / STORED, json.dumps(dict(sorted(stored.items())), indent=1) + "\n")


def _sums(files: Mapping[str, str]) -> str:
    """As sha256sum prints them."""
    return "".join(f"{files[name]}  {name}\n" for name in sorted(files))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
