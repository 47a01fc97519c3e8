"""The page of an exported model: it runs the graphs in a browser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from unrolled.errors import UserError
from unrolled.model import Model

PAGE = files("unrolled.export") / "web"
SHARED = files("unrolled.see") / "page" / "elements.js"  # the inspector's page builds its elements with it, too
INDEX = "index.html"
BOX = "the page has a box for text"


def _no_frames(assets: Any, reader: Any) -> str:
    return f"It reads frames, and {BOX}." if reader.frames else ""


def _no_features(assets: Any, reader: Any) -> str:
    return f"It reads columns of features beside words, and {BOX}." if assets.features else _no_frames(assets, assets)


def _no_pictures(assets: Any, reader: Any) -> str:
    what = {"line": "pictures of lines", "frames": "frames"}.get(reader.kind)
    return "" if what is None else f"It reads {what}, and the page hears recordings."


def _nothing(assets: Any, reader: Any) -> str:
    return ""


# for each task with a page: the reason why a model of it has none, or ""
TASKS: dict[str, Callable[[Any, Any], str]] = {
    "classify": _no_frames,
    "generate": _nothing,
    "recognize": _no_pictures,
    "tag": _no_features,
    "translate": _nothing,
}


def check_page(model: Model) -> None:
    """Raise if there is no page for a model."""
    task = model.task.name
    if task not in TASKS:
        raise UserError(
            f"There is no page for a model of {task}.",
            f"There are pages for {', '.join(TASKS)}. Leave out --web (web=False).",
        )
    if reason := TASKS[task](model.assets, getattr(model.assets, "reader", None)):
        raise UserError(f"There is no page for this model. {reason}", "Leave out --web (web=False).")


def page_files(onnxruntime: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of the page by their place in the folder of the exported model."""
    found = {_place(file.name): file.read_bytes() for file in (*sorted(PAGE.iterdir(), key=_name), SHARED)}
    return found | {f"web/onnxruntime/{name}": content for name, content in onnxruntime.items()}


def _name(file: Traversable) -> str:
    return file.name


def _place(name: str) -> str:
    return name if name == INDEX else f"web/{name}"
