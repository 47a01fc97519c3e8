"""ServeSettings of the service: one frozen value that every part reads."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from unrolled.errors import UserError, unknown_name

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ServeSettings:
    """Bounds and choices of the service. Times are in seconds unless the name says otherwise."""

    host: str = "127.0.0.1"
    port: int = 8700
    api_key_file: Path | None = None  # None: no keys, on this machine only
    hosts: tuple[str, ...] = ()  # names besides those of this machine that a request may call the service by
    origins: tuple[str, ...] = ()  # other sites whose pages may call it: https://example.com
    proxy: str | None = None  # address of a proxy whose X-Forwarded-For is believed
    device: str = "cpu"
    threads: int | None = None  # of torch in each worker; None: half the cores
    memory: int | None = None  # bytes of all loaded models; None: no limit
    reload_every: float = 2.0  # how often the files of loaded models are looked at; 0: never
    access_log: bool = False  # a line for each request: route, status, time
    files: Path | None = None  # folder of word lists, lexicons and language models that requests may name

    max_wait_ms: float = 2.0  # that a request waits for others to join
    max_batch: int = 64  # inputs in a batch
    max_queue: int = 1024  # inputs that wait for one model
    slow_ms: float = 50.0  # expected time above which an input has a lane of its own
    timeout: float = 30.0  # of a request that names none
    max_timeout: float = 300.0
    drain: float = 30.0  # for accepted requests, after SIGTERM

    max_body: int = 32 * 2**20  # bytes
    max_header: int = 16 * 2**10  # bytes of all headers and the URL
    max_inputs: int = 256  # in a request
    max_chars: int = 100_000  # in an input
    max_trace: int = 2_000  # characters, or steps, of an input that is traced
    max_seconds: float = 600.0  # of a recording
    max_pixels: int = 25_000_000  # of a picture
    read_timeout: float = 10.0  # until the headers, and then the body, are there
    max_concurrency: int = 512  # requests at the same time
    max_writing: int = 16  # texts that are written at the same time, for clients that read along
    rate: float | None = None  # requests a second of one client; None: no limit
    burst: int = 50  # requests that a client may make at once, where there is a rate
    max_streams: int = 200  # sockets
    max_message: int = 2**20  # bytes of a message to a stream
    max_stream_seconds: float = 3600.0  # of sound in a stream
    max_stream_steps: int = 100_000  # characters, words, rows or frames in a stream
    max_kept: int = 64  # streams that wait for their client, where their state does not fit into a token
    stream_idle: float = 60.0  # until a stream whose client sends or reads nothing ends
    stream_keep: float = 600.0  # that a state token is good for
    state_key_file: Path | None = None  # signs state tokens; None: a random key of this process

    def __post_init__(self) -> None:
        for name in (
            "max_batch",
            "max_queue",
            "max_body",
            "max_inputs",
            "max_concurrency",
            "max_writing",
            "burst",
            "max_message",
        ):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)!r} is less than 1.", "Give a number from 1 up.")
        for name in ("timeout", "max_timeout", "read_timeout", "drain", "stream_idle", "stream_keep"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name}={getattr(self, name)!r} is not a time.", "Give seconds above 0.")

    @classmethod
    def of(cls, given: dict[str, Any]) -> ServeSettings:
        """ServeSettings by name; an unknown one is an error, paths may be texts."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise unknown_name("setting", name, known)
        paths: dict[str, Any] = {
            name: Path(given[name])
            for name in ("api_key_file", "files", "state_key_file")
            if given.get(name) is not None
        }
        several: dict[str, Any] = {name: tuple(given[name]) for name in ("hosts", "origins") if name in given}
        return cls(**{**given, **paths, **several})

    @property
    def local(self) -> bool:
        """True if only this machine reaches the address."""
        return self.host in LOOPBACK

    @property
    def worker_threads(self) -> int:
        return self.threads or max(1, (os.cpu_count() or 1) // 2)

    @property
    def workers(self) -> int:
        """Threads of a lane of a model; each computes with `worker_threads`."""
        return max(1, (os.cpu_count() or 1) // self.worker_threads)
