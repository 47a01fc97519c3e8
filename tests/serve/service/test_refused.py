"""Requests that are refused, with the full text of the error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.serve.service.conftest import Clients

PREDICT = "/v1/models/classify/predict"


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        (
            "/v1/models/mood/predict",
            {"inputs": "one"},
            404,
            ("Unknown model 'mood'. Choices: classify.", "not_found_error", "model", "model_not_found"),
        ),
        (
            PREDICT,
            {"inputs": []},
            400,
            ("There is no input. Give at least one.", "invalid_request_error", "inputs", "no_input"),
        ),
        (
            PREDICT,
            {"inputs": "one", "options": {"beam": 3}},
            400,
            (
                "options: Unknown key 'beam'. Choices: explain, min_probability.",
                "invalid_request_error",
                "options.beam",
                "extra_forbidden",
            ),
        ),
        (
            PREDICT,
            {"inputs": "one", "option": {}},
            400,
            (
                "Unknown key 'option'. Did you mean 'options'? Choices: inputs, options, priority, timeout.",
                "invalid_request_error",
                "option",
                "extra_forbidden",
            ),
        ),
        (PREDICT, {}, 400, ("inputs is missing.", "invalid_request_error", "inputs", "missing")),
        (
            PREDICT,
            {"inputs": ["one", 3]},
            400,
            (
                'inputs.1 is no input of this model. Give a text, {"frames": […]} or a list of them.',
                "invalid_request_error",
                "inputs.1",
                "invalid_value",
            ),
        ),
        (
            PREDICT,
            {"inputs": {"rows": [[1]]}},
            400,
            (
                'inputs is no input of this model. Give a text, {"frames": […]} or a list of them.',
                "invalid_request_error",
                "inputs",
                "invalid_value",
            ),
        ),
        (
            PREDICT,
            {"inputs": {"frames": [[1]], "rows": 2}},
            400,
            (
                "inputs: Unknown key 'rows'. Choices: frames.",
                "invalid_request_error",
                "inputs.rows",
                "extra_forbidden",
            ),
        ),
        (
            "/v1/nothing",
            {},
            404,
            ("There is nothing at this address. /docs has all routes.", "not_found_error", None, "not_found"),
        ),
        (
            "/v1/models",
            {},
            405,
            (
                "This address takes another method. /docs has the method of each route.",
                "invalid_request_error",
                None,
                "method_not_allowed",
            ),
        ),
        (
            PREDICT,
            {"inputs": "x" * 100_001},
            413,
            ("An input has 100,001 characters; the limit is 100,000.", "invalid_request_error", "inputs", "too_long"),
        ),
        (
            PREDICT,
            {"inputs": {"frames": [[1.0]]}},
            400,
            ("Input 1 is ndarray. Expected a text.", "invalid_request_error", None, "invalid_value"),
        ),
    ],
)
def test_wrong_bodies(client_of: Clients, path: str, body: Any, status: int, error: tuple[Any, ...]) -> None:
    with client_of("classify") as client:
        answer = client.post(path, json=body)
    message, kind, param, code = error
    assert answer.json() == {"error": {"message": message, "type": kind, "param": param, "code": code}}
    assert answer.status_code == status


HOSTILE = [
    b"",
    b"\x00",
    b"null",
    b"[]",
    b'"inputs"',
    b"{" * 100_000,
    b"[" * 100_000,
    b'{"inputs": NaN}',
    b'{"inputs": 1e999}',
    b'{"inputs": {}}',
    b'{"inputs": [null]}',
    b'{"inputs": [["one"]]}',
    b'{"inputs": "\\ud800"}',
    b'{"inputs": "\xff"}',
    b'{"inputs": {"frames": [[1, 2], [3]]}}',
    b'{"inputs": {"frames": [[1e400]]}}',
    b'{"inputs": {"frames": [{}]}}',
    b'{"inputs": {"frames": ' + b"[" * 200 + b"]" * 200 + b"}}",
    b'{"inputs": {"audio": "QUJD"}}',
    b'{"inputs": {"words": []}}',
    b'{"inputs": "one", "timeout": 0}',
    b'{"inputs": "one", "timeout": -1e308}',
    b'{"inputs": "one", "timeout": true}',
    b'{"inputs": "one", "priority": 99999999999999999999}',
    b'{"inputs": "one", "options": {"__class__": "x"}}',
    b'{"inputs": "one", "options": {"lexicon": "../../etc/passwd"}}',
    b'{"inputs": "one", "inputs2": "one"}',
]


def test_hostile_bodies_are_the_clients_mistake(client_of: Clients) -> None:
    """No body makes the service fail, and every answer has the one shape."""
    with client_of("classify", "generate-lstm") as client:
        for path in (PREDICT, "/v1/models/generate-lstm/predict", "/v1/models/classify/embed"):
            for body in HOSTILE:
                answer = client.post(path, content=body, headers={"content-type": "application/json"})
                assert (path, body[:60], answer.status_code // 100) == (path, body[:60], 4), answer.text
                assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert client.post(PREDICT, json={"inputs": "one"}).status_code == 200


def test_hosts_origins_keys_and_rates(client_of: Clients, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("# the clients\nana 0123456789abcdef0123\n")
    with client_of("classify") as client:
        assert client.get("/v1/models", headers={"host": "evil.example"}).json()["error"]["code"] == "host_not_allowed"
        assert client.get("/v1/models", headers={"origin": "http://evil.example"}).status_code == 403
        assert client.get("/v1/models", headers={"origin": "http://127.0.0.1"}).status_code == 200
    with client_of("classify", api_key_file=keys, rate=0.001, burst=2) as client:
        assert client.get("/healthz").status_code == 200
        wrong = client.get("/v1/models", headers={"x-api-key": "no"})
        assert wrong.status_code == 401
        assert wrong.json()["error"] == {
            "message": "The API key is not known. Send one as `Authorization: Bearer KEY` or `X-API-Key: KEY`.",
            "type": "authentication_error",
            "param": None,
            "code": "invalid_api_key",
        }
        right = {"authorization": "Bearer 0123456789abcdef0123"}
        assert [client.get("/v1/models", headers=right).status_code for _ in range(3)] == [200, 200, 429]


def test_pages_of_an_allowed_origin_may_call_and_read(client_of: Clients, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("0123456789abcdef0123\n")
    site = {"origin": "https://example.com"}
    asks = {**site, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    with client_of("classify", origins=["https://example.com"], hosts=["127.0.0.1"], api_key_file=keys) as client:
        asked = client.options(PREDICT, headers=asks)
        assert asked.status_code == 204
        assert asked.headers["access-control-allow-origin"] == "https://example.com"
        assert asked.headers["access-control-allow-headers"] == "authorization, content-type, x-api-key"
        assert "access-control-allow-credentials" not in asked.headers
        right = {**site, "authorization": "Bearer 0123456789abcdef0123"}
        found = client.post(PREDICT, json={"inputs": "one"}, headers=right)
        refused = client.post(PREDICT, json={"inputs": "one"}, headers=site)
        other = client.options(PREDICT, headers={**asks, "origin": "https://evil.example"})
    assert (found.status_code, refused.status_code, other.status_code) == (200, 401, 403)
    assert found.headers["access-control-allow-origin"] == refused.headers["access-control-allow-origin"]
    assert found.headers["vary"] == "origin"
    assert "access-control-allow-origin" not in other.headers


def test_a_body_is_bounded_while_it_streams(client_of: Clients) -> None:
    with client_of("classify", max_body=1000) as client:
        declared = client.post(PREDICT, content=b"x" * 2000, headers={"content-type": "application/json"})
        streamed = client.post(
            PREDICT, content=(b"x" * 100 for _ in range(20)), headers={"content-type": "application/json"}
        )
    for answer in (declared, streamed):
        assert answer.status_code == 413
        assert answer.json()["error"]["message"] == "The body is larger than 1,000 bytes."
