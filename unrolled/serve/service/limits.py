"""API keys, and how many requests a client may make."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from unrolled.errors import UserError

SHORTEST = 16  # characters of a key
CLIENTS = 10_000  # whose requests are counted at the same time


class ApiKeys:
    """The API keys of a file: a line for each, KEY or NAME KEY; # begins a comment. Only their hashes are kept."""

    def __init__(self, path: Path) -> None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise UserError(f"The API keys of {path} cannot be read: {reason}.", "Give a text file.") from None
        self._hashes: list[tuple[bytes, str]] = []
        for number, line in enumerate(lines, 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            if len(words) > 2 or len(words[-1]) < SHORTEST:
                raise UserError(
                    f"{path}, line {number} is no API key.",
                    f"Expected KEY or NAME KEY, a key of {SHORTEST} characters or more without blanks.",
                )
            name = words[0] if len(words) == 2 else f"key {number}"
            self._hashes.append((hashlib.sha256(words[-1].encode()).digest(), name))
        if not self._hashes:
            raise UserError(f"{path} holds no API key.", "Write one on a line: openssl rand -hex 24")

    def owner(self, key: str) -> str | None:
        """The name of a key, or None. Every key is compared, in constant time."""
        given, found = hashlib.sha256(key.encode()).digest(), None
        for digest, name in self._hashes:
            if hmac.compare_digest(digest, given):
                found = name
        return found


def key_of(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The key that a request brings: Authorization: Bearer, X-API-Key, or a socket's subprotocol unrolled.key.KEY."""
    for name, value in headers:
        text = value.decode("latin-1")
        if name == b"authorization" and text[:7].lower() == "bearer ":
            return text[7:].strip()
        if name == b"x-api-key":
            return text.strip()
        if name == b"sec-websocket-protocol":
            for part in text.split(","):
                if part.strip().startswith("unrolled.key."):
                    return part.strip().removeprefix("unrolled.key.")
    return None


class Rates:
    """A bucket of requests for each client, which fills at a rate."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate, self.burst = rate, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client → (requests left, time)

    def wait(self, client: str, now: float | None = None) -> float:
        """Count a request; the seconds until it would be allowed, 0 if it is now.

        >>> rates = Rates(rate=2, burst=1)
        >>> rates.wait("a", 0.0), rates.wait("a", 0.0), rates.wait("b", 0.0), rates.wait("a", 0.5)
        (0.0, 0.5, 0.0, 0.0)
        """
        now = time.monotonic() if now is None else now
        left, since = self._buckets.get(client, (float(self.burst), now))
        left = min(self.burst, left + (now - since) * self.rate)
        wait = 0.0 if left >= 1 else (1 - left) / self.rate
        self._buckets[client] = (left if wait else left - 1, now)
        self._buckets.move_to_end(client)
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        return wait
