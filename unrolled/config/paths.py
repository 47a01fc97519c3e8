"""The keys of a config that name files of data."""

from __future__ import annotations

from typing import Any

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
