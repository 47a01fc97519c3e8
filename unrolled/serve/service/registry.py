"""The models of the service: loaded at first use, kept within a memory budget, and replaced when their file changes."""

from __future__ import annotations

import asyncio
import copy
import re
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unrolled.errors import UserError, unknown_name
from unrolled.hub import is_address
from unrolled.jobs import load_model
from unrolled.model import Model, find_file
from unrolled.model_file import read_about
from unrolled.serve.service.errors import LOG, ServiceError
from unrolled.serve.service.metrics import Metrics
from unrolled.serve.service.settings import ServeSettings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
Stamp = tuple[str, int, int, int]  # path, inode, size and time of a file


@dataclass(eq=False)
class Version:
    """A model as it was loaded from one state of its file. It lives until its last lease ends."""

    model: Model
    size: int  # bytes of its weights
    leases: int = 0
    copying: Any = field(default_factory=threading.Lock)
    shadow: Model | None = None

    def private(self) -> Model:
        """A copy of the model that a trace may hook and differentiate while the model itself answers others.

        Hold `copying` while using it.
        """
        if self.shadow is None:
            self.shadow = replace(self.model, network=copy.deepcopy(self.model.network))
        return self.shadow


@dataclass(eq=False)
class Served:
    """One model of the service by its name."""

    name: str
    path: str | None  # None: the model was given loaded
    task: str
    version: Version | None = None
    stamp: Stamp | None = None
    refused: Stamp | None = None  # a state of the file that could not be loaded
    error: str | None = None  # why the file's latest state is not used
    loads: int = 0
    last_used: float = 0.0
    loading: asyncio.Task[None] | None = None  # of all who wait for it

    @property
    def idle(self) -> bool:
        return self.version is not None and not self.version.leases


class ModelLease:
    """The use of one version of a model: the version stays while it lasts. Release it once, or use `with`."""

    def __init__(self, served: Served, version: Version) -> None:
        self.served, self.version, self.model = served, version, version.model
        version.leases += 1

    def release(self) -> None:
        self.version.leases -= 1

    def __enter__(self) -> ModelLease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Registry:
    """The models by name. Its methods are called in the event loop; files are read in a thread of its own."""

    def __init__(self, models: Mapping[str, str | Path | Model], settings: ServeSettings, metrics: Metrics) -> None:
        if not models:
            raise UserError("There is no model to serve.", "Give at least one run folder or model file.")
        self.settings = settings
        self._served = {name: _entry(name, given) for name, given in models.items()}
        self._reader = ThreadPoolExecutor(1, "unrolled-load")
        self._loads = metrics.counter("unrolled_model_loads_total", "Models loaded.", ("model",))
        self._failures = metrics.counter("unrolled_model_load_failures_total", "Files not loaded.", ("model",))
        self._evictions = metrics.counter("unrolled_model_evictions_total", "Models unloaded.", ("model",))
        metrics.gauge("unrolled_model_bytes", "Bytes of the weights of loaded models.", ("model",)).read = self.sizes

    def start(self) -> None:
        """Forget what belongs to an earlier event loop."""
        for served in self._served.values():
            served.loading = None

    @property
    def names(self) -> list[str]:
        return list(self._served)

    def served(self, name: str) -> Served:
        found = self._served.get(name)
        if found is None:
            error = unknown_name("model", name, self._served)
            raise ServiceError(404, str(error), "model_not_found", "model")
        return found

    def all(self) -> list[Served]:
        return list(self._served.values())

    def sizes(self) -> dict[tuple[str, ...], float]:
        return {(one.name,): float(one.version.size) for one in self._served.values() if one.version is not None}

    async def acquire(self, name: str) -> ModelLease:
        """The model of a name, loaded if it is not. Release the lease when the answer is there."""
        served = self.served(name)
        served.last_used = time.monotonic()
        while served.version is None:  # again where it was unloaded before this task went on
            await self._load_once(served)
        return ModelLease(served, served.version)

    async def _load_once(self, served: Served) -> None:
        """Read the file in a task that all share who wait for it: one who leaves does not stop it."""
        if served.loading is None:
            served.loading = asyncio.ensure_future(self._load(served))
            served.loading.add_done_callback(lambda task: _loaded(served, task))
        await asyncio.shield(served.loading)

    async def _load(self, served: Served) -> None:
        """Read the file; the old version, if there is one, stays where it cannot be read."""
        assert served.path is not None
        stamp = await self._in_reader(_stamp, served.path)
        try:
            self._make_room(served, stamp)
            model = await self._in_reader(load_model, find_file(served.path), device=self.settings.device)
            if model.task.name != served.task:
                raise UserError(
                    f"It is a model of {model.task.name} now, not of {served.task}.", "Restart the service."
                )
        except Exception as error:
            known = isinstance(error, (UserError, ServiceError))
            served.error = str(error) if known else f"It failed with {type(error).__name__}."
            served.refused = None if isinstance(error, ServiceError) else stamp  # memory may be free the next time
            self._failures.add(served.name)
            LOG.warning("model %s: its file was not loaded: %s", served.name, served.error)
            if served.version is None:
                if isinstance(error, ServiceError):
                    raise
                raise ServiceError(503, f"Model {served.name}: {served.error}", "model_not_loaded", "model") from None
            return
        served.version, served.stamp = Version(model, _bytes_of(model)), stamp
        served.error = served.refused = None
        served.loads += 1
        self._loads.add(served.name)
        LOG.info("model %s: loaded, %s parameters", served.name, f"{model.num_parameters:,}")

    def _make_room(self, coming: Served, stamp: Stamp | None) -> None:
        """Unload idle models, the least recently used first, until another of this size fits the budget."""
        budget = self.settings.memory
        if budget is None or stamp is None:
            return
        size, replaced = stamp[2], coming.version.size if coming.version is not None else 0
        used = sum(int(value) for value in self.sizes().values()) - replaced
        others = [one for one in self.all() if one is not coming and one.path is not None]
        for one in sorted(others, key=lambda one: one.last_used):
            if used + size <= budget:
                return
            if one.idle and one.version is not None:
                used -= one.version.size
                one.version = None
                self._evictions.add(one.name)
                LOG.info("model %s: unloaded to make room for %s", one.name, coming.name)
        if used + size > budget:
            raise ServiceError(
                503,
                f"Model {coming.name} needs {size:,} bytes, and {budget - used:,} of the budget are free. Try again, "
                "or start the service with more --memory.",
                "out_of_memory",
                "model",
                {"Retry-After": "1"},
            )

    async def look(self) -> None:
        """Load the files of loaded models again where they changed."""
        for served in self.all():
            if served.path is None or served.version is None:
                continue
            stamp = await self._in_reader(_stamp, served.path)
            if served.version is None or stamp is None or stamp in (served.stamp, served.refused):
                continue
            await self._load_once(served)

    async def watch(self) -> None:
        """Look at the files again and again."""
        while self.settings.reload_every:
            await asyncio.sleep(self.settings.reload_every)
            try:
                await self.look()
            except Exception as error:  # the watch goes on
                LOG.error("the watch of model files failed with %s", type(error).__name__)

    async def _in_reader(self, function: Any, *given: Any, **named: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, lambda: function(*given, **named))

    def close(self) -> None:
        self._reader.shutdown(wait=False)


def named_models(given: Any) -> dict[str, str | Path | Model]:
    """The models by name: those of a mapping, or of a list of NAME=PATH and paths, whose last part is the name."""
    if isinstance(given, (str, Path, Model)):
        given = [given]
    pairs = list(given.items()) if isinstance(given, Mapping) else [_pair(one) for one in given]
    found: dict[str, str | Path | Model] = {}
    for name, model in pairs:
        if not NAME.fullmatch(name):
            raise UserError(f"{name!r} is no name for a model.", "Use letters, digits, '.', '_' and '-': NAME=PATH.")
        if name in found:
            raise UserError(f"Two models have the name {name!r}.", "Give each a name of its own: NAME=PATH.")
        found[name] = model
    return found


def _pair(one: Any) -> tuple[str, Any]:
    if isinstance(one, Model):
        return one.task.name, one
    text = str(one)
    name, equals, path = text.partition("=")
    if equals and NAME.fullmatch(name):
        return name, path
    last = Path(text.rstrip("/").rpartition(":")[2] if is_address(text) else text)
    return last.stem if last.suffix == ".safetensors" else last.name, text


def _entry(name: str, given: str | Path | Model) -> Served:
    if isinstance(given, Model):
        return Served(name, None, given.task.name, Version(given, _bytes_of(given)), loads=1)
    return Served(name, str(given), read_about(find_file(given)).task)


def _loaded(served: Served, task: asyncio.Task[None]) -> None:
    served.loading = None
    if not task.cancelled():
        task.exception()  # those who waited have it; if all left, it is in the log


def _stamp(path: str) -> Stamp | None:
    """The file of a path and its state; None if it is not there."""
    try:
        file = find_file(path)
        facts = file.stat()
    except (UserError, OSError):
        return None
    return str(file), facts.st_ino, facts.st_size, facts.st_mtime_ns


def _bytes_of(model: Model) -> int:
    return sum(p.numel() * p.element_size() for p in (*model.network.parameters(), *model.network.buffers()))
