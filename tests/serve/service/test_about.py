"""Models, health, metrics, and the description of the routes."""

from __future__ import annotations

from tests.serve.service.conftest import Clients


def test_models_health_and_metrics(client_of: Clients) -> None:
    with client_of("classify", "generate-lstm") as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/readyz").json() == {"status": "ready"}
        before = client.get("/v1/models").json()["data"]
        assert [(one["id"], one["task"], one["loaded"]) for one in before] == [
            ("classify", "classify", False),
            ("generate-lstm", "generate", False),
        ]
        client.post("/v1/models/classify/predict", json={"inputs": "one"})
        assert client.get("/v1/models/classify").json()["loaded"] is True
        text = client.get("/metrics").text
    assert 'unrolled_requests_total{route="/v1/models/classify/predict",status="200"} 1' in text
    assert 'unrolled_model_loads_total{model="classify"} 1' in text


def test_the_description_has_each_task(client_of: Clients) -> None:
    with client_of("classify", "generate-lstm") as client:
        found = client.get("/openapi.json").json()
        page = client.get("/docs").text
    assert "/v1/models/generate-lstm/predict" in found["paths"]
    assert found["components"]["schemas"]["GenerateOptions"]["properties"]["top_k"]["description"].startswith("Top-k")
    assert "lexicon" in found["components"]["schemas"]["GenerateOptions"]["properties"]
    helps = found["components"]["schemas"]["GenerateOptions"]["properties"]
    assert not any("--" in one["description"] for one in helps.values())  # flags are of the command line
    assert "scorers" not in found["components"]["schemas"]["GenerateOptions"]["properties"]
    assert "/v1/models/classify/predict" in page
