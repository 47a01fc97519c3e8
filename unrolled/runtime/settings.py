"""A stored config, read by attribute: the config classes themselves belong to the networks, and need torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unrolled.errors import UserError
from unrolled.runtime.manifest import AGAIN


class StoredSettings:
    """A section of a config: its keys are attributes.

    >>> StoredSettings({"data": {"text_column": None}}).data.text_column is None
    True
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in values:
            raise UserError(f"The config in the manifest is damaged: it has no key {name!r}.", AGAIN)
        value = values[name]
        return StoredSettings(value) if isinstance(value, Mapping) else value

    def changed(self, changes: Mapping[str, Any]) -> StoredSettings:
        """The same with other values of keys such as data.text_column."""
        values = {name: dict(one) if isinstance(one, Mapping) else one for name, one in self._values.items()}
        for key, value in changes.items():
            section, _, name = key.partition(".")
            values[section][name] = value
        return StoredSettings(values)


def file_changes(given: Mapping[str, Any] | Sequence[str] | None, known: Sequence[str]) -> dict[str, Any]:
    """The keys about reading a file that --set changes; any other key is an error."""
    if given is None:
        return {}
    pairs = dict(given) if isinstance(given, Mapping) else dict(_pair(one) for one in given)
    for key in pairs:
        if key not in known:
            fix = f"For this file: {', '.join(known)}." if known else "Leave it out."
            raise UserError(f"{key} of a trained model cannot be set: only keys about reading a file can.", fix)
    return pairs


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign:
        raise UserError(f"--set {text} has no value.", "Expected KEY=VALUE, such as --set data.text_column=body.")
    return key.strip(), value.strip()
