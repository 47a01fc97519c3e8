"""`unrolled serve`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import typer

from unrolled.cli.options import Device
from unrolled.errors import UserError

SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Reach:
    """Flags about who reaches the service."""

    host: Annotated[str, typer.Option(help="Address to listen at. Others than this machine need --api-key-file.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.")] = 8700
    api_key_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="API keys, a line for each: KEY or NAME KEY.")
    ] = None
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A host name that requests may use; repeatable.")
    ] = None
    allow_origin: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="A site whose pages may call the service; repeatable.")
    ] = None
    proxy: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A proxy whose X-Forwarded-For names the client.")
    ] = None


@dataclass(frozen=True)
class Bounds:
    """Flags about sizes and times."""

    max_wait_ms: Annotated[float, typer.Option(min=0, help="Milliseconds that a request waits for others.")] = 2.0
    max_batch: Annotated[int, typer.Option(min=1, help="Inputs in a batch.")] = 64
    max_queue: Annotated[int, typer.Option(min=1, help="Inputs that may wait for one model.")] = 1024
    max_concurrency: Annotated[int, typer.Option(min=1, help="Requests at the same time.")] = 512
    max_streams: Annotated[int, typer.Option(min=0, help="Open streams at the same time.")] = 200
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for a request that names no time.")] = 30.0
    max_body: Annotated[str, typer.Option(metavar="SIZE", help="Largest body: 32M.")] = "32M"
    max_seconds: Annotated[float, typer.Option(min=0, help="Longest recording, in seconds.")] = 600.0
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Requests a second of one client. Default: no limit.")
    ] = None


@dataclass(frozen=True)
class Resources:
    """Flags about memory, threads and files."""

    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="For all loaded models: 2G. Default: no limit.")
    ] = None
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of one computation. Default: half the cores.")] = (
        None
    )
    files: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Lexicons and language models that requests may name.")
    ] = None
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log a line for each request: route, status, time.")
    ] = False
    reload_every: Annotated[float, typer.Option(min=0, help="Seconds between looks at model files; 0: never.")] = 2.0


def serve(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL…", help="Run folders, model files or hub:ORG/NAME; NAME=MODEL.")
    ],
    address: Reach,
    bounds: Bounds,
    resources: Resources,
    device: Device = "cpu",
) -> None:
    """Answer requests over HTTP with models: predictions, vectors, log-probabilities, traces, streams.

    The routes are described at /docs. SIGTERM lets accepted requests finish.
    """
    from unrolled.serve import check_installed

    check_installed()
    from unrolled.serve.service.process import run
    from unrolled.serve.service.settings import ServeSettings

    sizes = {"max_body": read_size(bounds.max_body, "--max-body")}
    memory = None if resources.memory is None else read_size(resources.memory, "--memory")
    given = {**vars(address), **vars(bounds), **vars(resources), **sizes, "memory": memory, "device": device}
    hosts, origins = given.pop("allow_host") or (), given.pop("allow_origin") or ()
    settings = ServeSettings.of({**given, "hosts": hosts, "origins": origins})
    run(models, settings, lambda text: typer.echo(text, err=True))


def read_size(text: str, flag: str) -> int:
    """A number of bytes.

    >>> read_size("2G", "--memory"), read_size("1500", "--memory")
    (2147483648, 1500)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None or float(found[1]) <= 0:
        raise UserError(f"{flag} {text!r} is no size.", "Give bytes, or with K, M or G: 500M, 2G.")
    return int(float(found[1]) * SIZES[found[2].upper()])
