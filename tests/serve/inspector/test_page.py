"""Answers of the page's server, and the requests it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.test_generate import call
from tests.see.models import KINDS
from unrolled import UserError, api
from unrolled.model import Model
from unrolled.see.report import MODULES
from unrolled.see.views import trace as views
from unrolled.serve.inspector import Asked, Inspection, save_report
from unrolled.serve.inspector import page as page_module
from unrolled.serve.inspector.inspection import VIEWS
from unrolled.serve.inspector.page import find_port, make_app, serve

pytest.importorskip("fastapi", reason="the page needs fastapi: pip install 'unrolled[see]'")
from fastapi.testclient import TestClient

Runs = Callable[[str], Path]
ADDRESS = "http://127.0.0.1:8650"


def inspection_of(run_of: Runs, *kinds: str, text: str | None = None, file: str | None = None) -> Inspection:
    return Inspection(Asked({str(run_of(kind)): api.load(run_of(kind)) for kind in kinds}, text, file))


@pytest.fixture
def client(run_of: Runs) -> TestClient:
    return TestClient(make_app(inspection_of(run_of, "generate-lstm"), 8650), base_url=ADDRESS)


def test_the_page_and_its_files(client: TestClient) -> None:
    page = client.get("/").text
    assert "unrolled <span>inspect</span>" in page
    for address in re.findall(r'"(/[^"]+)"', page):
        assert client.get(address).status_code == 200
    assert "http" not in re.sub(r"http-equiv", "", page)  # nothing from elsewhere
    assert "default-src 'self'" in client.get("/").headers["content-security-policy"]


@pytest.mark.parametrize(
    "path", ["/page/../trace.py", "/page/%2e%2e%2ftrace.py", "/page/index.html", "/etc/passwd", "/docs"]
)
def test_other_paths_are_not_there(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"host": "127.0.0.1:1"}, {"origin": "http://evil.example"}, {"origin": "null"}],
)
def test_other_sites_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    answer = client.post("/api/about", json={}, headers=headers)
    assert answer.status_code == 403
    assert answer.json() == {"problem": "This page is only available at http://127.0.0.1:8650/."}
    assert client.post("/api/about", json={}, headers={"origin": "http://localhost:8650"}).status_code == 200


def test_numbers_are_the_traces(client: TestClient, model_of: Callable[[str], Model]) -> None:
    query = {"text": "3 and 4", "layer": "l1", "quantity": "f"}
    found = client.post("/api/values", json=query).json()
    values = model_of("generate-lstm").trace("3 and 4").values("l1", "f")
    torch.testing.assert_close(torch.tensor(found["z"]), values.T, rtol=1e-3, atol=1e-4)
    assert found["tokens"][:3] == ["↵", "3", "␣"]
    for quantity in ("f", "c"):  # one set and order of units for all panels, by number
        lively = client.post("/api/values", json={**query, "quantity": quantity, "order": "lively"}).json()["units"]
        assert lively == list(range(12))
    marked = client.post("/api/values", json={**query, "order": "mark", "mark": "0,0,1,0,0,0,1"}).json()
    best = model_of("generate-lstm").trace("3 and 4").units_like([0, 0, 1, 0, 0, 0, 1], "l1", "f")
    assert marked["units"][0] == best[0][0]


@pytest.mark.parametrize(
    ("kind", "query", "message"),
    [
        ("overview", {}, "There is no text to trace. Give at least one token."),
        ("overview", {"text": "3", "model": "other"}, "Unknown model 'other'."),
        ("valeus", {"text": "3"}, "Unknown view 'valeus'. Did you mean 'values'?"),
        ("values", {"text": "3 and", "first": "9"}, "There are no steps from 9 to 5. Expected a range within 0 to 5."),
        ("values", {"text": "3 and", "first": "x"}, "first='x' is not a whole number."),
        ("values", {"text": "3 and", "order": "mark"}, "The mark has 0 numbers. Expected one for each of 5 steps."),
        ("values", {"text": "3 and", "order": "up"}, "Unknown order 'up'. Choices: natural, lively, mark."),
        ("attention", {"text": "3 and", "map": "a"}, "There is no attention 'a'."),
        ("places", {"text": "3 and", "unit": "99"}, "There is no unit 99. Expected 0 to 11."),
        ("words", {"words": ""}, "No word was given. Give one, or a sum: king - man + woman."),
        ("map", {"lines": "one"}, "A map needs at least three sentences; there are 1. Give one per line."),
        ("overview", {"text": "3", "o.beam": "5"}, "Unknown option of a trace 'beam'."),
    ],
)
def test_mistakes_come_back_as_sentences(client: TestClient, kind: str, query: dict[str, str], message: str) -> None:
    answer = client.post(f"/api/{kind}", json=query)
    assert answer.status_code == 400
    assert answer.json()["problem"].startswith(message)


def test_long_and_wide_tables_are_sent_as_means() -> None:
    table = torch.randn(1024, 5000)
    small, rows, columns = views.binned(table)
    assert len(rows) <= views.MOST_ROWS
    assert len(columns) <= views.MOST_COLUMNS
    assert small.shape == (len(rows), len(columns))
    high, wide = rows[1], columns[1]
    torch.testing.assert_close(small[3, 7], table[3 * high : 4 * high, 7 * wide : 8 * wide].mean())


def test_places_where_a_unit_is_most_active(client: TestClient, model_of: Callable[[str], Model]) -> None:
    text = "3 and 4 make 7\n5 and 6 make 11"
    found = client.post("/api/places", json={"text": text, "layer": "l0", "quantity": "c", "unit": 4}).json()
    column = model_of("generate-lstm").trace(text).values("l0", "c")[:, 4]
    assert found["most"][0]["step"] == int(column.argmax())
    assert found["least"][0]["step"] == int(column.argmin())


def test_runs_show_curves_samples_and_the_norms_of_layers(client: TestClient, run_of: Runs) -> None:
    (run,) = client.post("/api/runs", json={}).json()["runs"].values()
    rows = [json.loads(line) for line in (run_of("generate-lstm") / "metrics.jsonl").read_text().splitlines()]
    assert run["step"] == [row["step"] for row in rows]
    assert run["columns"]["train_loss"] == [row["train_loss"] for row in rows]
    made = run["updates"]
    assert made["step"] == list(range(1, rows[-1]["step"] + 1))
    assert made["made"] == len(made["step"])
    assert set(made["layers"]) == {"embedding", "layer.l0", "layer.l1", "scores"}
    assert made["clipped_in_all"] == len(made["clipped"]) == sum(row["clipped"] for row in rows)
    assert max(made["norm"]) == pytest.approx(max(row["grad_norm_max"] for row in rows), rel=1e-3)
    assert run["samples"][-1][0] == rows[-1]["step"]


def test_an_example_is_shown_and_a_text_in_its_place(run_of: Runs) -> None:
    """The text of an example can be edited; an example without text has a name."""
    path = str(run_of("translate-luong"))
    inspection = Inspection(Asked({path: api.load(path)}, example=0))
    about = inspection.about()
    assert about["text"]
    first = inspection.view("overview", {"text": about["text"]})
    assert first == inspection.view("overview", {})
    assert len(inspection.view("overview", {"text": "3"})["inputs"]["source"]) < len(first["inputs"]["source"])
    path = str(run_of("tag-crf"))
    inspection = Inspection(Asked({path: api.load(path)}, example=0))
    assert (inspection.about()["file"], inspection.about()["text"]) == ("example 0", "")
    assert inspection.view("overview", {})["inputs"] != inspection.view("overview", {"text": "Ada met ."})["inputs"]


def test_a_model_file_alone_has_no_run(run_of: Runs) -> None:
    path = str(run_of("generate-gru") / "best.safetensors")
    inspection = Inspection(Asked({path: api.load(path)}, "3"))
    with pytest.raises(UserError, match="These are model files, not run folders"):
        inspection.view("runs", {})
    assert inspection.about()["models"][0]["run"] is False


def test_maps_of_words_and_of_sentences(run_of: Runs) -> None:
    inspection = inspection_of(run_of, "classify")
    words = inspection.view("map", {})
    assert "fine" in words["names"]
    found = inspection.view("map", {"lines": "good\tone fine two\nbad\ttwo poor one\nbad\tpoor"})
    assert found["labels"] == ["good", "bad", "bad"]
    assert len(found["x"]) == 3
    assert inspection.view("words", {"words": "fine"})["nearest"]


@pytest.mark.parametrize("kind", ["generate-rnn", "forecast", "translate-transformer", "translate-luong"])
def test_a_report_holds_all_that_its_page_asks(kind: str, run_of: Runs, data: Path, tmp_path: Path) -> None:
    text = None if kind == "forecast" else KINDS[kind][3]
    file = str(data / "waves.csv") if kind == "forecast" else None
    save_report(inspection_of(run_of, kind, text=text, file=file), tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    recorded: dict[str, Any] = json.loads(re.search(r'id="recorded">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    asked = {json.loads(key)[0] for key in recorded}
    assert {"about", "overview", "gradients", "runs", "map"} <= asked
    assert ("attention" in asked) == kind.startswith("translate")
    assert page.count("data:text/javascript;base64,") == len(MODULES)
    outside = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)  # plotly's own script names its home
    assert "http://" not in outside
    assert "https://" not in outside


def test_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"Port {port} is in use. Leave out --port to use the next free one."):
            find_port(port)
        monkeypatch.setattr(page_module, "FIRST_PORT", port)
        assert find_port(None) > port
        monkeypatch.setattr(page_module, "PORTS", 1)
        with pytest.raises(UserError, match=f"The ports from {port} to {port} are all in use"):
            find_port(None)


def test_without_a_browser_the_address_is_printed(run_of: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is printed after the server has started."""
    import webbrowser

    import uvicorn

    said: list[str] = []
    answered: list[bytes] = []
    servers: list[uvicorn.Server] = []
    usual = uvicorn.Server.startup

    async def started(self: uvicorn.Server, sockets: Any = None) -> None:
        assert said == []
        servers.append(self)
        await usual(self, sockets)

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 1:
            with socket.create_connection(("127.0.0.1", int(re.findall(r":(\d+)/", text)[0]))):
                answered.append(b"")
        else:
            servers[0].should_exit = True

    monkeypatch.setattr(uvicorn.Server, "startup", started)
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    monkeypatch.setattr(uvicorn.Server, "capture_signals", lambda _: contextlib.nullcontext())
    serve(inspection_of(run_of, "generate-rnn"), None, True, say)
    assert answered
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/  \(press Ctrl-C to stop\)", said[0])
    assert re.fullmatch(r"No browser was found\. Open http://127\.0\.0\.1:\d+/ yourself\.", said[1])


def test_without_its_parts_the_page_says_what_to_install(run_of: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else usual(name))
    code, _, said = call("inspect", run_of("generate-rnn"), "--no-browser")
    assert code == 2
    assert said == (
        "unrolled: The page needs packages that are not installed: uvicorn. "
        "Install them: pip install 'unrolled[see]'. --figures works without them.\n"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, _, said = call("inspect", run_of("generate-rnn"), "3", "--html", "a.html")
    assert code == 2
    assert said == "unrolled: The page needs plotly, which is not installed. Install it: pip install 'unrolled[see]'\n"


def test_reports_in_wrong_places(run_of: Runs, tmp_path: Path) -> None:
    for place, message in (
        ("a.pdf", "is not an HTML file: its name ends in '.pdf'. Use .html."),
        ("no/a.html", "There is no folder"),
    ):
        code, _, said = call("inspect", run_of("generate-rnn"), "3", "--html", tmp_path / place)
        assert code == 2
        assert message in said


def test_a_body_that_is_too_large_is_not_read(run_of: Runs) -> None:
    """It is rejected by its declared length, or, without one, once it exceeds the limit."""
    app = make_app(inspection_of(run_of, "generate-lstm"), 8650)
    for headers, most in (([(b"content-length", b"300000000")], 1), ([], 10)):
        read: list[int] = []
        sent: list[dict[str, Any]] = []

        async def receive(read: list[int] = read) -> dict[str, Any]:
            read.append(len(read))
            return {"type": "http.request", "body": b"x" * 2**20, "more_body": len(read) < 300}

        async def send(message: Any, sent: list[dict[str, Any]] = sent) -> None:
            sent.append(message)

        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
        }
        scope |= {"path": "/api/overview", "raw_path": b"/api/overview", "query_string": b"", "root_path": ""}
        asyncio.run(app({**scope, "headers": [(b"host", b"127.0.0.1:8650"), *headers]}, receive, send))
        assert sent[0]["status"] == 413
        assert len(read) <= most
        problem = json.loads(sent[1]["body"])["problem"]
        assert problem.startswith(f"The query has {'300,000,000' if headers else 'over 8,388,608'} bytes;")
        assert problem.endswith("Give a long text as a file: unrolled inspect MODEL --file FILE")


@pytest.mark.parametrize("body", [b"[1]", b"{", b"[" * 100000, b'{"text": "\\ud800"}', b"\xff", b"3"])
def test_a_body_that_is_no_question(client: TestClient, body: bytes) -> None:
    answer = client.post("/api/overview", content=body)
    assert answer.status_code == 400
    assert answer.json()["problem"].startswith("The query is not a JSON object of strings.")


def test_numbers_that_are_none_are_null_and_said(run_of: Runs, tmp_path: Path) -> None:
    """NaN weights are shown as gaps, with a note."""
    path = str(run_of("generate-lstm"))
    model = api.load(path)
    with torch.no_grad():
        model.network.get_parameter("scores.weight")[0, 0] = torch.nan
    inspection = Inspection(Asked({path: model}, "3 and 4"))
    client = TestClient(make_app(inspection, 8650), base_url=ADDRESS)
    for kind in ("overview", "values", "gradients", "flow", "norms", "unit", "unrolled", "step", "places"):
        answer = client.post(f"/api/{kind}", json={"text": "3 and 4", "layer": "l0"})
        assert answer.status_code == 200, kind
        assert ("note" in answer.json()) == (kind in ("overview", "gradients", "flow")), kind
    overview = client.post("/api/overview", json={"text": "3 and 4"}).json()
    assert None in overview["losses"]
    assert re.fullmatch(r"\d+ of these numbers are NaN or infinite\. They are shown as gaps\.", overview["note"])
    save_report(inspection, tmp_path / "a.html")


def test_a_fault_of_ours_is_a_sentence_too(client: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(VIEWS, "norms", lambda self, query: 1 / 0)
    answer = client.post("/api/norms", json={"text": "3"})
    assert answer.status_code == 500
    assert answer.json()["problem"].startswith("The server failed with ZeroDivisionError: division by zero.")
    assert "Traceback" in capsys.readouterr().err


def test_answers_about_a_long_text_are_bounded(run_of: Runs) -> None:
    """Lists are limited to what is drawn, and few losses and steps are sampled."""
    inspection = inspection_of(run_of, "generate-rnn", text="3 and 4 make 7\n" * 600)
    query = {"text": "3 and 4 make 7\n" * 600}

    def longest(data: Any) -> int:
        inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
        return max([len(data) if isinstance(data, list) else 0, *(longest(one) for one in inner)])

    for kind in ("overview", "values", "norms", "gradients", "flow", "unit", "unrolled"):
        found = inspection.view(kind, {**query, "layer": "l0"})
        assert longest(found) <= views.MOST_TOKENS, kind
    (found,) = inspection.view("gradients", {**query, "layer": "l0"})["models"].values()
    assert (len(found["rows"]), found["losses_in_all"]) == (29, 9000)
    (found,) = inspection.view("gradients", {**query, "layer": "l0", "follow": "40"})["models"].values()
    assert len(found["rows"]) == 40
    flow = inspection.view("flow", {**query, "layer": "l0"})
    assert (len(flow["steps"]), flow["steps_in_all"]) == (512, 9000)
    later = inspection.view("overview", {**query, "from": "8000"})
    assert (later["first"], len(later["losses"]), later["steps"]) == (8000, 1000, 9000)
    assert later["losses"][0] == views.rounded(float(inspection.asked.trace().losses[8000]))


def test_marks_of_the_page(client: TestClient, model_of: Callable[[str], Model]) -> None:
    query = {"text": "3 and 4", "layer": "l0", "quantity": "h", "order": "mark"}
    named = client.post("/api/values", json={**query, "mark": "place in the word"}).json()
    assert named["marks"] == [0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 0.0]
    picked = client.post("/api/values", json={**query, "mark": "@2,6"}).json()
    assert picked["marks"] == [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    for mark, problem in (("inside quotes", "The mark is the same for all tokens."), ("@x", "'@x' is not a mark.")):
        assert client.post("/api/values", json={**query, "mark": mark}).json()["problem"].startswith(problem)


def test_a_report_shows_the_unit_that_was_asked_for(run_of: Runs, tmp_path: Path) -> None:
    code, _, _ = call("inspect", run_of("generate-rnn"), "3 and", "--unit", "3", "--html", tmp_path / "a.html")
    assert code == 0
    page = (tmp_path / "a.html").read_text()
    recorded: dict[str, Any] = json.loads(re.search(r'id="recorded">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert recorded['["about"]']["opens"] == {"unit": "3"}
    asked = [dict(json.loads(key)[1:]) for key in recorded if json.loads(key)[0] in ("step", "unrolled")]
    assert {query["unit"] for query in asked} == {"3"}


def test_one_number_looks_the_same_in_every_line(run_of: Runs) -> None:
    """c_t = 3.9721 must not appear as 3.9720 in another line."""
    inspection = inspection_of(run_of, "generate-lstm", text="3 and 4")
    for step in range(7):
        lines = inspection.view("step", {"text": "3 and 4", "layer": "l0", "step": str(step), "unit": "3"})["lines"]
        shown = {name: value for name, _, _, value in lines}
        output = next(numbers for name, _, numbers, _ in lines if name == "h_t")
        assert output == f"{shown['o']}·tanh({shown['c_t']})"


def test_embeddings_where_there_are_some(run_of: Runs) -> None:
    for kind, words, sentences in (
        ("generate-lstm", True, True),
        ("classify", True, True),
        ("forecast", False, False),
    ):
        (about,) = inspection_of(run_of, kind).about()["models"]
        assert (about["words"] is None, about["sentences"]) == (words, sentences)
    assert about["words"].startswith("A model of forecast has no word vectors.")
