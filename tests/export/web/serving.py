"""Exported models with pages, and their folders on a server like that of `python -m http.server`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.folders import folder_of
from unrolled import UserError, api
from unrolled.export.onnxruntime_web import DIGESTS, onnxruntime_files
from unrolled.export.page import page_files
from unrolled.model import Model

# texts in several scripts, with blanks and signs of all kinds
TEXTS = [
    "",
    "one fine two three",
    "Don't panic!  “Twice”: 3.5 km — state-of-the-art, a_b@c.org/x 'tis ''.",
    "Grüße, ΟΔΥΣΣΕΥΣ ΣΑΣ, İstanbul; naïve café e\u0301 ﬁn",
    "हिन्दी 猫だ ไทย 日本語テキスト한국어 עברית العربية",
    "👩‍💻👍🏽! 🇩🇪 a\u200db \ufeffbom x\u00a0y\u3000z\u2028w\x85v\x1cu\tt\nnew\n\nlines",
    '<unk> <bos> <eos> <b>bold</b> &amp; \\n "quoted" `code`',
    "we're they'll I'd it's'S 123abc 4,5.6 ½ Ⅷ ٣ x²",
    "w" * 45 + " " + "äöü" * 20 + " \U00020000\U0001f600 ~^°",
]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder on a server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@functools.cache
def _asked() -> dict[str, bytes] | str:
    """onnxruntime-web's files, or the reason why there are none: npm is asked once."""
    try:
        return onnxruntime_files()
    except UserError as error:
        return error.problem


def runtime_files() -> dict[str, bytes]:
    """onnxruntime-web's; where neither a kept copy nor npm has it, the test is skipped."""
    found = _asked()
    if isinstance(found, str):
        pytest.skip(f"no onnxruntime-web: {found}")
    return found


def with_page(folder: Path, files: dict[str, bytes] | None = None) -> Path:
    """An exported model's folder with a page beside its graphs."""
    for name, content in page_files(runtime_files() if files is None else files).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@functools.cache
def stored_page(kind: str) -> Path:
    """The folder of a stored model, exported with a page."""
    runtime_files()
    return with_page(folder_of(kind))


def modules_alone(folder: Path) -> Path:
    """The page's modules without a model and without onnxruntime-web, which is an empty file."""
    return with_page(folder, dict.fromkeys(DIGESTS, b""))


def exported(model: Model, folder: Path, weights: str = "fp32") -> Path:
    """A model exported with a page."""
    runtime_files()
    api.export_onnx(model, folder, check=False, weights=weights)
    return with_page(folder)


def opened(page: Any, address: str) -> None:
    """Wait until the page has loaded its model."""
    page.goto(address)
    page.wait_for_selector("#view[data-ready]")


ANSWERS = """async ([task, inputs, options]) => {
  const { openGraphs } = await import("/web/graphs.js");
  const { modelOf } = await import(`/web/${task}.js`);
  const manifest = await (await fetch("/manifest.json")).json();
  const model = modelOf(manifest, (await openGraphs(manifest)).known);
  const found = [];
  for (const input of inputs) found.push(await model.answer(input, options));
  return found;
}"""


def answers(page: Any, task: str, inputs: Sequence[Any], options: dict[str, Any] | None = None) -> list[Any]:
    """The answers of the page's model, in the open page."""
    found: list[Any] = page.evaluate(ANSWERS, [task, list(inputs), options or {}])
    return found


def settled(page: Any) -> None:
    """Wait until the last answer is shown."""
    page.wait_for_selector("#status:not([data-busy]):not(:empty)")
