"""The page itself: its files, its policy, its errors, a phone, files opened without a server."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.browser import new_page
from tests.export.web.serving import opened, served, settled, stored_page
from unrolled.export.page import page_files

FILES = {name: content.decode() for name, content in page_files({}).items()}


def test_nothing_comes_from_elsewhere() -> None:
    """No address of another site, no inline script or style, no way to write HTML."""
    index = FILES["index.html"]
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', index)
    assert policy.startswith("default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self';")
    assert "unsafe-inline" not in policy
    assert re.findall(r"<script[^>]*>([^<]*)</script>", index) == [""]
    assert not re.search(r"<style|style=|\son\w+=", index)
    for name, text in FILES.items():
        assert not re.search(r"(inner|outer|Adjacent)HTML|document\.write|\beval\(|new Function", text), name
        found = re.findall(r"https?://[\w.:/-]+", text)
        assert set(found) <= {"http://127.0.0.1:8000", "http://www.w3.org/2000/svg", "https://x.y"}, name


def test_what_a_page_imports_is_there() -> None:
    for name, text in FILES.items():
        for other in re.findall(r"""(?:from|import\(|new URL\() ?["']\./([\w./-]+)["']""", text):
            assert f"web/{other}" in FILES or other.startswith("onnxruntime/"), f"{name} imports {other}"


def test_policy_in_the_browser(page: Any) -> None:
    with served(stored_page("classify")) as address:
        opened(page, address)
        blocked = page.evaluate(
            """async () => {
              const found = [];
              document.addEventListener("securitypolicyviolation", (event) => found.push(event.effectiveDirective));
              const script = document.createElement("script");
              script.textContent = "window.ran = true";
              document.body.append(script);
              const style = document.createElement("style");
              style.textContent = "body { color: red }";
              document.body.append(style);
              const picture = new Image();
              picture.src = "http://127.0.0.1:9/x.png";
              await new Promise((resolve) => { setTimeout(resolve, 200); });
              return [window.ran ?? false, found.sort()];
            }"""
        )
        assert blocked == [False, ["img-src", "script-src-elem", "style-src-elem"]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("graph", r"whole\.onnx is not the file that was exported: its SHA-256 is another one"),
        ("missing", r"whole\.onnx: 404 File not found\. Export the model again"),
        ("version", r"This page reads unrolled-onnx up to version 1, not unrolled-onnx 2"),
        ("task", r"This page has no view for the task caption"),
        ("level", r"This page does not know the level syllable"),
    ],
)
def test_a_damaged_folder(change: str, message: str, page: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(stored_page("classify-letters"), tmp_path / "copy")
    manifest = json.loads((folder / "manifest.json").read_text())
    if change == "graph":
        (folder / "whole.onnx").write_bytes((folder / "whole.onnx").read_bytes()[:-1] + b"!")
    elif change == "missing":
        (folder / "whole.onnx").unlink()
    elif change == "version":
        manifest["version"] = 2
    elif change == "task":
        manifest["task"] = "caption"
    else:
        manifest["assets"]["reader"]["tokenizer"]["level"] = "syllable"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with served(folder) as address:
        opened(page, address)
        assert re.search(message, page.inner_text(".problem"))
        assert page.inner_text("#facts") == "The model could not be loaded."


def test_without_a_server(page: Any) -> None:
    page.goto((stored_page("classify") / "index.html").as_uri())
    assert "python -m http.server --bind 127.0.0.1 8000" in page.inner_text("#help")


@pytest.mark.parametrize("kind", ["classify", "generate-gru", "recognize", "tag-crf", "translate-luong"])
def test_a_phone_and_the_dark(kind: str, browser: Any) -> None:
    with served(stored_page(kind)) as address, new_page(browser, color_scheme="dark") as page:
        page.set_viewport_size({"width": 360, "height": 700})
        opened(page, address)
        if kind != "recognize":
            page.fill("#text", "3 5 7 one fine " + "w" * 200)
            if page.query_selector("button.main"):
                page.click("button.main")
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 25, 29)"
        for field in page.query_selector_all("input, textarea, button, meter"):
            named = "field => field.labels?.length || field.textContent || field.ariaLabel"
            assert field.evaluate(named), field.get_attribute("id")
