"""Models under load: changed files, broken files, a memory budget, loads that take long."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.service.conftest import Clients
from unrolled import api
from unrolled.jobs import load_model
from unrolled.model import Model, find_file
from unrolled.serve import app
from unrolled.serve.service import registry
from unrolled.serve.service.answers import prediction
from unrolled.serve.service.errors import ServiceError

Runs = Callable[[str], Path]
PREDICT = "/v1/models/mood/predict"


def replaced(source: Path, target: Path) -> None:
    """Put a copy of a model file in the place of another, as `unrolled` writes files: at once."""
    copy = target.with_suffix(".new")
    shutil.copyfile(source, copy)
    copy.replace(target)


def model_file(run: Path) -> Path:
    return find_file(str(run))


@pytest.fixture
def own_file(run_of: Runs, tmp_path: Path) -> Path:
    path = tmp_path / "mood.safetensors"
    shutil.copyfile(model_file(run_of("classify")), path)
    return path


def test_a_changed_file_is_loaded_without_a_dropped_request(
    own_file: Path, run_of: Runs, model_of: Callable[[str], Model], tmp_path: Path
) -> None:
    """Each answer is whole and that of the old or the new model; the last ones are the new model's."""
    other = model_of("classify")
    changed = api.load(model_file(run_of("classify")))
    changed.network.get_parameter(next(iter(dict(changed.network.named_parameters())))).data.mul_(1.5)
    changed.save(tmp_path / "changed.safetensors")
    made = app({"mood": own_file}, reload_every=0.02)
    texts = ["one fine two three", "one", "three two bad one"]
    old, new = ([json.loads(json.dumps(prediction("classify", m.predict(t)))) for t in texts] for m in (other, changed))
    assert old != new
    found: list[tuple[int, int, Any]] = []

    async def ask(client: httpx.AsyncClient) -> None:
        while made.state.service.registry.served("mood").loads < 2:
            for place, text in enumerate(texts):
                answer = await client.post(PREDICT, json={"inputs": text})
                found.append((place, answer.status_code, answer.json()["predictions"][0]))

    async def run() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(made), base_url="http://127.0.0.1") as client:
            await client.post(PREDICT, json={"inputs": "one"})
            clients = [asyncio.create_task(ask(client)) for _ in range(8)]
            replaced(tmp_path / "changed.safetensors", own_file)
            await asyncio.gather(*clients)
            last = (await client.post(PREDICT, json={"inputs": texts})).json()["predictions"]
            assert last == new
        await made.state.service.end()

    asyncio.run(run())
    assert {status for _, status, _ in found} == {200}
    assert all(answer in (old[place], new[place]) for place, _, answer in found)
    assert any(answer == old[place] for place, _, answer in found)


def test_a_broken_file_keeps_the_old_model(own_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    service = app({"mood": own_file}).state.service

    async def run() -> dict[str, Any]:
        await service.begin()
        with await service.registry.acquire("mood") as lease:
            before = lease.model
        own_file.write_bytes(b"nothing of a model")
        await service.registry.look()
        await service.registry.look()  # the same broken state is not read again
        with await service.registry.acquire("mood") as lease:
            assert lease.model is before
        facts: dict[str, Any] = registry_facts(service)
        await service.end()
        return facts

    facts = asyncio.run(run())
    assert facts["loaded"] is True
    assert facts["loads"] == 1
    assert "mood.safetensors" in facts["error"]
    assert 'unrolled_model_load_failures_total{model="mood"} 1' in service.metrics.text()
    assert caplog.text.count("model mood: its file was not loaded") == 1


def registry_facts(service: Any) -> dict[str, Any]:
    from unrolled.serve.service.routes.models import about

    return about(service.registry.served("mood"))


def test_models_share_a_memory_budget(client_of: Clients, run_of: Runs) -> None:
    sizes = [model_file(run_of(kind)).stat().st_size for kind in ("classify", "tag-crf")]
    with client_of("classify", "tag-crf", memory=max(sizes) + 10) as client:
        for kind in ("classify", "tag-crf", "classify"):
            assert client.post(f"/v1/models/{kind}/predict", json={"inputs": "one fine"}).status_code == 200
            loaded = [one["id"] for one in client.get("/v1/models").json()["data"] if one["loaded"]]
            assert loaded == [kind]
        assert 'unrolled_model_evictions_total{model="classify"} 1' in client.get("/metrics").text
    with client_of("classify", memory=1000) as client:
        refused = client.post("/v1/models/classify/predict", json={"inputs": "one"})
    assert refused.status_code == 503
    assert refused.json()["error"]["message"] == (
        f"Model classify needs {sizes[0]:,} bytes, and 1,000 of the budget are free. Try again, or start the service "
        "with more --memory."
    )


def test_a_model_in_use_is_not_unloaded(run_of: Runs) -> None:
    service = app(
        {"mood": run_of("classify"), "tags": run_of("tag-crf")},
        memory=max(model_file(run_of(kind)).stat().st_size for kind in ("classify", "tag-crf")) + 10,
    ).state.service

    async def run() -> None:
        await service.begin()
        with await service.registry.acquire("mood"):
            with pytest.raises(ServiceError) as caught:
                await service.registry.acquire("tags")
            assert caught.value.code == "out_of_memory"
        with await service.registry.acquire("tags"):
            assert service.registry.served("mood").version is None
        await service.end()

    asyncio.run(run())


def test_a_load_is_shared_and_bounded_by_the_time_of_each_request(
    run_of: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, loads = load_model, []

    def slow(*given: Any, **named: Any) -> Model:
        loads.append(given)
        time.sleep(0.4)
        return load(*given, **named)

    monkeypatch.setattr(registry, "load_model", slow)
    service = app({"mood": run_of("classify")}).state.service
    work = service.verbs.predict

    async def run() -> list[Any]:
        await service.begin()
        asked = [service.batcher.submit("mood", work, ["one"], timeout=seconds) for seconds in (0.1, 30, 30)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        await service.end()
        return found

    first, *others = asyncio.run(run())
    assert (first.status, first.code) == (504, "timeout")
    assert [len(answers) for answers in others] == [1, 1]
    assert len(loads) == 1
