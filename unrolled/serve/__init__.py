"""The inspector's page, and the service that answers with models over HTTP."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from unrolled.errors import UserError

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["app"]


def app(models: Any, **settings: Any) -> FastAPI:
    """The service as an ASGI app, to run or to mount anywhere.

    `models` are paths by name, {"mood": "runs/mood"}, a list of paths and NAME=PATH, or loaded models. `settings` are
    those of `unrolled.serve.service.settings.ServeSettings`: api_key_file, max_wait_ms, memory, ….
    """
    check_installed()
    from unrolled.serve.service.app import make_app
    from unrolled.serve.service.settings import ServeSettings

    return make_app(models, ServeSettings.of(settings))


def check_installed() -> None:
    """An error that names the packages that the service lacks."""
    needed = {
        "fastapi": "fastapi",
        "uvicorn": "uvicorn",
        "httptools": "httptools",
        "python_multipart": "python-multipart",
    }
    missing = [name for module, name in needed.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise UserError(
            f"The service needs packages that are not installed: {', '.join(missing)}.",
            "Install them: pip install 'unrolled[serve]'",
        )
