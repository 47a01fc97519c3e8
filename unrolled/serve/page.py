"""The page on this machine: an address on 127.0.0.1, answers for the page alone."""

from __future__ import annotations

import importlib.util
import socket
import threading
import webbrowser
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from unrolled.errors import UserError
from unrolled.see.report import MODULES, live_page, page_file, plotly_script
from unrolled.serve.inspection import Inspection

if TYPE_CHECKING:
    from fastapi import FastAPI

HOST = "127.0.0.1"
FIRST_PORT = 8650
PORTS = 50  # that are tried
KINDS = {**{f"{name}.js": "text/javascript" for name in MODULES}, "style.css": "text/css"}
# nothing is fetched from anywhere else, whatever a model's tokens look like
POLICY = "default-src 'self' 'unsafe-inline' data: blob:; connect-src 'self'; frame-ancestors 'none'"


def make_app(inspection: Inspection, port: int) -> FastAPI:
    """The service: the page's own files by name, and answers to its questions. It knows no other paths."""
    from fastapi import Body, FastAPI, Request
    from fastapi.responses import HTMLResponse, JSONResponse, Response

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    @app.middleware("http")
    async def guard(request: Request, follow: Callable[[Request], Awaitable[Response]]) -> Response:
        """Refuses what another site, or a name that points here, may send through the user's browser."""
        origin = request.headers.get("origin")
        if request.headers.get("host") not in hosts or origin not in (None, *(f"http://{host}" for host in hosts)):
            return JSONResponse({"problem": f"This page is at http://{HOST}:{port}/ alone."}, status_code=403)
        response = await follow(request)
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["Cache-Control"] = "no-store"
        return response

    @app.get("/")
    def page() -> Response:
        return HTMLResponse(live_page())

    @app.get("/plotly.js")
    def plotly() -> Response:
        return Response(plotly_script(), media_type="text/javascript")

    @app.get("/page/{name}")
    def file(name: str) -> Response:
        if name not in KINDS:
            return JSONResponse({"problem": "There is no such file."}, status_code=404)
        return Response(page_file(name), media_type=KINDS[name])

    @app.post("/api/{kind}")
    def answer(kind: str, query: dict[str, Any] = Body(default_factory=dict)) -> Response:  # noqa: B008
        given = {name: str(value) for name, value in query.items() if value is not None}
        try:
            return JSONResponse(inspection.about() if kind == "about" else inspection.view(kind, given))
        except UserError as error:
            return JSONResponse({"problem": str(error)}, status_code=400)

    return app


def find_port(wanted: int | None) -> int:
    """A free port: the wanted one, or the next from 8650 on."""
    for port in [wanted] if wanted is not None else range(FIRST_PORT, FIRST_PORT + PORTS):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    if wanted is not None:
        raise UserError(f"Port {wanted} is in use.", "Leave out --port: the next free one is taken.")
    raise UserError(f"The ports from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} are all in use.", "Give another: --port.")


def check_installed() -> None:
    missing = [name for name in ("fastapi", "uvicorn", "plotly") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"The page needs {' and '.join(missing)}, not installed here.",
            "Install what it needs: pip install 'unrolled[see]'. --figures works without.",
        )


def serve(inspection: Inspection, port: int | None, browser: bool, say: Callable[[str], None]) -> None:
    """Serves the page until Ctrl-C; opens a browser where there is one."""
    check_installed()
    import uvicorn

    found = find_port(port)
    address = f"http://{HOST}:{found}/"
    say(f"{address}  (Ctrl-C ends)")
    if browser:
        threading.Timer(0.5, lambda: _open(address, say)).start()
    uvicorn.run(make_app(inspection, found), host=HOST, port=found, log_level="warning")


def _open(address: str, say: Callable[[str], None]) -> None:
    try:
        opened = webbrowser.open(address)
    except webbrowser.Error:
        opened = False
    if not opened:
        say(f"No browser was found: open {address} in one.")
