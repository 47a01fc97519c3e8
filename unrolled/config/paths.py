"""The keys of a config that name data: files, or data in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unrolled.config.reading import apply

FILE_KEYS = (
    *("train", "valid", "vectors", "train_source", "train_target", "valid_source", "valid_target"),
    *("images", "valid_images", "cache", "too_short"),
    *("source_vectors", "target_vectors"),
)
MEMORY = "memory:"  # begins the name of data that was given from Python: memory:DataFrame with 9 rows#2f07…


def data_paths(config: Any) -> dict[str, str]:
    """The paths that a config's data section names, by key: data.train and the like."""
    data = getattr(config, "data", None)
    found = {f"data.{name}": getattr(data, name, None) for name in FILE_KEYS}
    return {key: str(path) for key, path in found.items() if path is not None}


def in_memory(path: object) -> bool:
    """True for the name of data in memory."""
    return str(path).startswith(MEMORY)


def title_of(path: object) -> str:
    """The name of data in memory for people; any other path as it is.

    >>> title_of("memory:DataFrame with 9 rows#2f0771"), title_of("a.csv")
    ('DataFrame with 9 rows', 'a.csv')
    """
    return str(path).removeprefix(MEMORY).rpartition("#")[0] if in_memory(path) else str(path)


def with_absolute_paths(config: Any) -> Any:
    """The config with absolute paths, which are the same from any folder; data in memory keep their names."""
    files = {key: path for key, path in data_paths(config).items() if not in_memory(path)}
    return apply(config, {key: str(Path(path).absolute()) for key, path in files.items()})
