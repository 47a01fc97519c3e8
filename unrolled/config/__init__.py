"""Configurations: pydantic models are the truth, TOML is their form on disk, `--set a.b=c` changes single keys.

All mistakes are reported at once, each with the key's path, its value and what is expected.
"""

from unrolled.config.applies import asking, but, check_keys, deciding, fitting, only, why_not
from unrolled.config.describe import Key, Section, describe, keys
from unrolled.config.paths import FILE_KEYS, MEMORY, data_paths, in_memory, title_of, with_absolute_paths
from unrolled.config.reading import (
    TomlFile,
    apply,
    changes_of,
    parsed_value,
    read_config,
    read_toml,
    refused,
    unknown_key,
)
from unrolled.config.writing import write_toml

__all__ = [
    "FILE_KEYS",
    "MEMORY",
    "Key",
    "Section",
    "TomlFile",
    "apply",
    "asking",
    "but",
    "changes_of",
    "check_keys",
    "data_paths",
    "deciding",
    "describe",
    "fitting",
    "in_memory",
    "keys",
    "only",
    "parsed_value",
    "read_config",
    "read_toml",
    "refused",
    "title_of",
    "unknown_key",
    "why_not",
    "with_absolute_paths",
    "write_toml",
]
