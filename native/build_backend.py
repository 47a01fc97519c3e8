"""scikit-build-core, except that a missing CMake, like a missing compiler, leaves the extension out and installs.

With the environment variable UNROLLED_REQUIRE_NATIVE=1 both are errors (pyproject.toml has the compiler's case).
"""

from __future__ import annotations

import os
from typing import Any

from scikit_build_core import build as _build
from scikit_build_core.build import *  # noqa: F403  # the hooks that stay as they are
from scikit_build_core.errors import NotFoundError

Settings = dict[str, Any] | None


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    try:
        return _build.build_wheel(wheel_directory, config_settings, metadata_directory)
    except NotFoundError as error:
        return _build.build_wheel(wheel_directory, _without_cmake(config_settings, error), metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    try:
        return _build.build_editable(wheel_directory, config_settings, metadata_directory)
    except NotFoundError as error:
        return _build.build_editable(wheel_directory, _without_cmake(config_settings, error), metadata_directory)


def _without_cmake(settings: Settings, error: NotFoundError) -> dict[str, Any]:
    if os.environ.get("UNROLLED_REQUIRE_NATIVE", "0") not in ("", "0"):
        raise error
    print(f"*** {error}: installing without the native engine")
    return {**(settings or {}), "wheel.cmake": "false", "wheel.py-api": "py3"}
