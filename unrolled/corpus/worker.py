"""A worker: loads the model and answers parts until its input ends. `python -m unrolled.corpus.worker` is one."""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback
from typing import Any

from unrolled.corpus import wire
from unrolled.corpus.work import Office
from unrolled.errors import UserError


def main() -> None:
    """Read the work, then parts, from standard input; write answers to standard output."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no message
    given: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(given,), daemon=True).start()
    work, threads = given.get()
    office: Office | None = None
    while True:
        try:
            if office is None:
                _keep_to(threads)
                office = Office(work)
                _ = office.options
                reply: Any = None
            else:
                reply = office.answer(given.get())
        except UserError as error:
            reply = error.problem, error.fix
        except Exception:
            reply = traceback.format_exc()
        wire.send(answers, reply)


def _listen(given: queue.SimpleQueue[Any]) -> None:
    """Put what arrives into a queue. The end of the process that asks is the end of this one, at any instant."""
    while True:
        try:
            given.put(wire.receive(sys.stdin.buffer))
        except EOFError:
            os._exit(0)


def _keep_to(threads: int) -> None:
    try:
        import torch
    except ModuleNotFoundError:  # an exported model; OMP_NUM_THREADS is for onnxruntime too
        return
    torch.set_num_threads(threads)


if __name__ == "__main__":
    main()
