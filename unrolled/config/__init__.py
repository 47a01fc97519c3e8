"""Configurations: pydantic models are the truth, TOML is their form on disk, `--set a.b=c` changes single keys.

All mistakes are reported at once, each with the key's path, its value and what is expected.
"""

from unrolled.config.applies import asking, but, check_keys, fitting, only
from unrolled.config.describe import Key, Section, describe, keys
from unrolled.config.paths import FILE_KEYS, MEMORY, data_paths, in_memory, title_of
from unrolled.config.reading import TomlFile, apply, changes_of, read_config, read_toml
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
    "describe",
    "fitting",
    "in_memory",
    "keys",
    "only",
    "read_config",
    "read_toml",
    "title_of",
    "write_toml",
]
