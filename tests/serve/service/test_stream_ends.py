"""Ends of streams, and new beginnings: tokens, kept streams, limits, mistakes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from tests.serve.service.streaming import ADDRESS, Told, connected, final_of, sound, streaming_model
from tests.serve.service.test_streams import SPEECH, client_of_models, heard, receive
from unrolled.errors import UserError
from unrolled.serve import app
from unrolled.serve.service.errors import ServiceError
from unrolled.serve.service.settings import ServeSettings
from unrolled.serve.service.streams.inbox import MOST, Inbox
from unrolled.serve.service.streams.tokens import StateTokens, TokenFacts

KEY, OTHER = "a-key-of-sixteen-letters", "another-key-of-some-letters"
HEAR = "hear-lstm"


def error_and_code(socket: Any) -> tuple[dict[str, Any], int]:
    """The error that a socket sends, and the code that it closes with."""
    error = receive(socket, "error")["error"]
    with pytest.raises(WebSocketDisconnect) as closed:
        socket.receive_json()
    return error, closed.value.code


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for something that the service does when it has noticed that a client left."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def interrupted(client: TestClient, whole: bytes, middle: int, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """The token of a stream that heard a part of some sound, and whose connection was lost then."""
    with client.websocket_connect(f"{ADDRESS}/{HEAR}/stream", headers=headers or {}) as socket:
        socket.send_json({"type": "start", **SPEECH})
        receive(socket, "ready")
        socket.send_bytes(whole[:middle])
        socket.send_json({"type": "state"})
        return heard(socket, Told())


def test_a_stream_goes_on_in_another_process_with_the_same_bits(tmp_path: Path) -> None:
    whole, key = sound(Random(3)), tmp_path / "key"
    key.write_text("0123456789abcdef" * 4)
    expected = final_of(streaming_model(HEAR), whole)
    with client_of_models(HEAR, state_key_file=key) as client:
        state = interrupted(client, whole, 9001)
    assert state["carried"]
    assert state["position"] == 4500  # half a sample is sent again
    assert 0 < len(state["token"]) < 60_000
    with client_of_models(HEAR, state_key_file=key) as client:
        for _ in range(2):  # a token that carries its state may be used again
            told = Told()
            with connected(client, HEAR, resume=state["token"]) as socket:
                ready = receive(socket, "ready")
                assert (ready["resumed"], ready["position"]) == (True, 4500)
                socket.send_bytes(whole[2 * ready["position"] :])
                socket.send_json({"type": "end"})
                final = heard(socket, told)
            assert final == {"type": "final", "position": len(whole) // 2, **expected}
            assert final["text"].startswith(told.text)
            assert told.words[:-1] == final["words"][: len(told.words) - 1]
        assert 'unrolled_streams_resumed_total{model="hear-lstm"} 2\n' in client.get("/metrics").text


def test_a_stream_that_cannot_be_stored_is_kept() -> None:
    whole, options = sound(Random(4), 16), {"format": "s16le", "rate": 11025}  # a resampler has no state to store
    expected = final_of(streaming_model(HEAR), whole, rate=11025)
    with client_of_models(HEAR) as client:
        with connected(client, HEAR, **options) as socket:
            receive(socket, "ready")
            socket.send_bytes(whole[:8001])
            socket.send_json({"type": "state"})
            state = heard(socket, Told())
            assert (state["carried"], state["position"]) == (False, 4000)
            socket.send_bytes(whole[8001:10001])
        eventually(lambda: "unrolled_streams_kept 1\n" in client.get("/metrics").text)
        with connected(client, HEAR, resume=state["token"]) as first:
            assert receive(first, "ready")["position"] in (4000, 5000)  # where the stream stands
            with connected(client, HEAR, resume=state["token"]) as socket:  # the first one is taken its stream
                told, ready = Told(), receive(socket, "ready")
                error, code = error_and_code(first)
                assert (error["message"], code) == ("Another connection goes on with this stream.", 1008)
                socket.send_bytes(whole[2 * ready["position"] :])
                socket.send_json({"type": "end"})
                assert heard(socket, told) == {"type": "final", "position": len(whole) // 2, **expected}
        with connected(client, HEAR, resume=state["token"]) as socket:
            error, code = error_and_code(socket)
    assert (error["code"], code) == ("state_gone", 1008)
    assert error["message"] == "The stream of this token is not kept any more. Begin a new one."


def test_tokens_of_others_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"one {KEY}\ntwo {OTHER}\n")
    whole = sound(Random(3), 4)
    with client_of_models(HEAR, "hear-gru", api_key_file=keys) as client:
        token = interrupted(client, whole, 4000, {"X-API-Key": KEY})["token"]

        def answer(given: str, key: str = KEY, model: str = HEAR, **more: Any) -> tuple[dict[str, Any], int]:
            with client.websocket_connect(f"{ADDRESS}/{model}/stream", headers={"X-API-Key": key}) as socket:
                socket.send_json({"type": "start", "resume": given, **more})
                return error_and_code(socket)

        damaged = "The state token is damaged, or of a process with another key. Begin a new stream."
        chance = Random(1)
        for place in (0, 1, 5, len(token) // 2, len(token) - 1, *(chance.randrange(len(token)) for _ in range(5))):
            letter = "A" if token[place] != "A" else "B"
            error, code = answer(token[:place] + letter + token[place + 1 :])
            assert (error["message"], error["code"], error["param"], code) == (damaged, "invalid_state", "resume", 1008)
        assert answer("")[0]["message"] == damaged
        assert answer("u1..é")[0]["message"] == damaged
        error, _ = answer(token, OTHER)
        assert error["message"] == "The state token belongs to another API key."
        error, _ = answer(token, model="hear-gru")
        assert error["message"] == "The state token is of model hear-lstm, and this is hear-gru. Connect to that one."
        error, _ = answer(token, rate=8000)
        assert error["message"] == "A token says how its stream was begun. Leave the rest out."
        now = time.time()
        monkeypatch.setattr("unrolled.serve.service.streams.tokens.time.time", lambda: now + 601)
        assert answer(token)[0]["message"] == "The state token is too old. Begin a new stream."
    with client_of_models(HEAR) as client, connected(client, HEAR, resume=token) as socket:  # another process
        assert error_and_code(socket)[0]["message"] == damaged


def test_a_token_of_other_weights_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef" * 4)
    with client_of_models(HEAR, state_key_file=key) as client:
        token = interrupted(client, sound(Random(3), 4), 4000)["token"]
    model: Any = streaming_model(HEAR)
    model.network.scores.bias.data[0] += 1
    with (
        TestClient(app({HEAR: model}, state_key_file=key), base_url="http://127.0.0.1") as client,
        connected(client, HEAR, resume=token) as socket,
    ):
        error, _ = error_and_code(socket)
    assert error["message"] == "The stream's state is of another model. Use the model it was begun with."


@pytest.mark.parametrize(
    ("start", "then", "message", "code"),
    [
        ({}, None, "Sound needs its format and rate: s16le or f32le, and 8000 is what the model reads.", 1008),
        ({**SPEECH, "rate": 2.0}, None, "rate=2.0 is not a number of samples a second. Use 8000, 16000 or the like.",
         1008),
        ({"format": "mp3"}, None, "format: Input should be 's16le' or 'f32le'.", 1008),
        ({**SPEECH, "options": {"beam": 5}}, None,
         "A stream takes each step's best label, or words of a lexicon. Leave beam and n_best out.", 1008),
        (SPEECH, {"type": "feed", "input": {"frames": [[1.0]]}}, "Sound comes as binary messages.", 1008),
        (SPEECH, {"type": "write"}, "Input tag 'write' found using 'type' does not match any of the expected tags: "
         "'feed', 'end', 'state'.", 1008),
        (SPEECH, b"1" * 6001, "A message has more than 6,000 bytes.", 1009),
        ({"format": "f32le", "rate": 8000}, b"\0\0\xc0\x7f" * 1450, "The piece holds samples that are not finite. "
         "Expected numbers from −1 to 1.", 1008),
    ],
)  # fmt: skip
def test_mistakes_are_told_before_the_close(start: dict[str, Any], then: Any, message: str, code: int) -> None:
    with client_of_models(HEAR, max_message=6000) as client, connected(client, HEAR, **start) as socket:
        if then is not None:
            receive(socket, "ready")
            socket.send_bytes(then) if isinstance(then, bytes) else socket.send_json(then)
        error, closed = error_and_code(socket)
    assert message in error["message"]
    assert closed == code


def test_limits() -> None:
    with client_of_models(HEAR, "tag-stream", max_streams=1, max_stream_seconds=1, max_stream_steps=4) as client:
        with connected(client, HEAR, **SPEECH) as socket:
            receive(socket, "ready")
            with connected(client, HEAR, **SPEECH) as second:
                error, code = error_and_code(second)
                assert (error["message"], code) == ("1 streams are open already. Try again later.", 1013)
            assert 'unrolled_streams{model="hear-lstm"} 1\n' in client.get("/metrics").text
            socket.send_bytes(b"\0" * 16000)
            socket.send_bytes(b"\0" * 2)
            error, code = {}, 0
            assert heard(socket, Told())["error"]["message"] == ("A stream has at most 8,000 samples. Begin a new one.")
        with connected(client, "tag-stream") as socket:
            receive(socket, "ready")
            socket.send_json({"type": "feed", "input": {"frames": [[0.0, 0.0]] * 5}})
            error, code = error_and_code(socket)
            assert (error["code"], code) == ("stream_too_long", 1009)
        with pytest.raises(WebSocketDisconnect), client.websocket_connect(f"{ADDRESS}/nothing/stream"):
            pass
        numbers = client.get("/metrics").text
        assert 'unrolled_streams_total{model="hear-lstm",end="refused"} 1\n' in numbers
        assert 'unrolled_streams_total{model="hear-lstm",end="failed"} 1\n' in numbers


def test_models_without_streams_say_why(client_of: Any) -> None:
    with client_of("classify", "recognize", "tag-crf") as client:
        for name, message in {
            "classify": "A model of classify does not stream. Models of generate, tag, forecast, recognize do.",
            "recognize": "This model reads from both ends, and needs the end of its input. Train with "
            "model.bidirectional=false and model.kind=recurrent; or give whole files: they are read in windows.",
            "tag-crf": "This model reads from both ends, and needs the end of its input. Train with "
            "model.bidirectional=false.",
        }.items():
            with connected(client, name, **(SPEECH if name == "recognize" else {})) as socket:
                assert error_and_code(socket)[0]["message"] == message


def test_an_idle_stream_ends_with_its_token() -> None:
    with client_of_models(HEAR, stream_idle=0.3) as client, connected(client, HEAR, **SPEECH) as socket:
        receive(socket, "ready")
        state = receive(socket, "state")
        error, code = error_and_code(socket)
        assert (error["message"], code) == ("Nothing came for 0.3 seconds.", 3008)
        with connected(client, HEAR, resume=state["token"]) as again:
            assert receive(again, "ready")["resumed"]


def test_a_socket_can_hold_one_input_after_another() -> None:
    model, chance = streaming_model(HEAR), Random(9)
    with client_of_models(HEAR) as client, connected(client, HEAR, **SPEECH) as socket:
        receive(socket, "ready")
        for number in range(3):
            whole, told = sound(chance, 6), Told()
            socket.send_bytes(whole)
            socket.send_json({"type": "end", "again": number < 2})
            assert heard(socket, told) == {"type": "final", "position": len(whole) // 2, **final_of(model, whole)}


def test_an_inbox_holds_back_who_sends_too_much() -> None:
    async def run() -> tuple[int, bytes]:
        inbox, sent = Inbox(), 0

        async def send() -> None:
            nonlocal sent
            for _ in range(200):
                await inbox.put(b"12")
                sent += 1

        sending = asyncio.create_task(send())
        for _ in range(100):
            await asyncio.sleep(0)
        before, found = sent, b""
        while len(found) < 400:
            found += await inbox.get(7)
        await sending
        return before, found

    assert asyncio.run(run()) == (MOST, b"12" * 200)


def test_keys_of_tokens(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("secret")
    with pytest.raises(UserError) as error:
        StateTokens(short)
    assert str(error.value) == f"{short} has 6 bytes; a key has 32 or more. Write one: openssl rand -hex 32 > {short}"
    with pytest.raises(
        UserError, match=r"The key of missing cannot be read: No such file or directory\. Give a file\."
    ):
        ServeSettings.of({"state_key_file": "missing"}) and StateTokens(Path("missing"))
    one, other = StateTokens(), StateTokens()
    facts = TokenFacts("m", one.owner(KEY), {}, 3, time.time() + 9)
    assert one.read(one.make(facts, b"state"), "m", one.owner(KEY)) == (facts, b"state")
    assert KEY not in one.make(facts)
    with pytest.raises(ServiceError, match="The state token is damaged"):
        other.read(one.make(facts), "m", other.owner(KEY))
