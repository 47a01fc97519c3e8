"""Messages between a process and the workers that it started, over their own pipes."""

from __future__ import annotations

import pickle  # of objects that this process or its child made: nothing that a user loads
import struct
from typing import IO, Any

_SIZE = struct.Struct("<Q")


def send(pipe: IO[bytes], message: Any) -> None:
    content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(_SIZE.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """The next message; EOFError if the other side has ended."""
    return pickle.loads(_exactly(pipe, _SIZE.unpack(_exactly(pipe, _SIZE.size))[0]))


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    content = pipe.read(size)
    if len(content) < size:
        raise EOFError
    return content
