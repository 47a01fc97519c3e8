"""The keys of a config that name files of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unrolled.config.reading import apply

FILE_KEYS = (
    *("train", "valid", "vectors", "train_source", "train_target", "valid_source", "valid_target"),
    *("images", "valid_images", "cache", "too_short"),
    *("source_vectors", "target_vectors"),
)


def data_paths(config: Any) -> dict[str, str]:
    """The paths that a config's data section names, by key: data.train and the like."""
    data = getattr(config, "data", None)
    found = {f"data.{name}": getattr(data, name, None) for name in FILE_KEYS}
    return {key: str(path) for key, path in found.items() if path is not None}


def with_absolute_paths(config: Any) -> Any:
    """The config with absolute paths, which are the same from any folder."""
    return apply(config, {key: str(Path(path).absolute()) for key, path in data_paths(config).items()})
