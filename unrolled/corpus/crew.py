"""Workers: processes that answer parts at the same time, or this process alone."""

from __future__ import annotations

import os
import queue
import signal
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from subprocess import PIPE, Popen
from types import TracebackType
from typing import Any, Protocol

from unrolled.corpus import wire
from unrolled.corpus.work import Answered, CorpusPart, CorpusWork, Office
from unrolled.errors import UserError

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers(Protocol):
    """Anything that answers parts."""

    at_once: int  # parts that may wait for their answers

    def submit(self, part: CorpusPart) -> Future[Answered]: ...
    def __enter__(self) -> Workers: ...
    def __exit__(self, *error: Any) -> None: ...


class Alone:
    """This process."""

    at_once = 1

    def __init__(self, office: Office) -> None:
        self.office = office

    def submit(self, part: CorpusPart) -> Future[Answered]:
        done: Future[Answered] = Future()
        done.set_result(self.office.answer(part))
        return done

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *error: Any) -> None:
        return None


class Crew:
    """Processes with the same work, each with its share of the cores."""

    def __init__(self, work: CorpusWork, workers: int) -> None:
        self.at_once = 4 * workers  # answers may wait for those of a slower part
        self._threads = ThreadPoolExecutor(workers)
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers = [_Worker(number, work, max(1, cores() // workers)) for number in range(1, workers + 1)]
        for one in self._workers:
            self._idle.put(one)

    def submit(self, part: CorpusPart) -> Future[Answered]:
        return self._threads.submit(self._answer, part)

    def _answer(self, part: CorpusPart) -> Answered:
        worker = self._idle.get()
        try:
            return worker.answer(part)
        finally:
            self._idle.put(worker)

    @property
    def pids(self) -> list[int]:
        return [one.process.pid for one in self._workers]

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for one in self._workers:
            one.stop()
        self._threads.shutdown()


class _Worker:
    """A process, and the pipes to it."""

    def __init__(self, number: int, work: CorpusWork, threads: int) -> None:
        self.number, self._ready = number, False
        environment = {**os.environ, **dict.fromkeys(THREADS, str(threads)), "TOKENIZERS_PARALLELISM": "false"}
        self.process = Popen(
            [sys.executable, "-m", "unrolled.corpus.worker"],
            stdin=PIPE,
            stdout=PIPE,
            env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,  # Ctrl-C is for the process that asks, which ends this one
        )
        self._send((work, threads))

    def answer(self, part: CorpusPart) -> Answered:
        if not self._ready:
            self._receive()
            self._ready = True
        self._send(part)
        answered: Answered = self._receive()
        return answered

    def _send(self, message: Any) -> None:
        assert self.process.stdin is not None
        try:
            wire.send(self.process.stdin, message)
        except OSError:
            raise self._ended() from None

    def _receive(self) -> Any:
        assert self.process.stdout is not None
        try:
            reply = wire.receive(self.process.stdout)
        except EOFError:
            raise self._ended() from None
        if isinstance(reply, tuple):
            raise UserError(*reply)
        if isinstance(reply, str):
            raise RuntimeError(f"Worker {self.number} failed:\n{reply}")
        return reply

    def _ended(self) -> WorkerEnded:
        return WorkerEnded(self.number, self.process.wait())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(OSError):  # of what was not sent yet
                pipe.close()


class WorkerEnded(UserError):
    """A worker that ended by itself: the system, or somebody, killed it."""

    def __init__(self, number: int, code: int) -> None:
        try:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        except ValueError:
            how = f"was killed by signal {-code}"
        memory = code == -signal.SIGKILL if hasattr(signal, "SIGKILL") else False
        why = ": the system does that when memory runs out" if memory else ""
        super().__init__(f"Worker {number} {how}{why}.", "Use fewer --workers if memory is short.")
