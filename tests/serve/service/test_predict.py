"""Answers over HTTP equal those of `model.predict`, bit for bit."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.serve.service.conftest import Clients
from unrolled.model import Model
from unrolled.serve import app
from unrolled.serve.service.answers import prediction

Models = Callable[[str], Model]
TEXTS = {
    "classify": ["one fine two three", "one", "three two bad one one two three four"],
    "tag-crf": ["Ada met Grace Hopper in New York .", "Ada", "in New York"],
    "translate-luong": ["3 5 7", "1", "2 4 6 8 1 3"],
}


def same(found: Any, model: Model, answer: Any) -> bool:
    """The JSON of an answer is that of what `predict` gave."""
    return bool(found == json.loads(json.dumps(prediction(model.task.name, answer))))


@pytest.mark.parametrize("kind", TEXTS)
def test_one_and_many(client_of: Clients, model_of: Models, kind: str) -> None:
    model = model_of(kind)
    with client_of(kind) as client:
        one = client.post(f"/v1/models/{kind}/predict", json={"inputs": TEXTS[kind][0]})
        many = client.post(f"/v1/models/{kind}/predict", json={"inputs": TEXTS[kind]})
    assert one.status_code == many.status_code == 200, many.text
    assert same(one.json()["predictions"][0], model, model.predict(TEXTS[kind][0]))
    for found, text in zip(many.json()["predictions"], TEXTS[kind], strict=True):
        assert same(found, model, model.predict(text))


def test_options_and_seeds(client_of: Clients, model_of: Models) -> None:
    model = model_of("generate-lstm")
    options = {"seed": 7, "max_tokens": 12, "temperature": 0.9, "stop": ["q"]}
    with client_of("generate-lstm") as client:
        body = {"inputs": ["3 and", "4"], "options": options}
        found = client.post("/v1/models/generate-lstm/predict", json=body).json()
    assert [one["text"] for one in found["predictions"]] == model.predict(["3 and", "4"], **options)


def test_a_recording_in_base64_and_as_an_upload(client_of: Clients, model_of: Models, data: Path) -> None:
    kind = "recognize"
    file = data / "sounds" / "train0.wav"
    expected = model_of(kind).predict(str(file))
    body = {"inputs": {"audio": base64.b64encode(file.read_bytes()).decode()}}
    with client_of(kind) as client:
        one = client.post(f"/v1/models/{kind}/predict", json=body).json()
        two = client.post(f"/v1/models/{kind}/predict", files={"file": file.read_bytes()}).json()
    assert same(one["predictions"][0], model_of(kind), expected)
    assert one == two


def test_rows_vectors_and_scores(client_of: Clients, model_of: Models) -> None:
    rows = np.sin(np.arange(20.0))[:, None].repeat(len(model_of("forecast").assets.roles.inputs), 1)
    with client_of("forecast", "classify", "generate-lstm") as client:
        found = client.post("/v1/models/forecast/predict", json={"inputs": {"rows": rows.tolist()}}).json()
        assert found["predictions"][0]["forecast"] == model_of("forecast").predict(rows).tolist()
        vectors = client.post("/v1/models/classify/embed", json={"inputs": TEXTS["classify"]}).json()["vectors"]
        expected = [[float(x) for x in model_of("classify").embed(text)] for text in TEXTS["classify"]]
        np.testing.assert_allclose(vectors, expected, rtol=1e-6)
        scores = client.post("/v1/models/generate-lstm/score", json={"inputs": ["3 and 4"]}).json()["log_probs"]
        assert scores == model_of("generate-lstm").log_prob(["3 and 4"])
        refused = client.post("/v1/models/classify/score", json={"inputs": "one"})
    assert refused.status_code == 400
    assert refused.json()["error"]["message"] == "A model of classify cannot score text. Use a model of generate."


def test_a_trace(client_of: Clients, model_of: Models) -> None:
    with client_of("generate-lstm") as client:
        body = {"input": "3 and 4", "view": "values", "query": {"layer": "l1", "quantity": "f"}}
        found = client.post("/v1/models/generate-lstm/trace", json=body).json()["found"]
    expected = model_of("generate-lstm").trace("3 and 4").values("l1", "f").T.tolist()
    np.testing.assert_allclose(found["z"], expected, rtol=1e-3, atol=1e-4)


def test_joined_requests_have_their_own_answers(run_of: Callable[[str], Path], model_of: Models) -> None:
    """Many requests at once are joined, and each gets the answer that it would get alone."""
    made = app({"mood": run_of("classify")}, max_wait_ms=5)
    texts = [" ".join(["one", "fine", "two", "bad", "three"][: 1 + i % 5]) for i in range(40)]

    async def ask() -> list[Any]:
        transport = httpx.ASGITransport(app=made)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answers = [client.post("/v1/models/mood/predict", json={"inputs": text}) for text in texts]
            return [one.json()["predictions"][0] for one in await asyncio.gather(*answers)]

    for text, found in zip(texts, asyncio.run(ask()), strict=True):
        assert same(found, model_of("classify"), model_of("classify").predict(text))
    sizes = made.state.service.metrics.text()
    count = next(line for line in sizes.splitlines() if line.startswith("unrolled_batch_size_count"))
    assert int(count.split()[-1]) < len(texts)
