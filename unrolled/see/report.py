"""The page as one HTML file that works offline: its modules, plotly's script and all recorded answers."""

from __future__ import annotations

import base64
import html
import importlib.util
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from unrolled.errors import UserError
from unrolled.training.checkpoint import write_atomically

PAGE = files("unrolled.see") / "page"
MODULES = sorted(entry.name.removesuffix(".js") for entry in PAGE.iterdir() if entry.name.endswith(".js"))


def write_report(path: Path, recorded: Mapping[str, Any], title: str) -> None:
    """Write recorded answers, by the `key` of their query, together with the page that shows them."""
    check_place(path)
    data = json.dumps(recorded, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    modules = {name: _inside(page_file(f"{name}.js")) for name in MODULES}
    scripts = (
        f'<script type="application/json" id="recorded">{data}</script>\n'
        f"<script>{plotly_script().replace('</script', '<' + chr(92) + '/script')}</script>\n"
        f"{import_map(modules)}\n"
        '<script type="module">import "unrolled/main";</script>'
    )
    page = page_file("index.html").replace("<title>unrolled inspect</title>", f"<title>{html.escape(title)}</title>")
    page = page.replace("<!-- style -->", f"<style>{page_file('style.css')}</style>")
    page = page.replace("<!-- scripts -->", scripts)
    write_atomically(path, page.encode())


def check_place(path: Path) -> None:
    """Reject a path that no report can be written to."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{path} is not an HTML file: its name ends in {path.suffix!r}.", "Use .html.")
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent}.", "Create it first, or choose another folder.")
    plotly_script()


def key(kind: str, query: Mapping[str, str]) -> str:
    """The key that an answer is recorded under; `source.js` builds the same key."""
    pairs = sorted([name, value] for name, value in query.items() if value != "")
    return json.dumps([kind, *pairs], ensure_ascii=False, separators=(",", ":"))


def live_page() -> str:
    """The page that the server sends; it requests all data from the server."""
    modules = {name: f"/page/{name}.js" for name in MODULES}
    start = '<script type="module" src="/page/main.js"></script>'
    scripts = f'<script src="/plotly.js"></script>\n{import_map(modules)}\n{start}'
    style = '<link rel="stylesheet" href="/page/style.css">'
    return page_file("index.html").replace("<!-- style -->", style).replace("<!-- scripts -->", scripts)


def import_map(modules: Mapping[str, str]) -> str:
    """The import map that resolves `import "unrolled/…"`."""
    named = {f"unrolled/{name}": address for name, address in modules.items()}
    return f'<script type="importmap">{json.dumps({"imports": named})}</script>'


def page_file(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def plotly_script() -> str:
    """plotly's own script, from its pip package."""
    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        raise UserError("The page needs plotly, which is not installed.", "Install it: pip install 'unrolled[see]'")
    return (Path(found.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def _inside(module: str) -> str:
    return f"data:text/javascript;base64,{base64.b64encode(module.encode()).decode()}"
