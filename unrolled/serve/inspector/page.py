"""The server of the page, on 127.0.0.1, which answers only its own page."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
import traceback
import webbrowser
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from unrolled.errors import UserError
from unrolled.see.report import MODULES, live_page, page_file, plotly_script
from unrolled.serve.inspector.inspection import Inspection

if TYPE_CHECKING:
    from fastapi import FastAPI

HOST = "127.0.0.1"
FIRST_PORT = 8650
PORTS = 50  # ports to try
MOST_BYTES = 8 * 2**20  # of a query: a text of a few million characters
KINDS = {**{f"{name}.js": "text/javascript" for name in MODULES}, "style.css": "text/css"}
# the page fetches nothing from other sites, even if a model's tokens contain HTML
POLICY = "default-src 'self' 'unsafe-inline' data: blob:; connect-src 'self'; frame-ancestors 'none'"


def make_app(inspection: Inspection, port: int) -> FastAPI:
    """The app: the page's own files by name, and answers to its queries. All other paths are 404."""
    from fastapi import FastAPI, Request
    from fastapi.concurrency import run_in_threadpool
    from fastapi.responses import HTMLResponse, JSONResponse, Response

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    @app.middleware("http")
    async def guard(request: Request, follow: Callable[[Request], Awaitable[Response]]) -> Response:
        """Reject requests from other sites and DNS rebinding."""
        origin = request.headers.get("origin")
        if request.headers.get("host") not in hosts or origin not in (None, *(f"http://{host}" for host in hosts)):
            return JSONResponse({"problem": f"This page is only available at http://{HOST}:{port}/."}, status_code=403)
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
            return JSONResponse({"problem": "File not found."}, status_code=404)
        return Response(page_file(name), media_type=KINDS[name])

    async def answer(request: Request) -> Response:
        kind = request.path_params["kind"]
        try:
            query = await _query(request)
            found = inspection.about() if kind == "about" else await run_in_threadpool(inspection.view, kind, query)
            return JSONResponse(found)
        except TooLarge as error:  # the rest of the body is not read
            return JSONResponse({"problem": str(error)}, status_code=413, headers={"Connection": "close"})
        except UserError as error:
            return JSONResponse({"problem": str(error)}, status_code=400)
        except Exception as error:
            traceback.print_exc()
            problem = f"The server failed with {type(error).__name__}: {error}. See its terminal for details."
            return JSONResponse({"problem": problem}, status_code=500)

    app.add_route("/api/{kind}", answer, methods=["POST"])  # a raw route: fastapi would read the whole body first
    return app


class TooLarge(UserError):
    """A query above the size limit."""

    def __init__(self, size: str) -> None:
        super().__init__(
            f"The query has {size}; the limit is {MOST_BYTES // 2**20} MiB.",
            "Give a long text as a file: unrolled inspect MODEL --file FILE",
        )


async def _query(request: Any) -> dict[str, str]:
    """The request's JSON object with string values; at most `MOST_BYTES` of it are held in memory."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > MOST_BYTES:
        raise TooLarge(f"{int(declared):,} bytes")
    body = bytearray()
    async for piece in request.stream():
        if len(body) + len(piece) > MOST_BYTES:
            raise TooLarge(f"over {MOST_BYTES:,} bytes")
        body += piece
    try:
        query = json.loads(bytes(body) or b"{}")
        if not isinstance(query, dict):
            raise ValueError
        values = {str(name): str(value) for name, value in query.items() if value is not None}
        for name, value in values.items():
            (name + value).encode()  # fails on half a surrogate pair
    except (ValueError, RecursionError):  # invalid UTF-8 is a ValueError too
        raise UserError("The query is not a JSON object of strings.", 'Expected one such as {"text": "…"}.') from None
    return values


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
        raise UserError(f"Port {wanted} is in use.", "Leave out --port to use the next free one.")
    raise UserError(f"The ports from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} are all in use.", "Give another: --port.")


def check_installed() -> None:
    missing = [name for name in ("fastapi", "uvicorn", "plotly") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"The page needs packages that are not installed: {', '.join(missing)}.",
            "Install them: pip install 'unrolled[see]'. --figures works without them.",
        )


def serve(inspection: Inspection, port: int | None, browser: bool, say: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C and open a browser."""
    check_installed()
    inspection.check_opens()
    import uvicorn

    found = find_port(port)
    address = f"http://{HOST}:{found}/"

    class Server(uvicorn.Server):
        """Prints the address once the page can be opened."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                say(f"{address}  (press Ctrl-C to stop)")
                if browser:
                    threading.Thread(target=_open, args=(address, say), daemon=True).start()

    app = make_app(inspection, found)
    Server(uvicorn.Config(app, host=HOST, port=found, log_level="warning")).run()


def _open(address: str, say: Callable[[str], None]) -> None:
    try:
        opened = webbrowser.open(address)
    except webbrowser.Error:
        opened = False
    if not opened:
        say(f"No browser was found. Open {address} yourself.")
