"""State tokens: what a client goes on with after its connection was lost, signed so that nobody else can make one."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import struct
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unrolled.errors import UserError
from unrolled.serve.service.errors import ServiceError

VERSION = "u1"
SHORTEST_KEY = 32  # bytes of a key file


@dataclass(frozen=True)
class TokenFacts:
    """The content of a token beside the state: the owner, the model, the start, the place in the input."""

    model: str
    owner: str
    start: dict[str, Any]
    position: int
    expires: float  # seconds since 1970
    kept: str | None = None  # the number of a stream that the service keeps; None: the token carries the state


class StateTokens:
    """Makes and reads tokens with one secret: a random one, or that of a file which several processes share."""

    def __init__(self, file: Path | None = None) -> None:
        if file is None:
            self._secret = secrets.token_bytes(32)
            return
        try:
            found = file.read_bytes().strip()
        except OSError as error:
            raise UserError(f"The key of {file} cannot be read: {error.strerror}.", "Give a file.") from None
        if len(found) < SHORTEST_KEY:
            raise UserError(
                f"{file} has {len(found)} bytes; a key has {SHORTEST_KEY} or more.",
                f"Write one: openssl rand -hex 32 > {file}",
            )
        self._secret = hashlib.sha256(found).digest()

    def owner(self, key: str | None) -> str:
        """A name for the owner of an API key that does not tell the key."""
        return "" if key is None else self._mac(b"owner " + key.encode())[:16].hex()

    def make(self, facts: TokenFacts, state: bytes = b"") -> str:
        about = json.dumps(asdict(facts), separators=(",", ":")).encode()
        signed = struct.pack("<I", len(about)) + about + state
        return f"{VERSION}.{_text(signed)}.{_text(self._mac(b'state ' + signed))}"

    def read(self, token: str, model: str, owner: str) -> tuple[TokenFacts, bytes]:
        """The content of a token, and its state. One that is damaged, late or another's is an error."""
        version, _, rest = token.partition(".")
        body, _, mac = rest.partition(".")
        try:
            signed, given = _bytes(body), _bytes(mac)
        except (binascii.Error, ValueError):
            signed, given = b"", b""
        if version != VERSION or not hmac.compare_digest(self._mac(b"state " + signed), given):
            raise ServiceError(
                400,
                "The state token is damaged, or of a process with another key. Begin a new stream.",
                "invalid_state",
                "resume",
            )
        (size,) = struct.unpack_from("<I", signed)
        facts = TokenFacts(**json.loads(signed[4 : 4 + size]))
        if facts.owner != owner:
            raise ServiceError(403, "The state token belongs to another API key.", "foreign_state", "resume")
        if facts.model != model:
            raise ServiceError(
                400,
                f"The state token is of model {facts.model}, and this is {model}. Connect to that one.",
                "invalid_state",
                "resume",
            )
        if facts.expires < time.time():
            raise ServiceError(400, "The state token is too old. Begin a new stream.", "expired_state", "resume")
        return facts, signed[4 + size :]

    def _mac(self, data: bytes) -> bytes:
        return hmac.digest(self._secret, data, "sha256")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    data = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)
    if _text(data) != text:  # the last letter has bits that decoding ignores
        raise ValueError(text)
    return data
