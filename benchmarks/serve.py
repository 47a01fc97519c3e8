"""`unrolled serve` under load, against LitServe and against plain FastAPI without batching. Loopback only.

    python -m venv peers && peers/bin/pip install litserve==0.2.19 'unrolled[serve]'   # the peers' environment
    apt install wrk
    python benchmarks/serve.py --peers peers/bin/python --seconds 10 [--soak 600] [--out FILE] [--parts rates,one,…]

One model at a time behind each server, each in a process of its own, with inputs of mixed length; wrk is the client on
the same machine. Rates are compared at equal p95: ours is the most requests a second, over numbers of clients, whose
p95 is not above the peer's at 64 clients. Parts that are left out stay in FILE as they were.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from exported import sentences, spellings
from measure import RESULTS, load, machine
from serve_load import Soak, ask, ended, served, soak, wrk

import unrolled
from unrolled.serve.service.answers import prediction

TASKS = ("classify", "tag", "translate")
CLIENTS = (1, 4, 16, 32, 64, 96, 128, 192, 256)
PEERS = {"litserve": (1, 2), "fastapi": (1,)}  # threads of a computation; of several the fastest counts
AT = 64  # clients of the peers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each number of clients")
    parser.add_argument("--soak", type=float, default=30.0, help="seconds of the soak")
    parser.add_argument("--soak-clients", type=int, default=200)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--clients", default=",".join(map(str, CLIENTS)), help="the numbers to try for unrolled")
    parser.add_argument("--parts", default="rates,one,soak,end")
    parser.add_argument("--peers", default="", metavar="PYTHON", help="of the peers' environment; default: no peers")
    parser.add_argument("--models", type=Path, default=Path("build/serve-models"), help="trained here if not there")
    parser.add_argument("--out", type=Path, default=RESULTS / "serve.json")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = given.parts.split(",")
    if "rates" in parts and shutil.which("wrk") is None:
        raise SystemExit("The rates need wrk: apt install wrk. Or leave them out: --parts one,soak,end")
    run = {"command": " ".join(["python serve.py", *sys.argv[1:]]), "parts": parts, **machine(), "load": [load()]}
    found: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    found.setdefault("runs", []).append(run)
    for task in given.tasks.split(","):
        model, texts = trained(task, given.models), inputs_of(task)
        one = found.setdefault("tasks", {}).setdefault(task, {})
        if "rates" in parts:
            one["rates"] = rates(task, model, texts, given)
        if "one" in parts:
            one["one"] = alone(task, model, texts, given)
        run["load"].append(load())
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    model, texts = trained("classify", given.models), inputs_of("classify")
    if "soak" in parts:
        found["soak"] = soaked(model, texts, given)
    if "end" in parts:
        found["end"] = at_the_end(model, texts, given)
    run["load"].append(load())
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written to {given.out}")


def trained(task: str, folder: Path) -> Path:
    """A model of the task's default size, trained for a while on the data that comes with it."""
    out = folder / task
    if not out.exists():
        unrolled.train(task, out=out, set={"train.max_steps": 60}, quiet=True)
    return out / "best.safetensors"


def inputs_of(task: str) -> list[str]:
    return spellings(64) if task == "translate" else sentences(64)


def expected(task: str, model: Path, texts: list[str]) -> list[Any]:
    loaded = unrolled.load(model)
    return [json.loads(json.dumps(prediction(task, loaded.predict(text)))) for text in texts]


def rates(task: str, model: Path, texts: list[str], given: argparse.Namespace) -> dict[str, Any]:
    """Requests a second of each server, and ours at the p95 of each peer."""
    right = expected(task, model, texts)
    found: dict[str, list[dict[str, Any]]] = {}
    kinds = [("unrolled", 0), *((peer, threads) for peer, all in PEERS.items() for threads in all if given.peers)]
    for kind, threads in kinds:
        with served(kind, model, given.peers, (str(threads),) if threads else ()) as server:
            answers = [ask(server.port, server.route, text)[0] for text in texts]
            if kind == "unrolled" and answers != right:
                raise SystemExit(f"{task}: the service's answers differ from those of model.predict.")
            if [shown(one) for one in answers] != [shown(one) for one in right]:
                raise SystemExit(f"{task}: {kind} answers otherwise than model.predict.")
            wrk(server, texts, AT, min(2.0, given.seconds))  # warm
            counts = [int(count) for count in given.clients.split(",")] if kind == "unrolled" else [AT]
            runs = [wrk(server, texts, count, given.seconds) for count in counts]
            found.setdefault(kind, []).extend({**run, "threads": threads} if threads else run for run in runs)
            for run in runs:
                line = f"{run['rps']:8.0f} requests/s, p50 {run['p50_ms']:.1f} ms, p95 {run['p95_ms']:.1f} ms"
                line += f", {run['processor_ms']:.1f} ms of processors each"
                print(f"{task} {kind}, {run['clients']} clients: {line}, {run['errors']} errors", flush=True)
    ratios = {}
    for peer in PEERS if given.peers else ():
        theirs = max(found[peer], key=lambda run: run["rps"])
        fitting = [run for run in found["unrolled"] if run["p95_ms"] <= theirs["p95_ms"]]
        best = max(fitting, key=lambda run: run["rps"], default=None)
        ratios[peer] = None if best is None else round(best["rps"] / theirs["rps"], 2)
        print(f"{task}: {ratios[peer]}× the requests/s of {peer} at its p95", flush=True)
    return {"runs": found, "ratios": ratios}


def shown(answer: dict[str, Any]) -> Any:
    """The part of an answer that does not depend on rounding."""
    return {key: answer.get(key) for key in ("label", "tags", "text")}


def alone(task: str, model: Path, texts: list[str], given: argparse.Namespace) -> dict[str, float]:
    """One request at a time, in turns with `model.predict` in this process, as many threads each: ms of a request.

    Other programs on the machine lengthen the medians. The best of many, and the time that the processors spent, do
    not depend on them as much.
    """
    loaded = unrolled.load(model)
    torch.set_num_threads(1)
    over, direct, own = [], [], 0.0
    with served("unrolled", model, given.peers, ("--threads", "1")) as server:
        link = http.client.HTTPConnection("127.0.0.1", server.port)
        for text in texts:
            ask(server.port, server.route, text)
            loaded.predict(text)
        spent, end, turn = -server.processor_seconds, time.monotonic() + given.seconds, 0
        while time.monotonic() < end or turn < 100:
            text = texts[turn % len(texts)]
            body = json.dumps({"inputs": text})
            began = time.perf_counter()
            link.request("POST", server.route, body, {"Content-Type": "application/json"})
            link.getresponse().read()
            between, cpu = time.perf_counter(), time.process_time()
            loaded.predict(text)
            direct.append(1000 * (time.perf_counter() - between))
            own += time.process_time() - cpu
            over.append(1000 * (between - began))
            turn += 1
        spent += server.processor_seconds
    found = {
        "requests": turn,
        "http_ms": statistics.median(over),
        "predict_ms": statistics.median(direct),
        "overhead_ms": statistics.median(over) - statistics.median(direct),
        "overhead_of_best_ms": min(over) - min(direct),
        "overhead_processor_ms": 1000 * (spent - own) / turn,
    }
    print(f"{task}, one request: {json.dumps({name: round(value, 2) for name, value in found.items()})}", flush=True)
    return found


def soaked(model: Path, texts: list[str], given: argparse.Namespace) -> dict[str, Any]:
    right = expected("classify", model, texts)
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "model.safetensors"
        shutil.copyfile(model, own)
        with served("unrolled", own, given.peers) as server:
            work = Soak(server, texts, right, time.monotonic() + given.soak)
            found = asyncio.run(soak(server, own, work, given.soak_clients, min(20.0, given.soak / 4)))
            loads = [one for one in metrics(server.port) if one.startswith("unrolled_model_loads_total")]
    found["loads"] = int(float(loads[0].split()[-1]))
    print(f"soak: {json.dumps(found)}", flush=True)
    return found


def metrics(port: int) -> list[str]:
    link = http.client.HTTPConnection("127.0.0.1", port)
    link.request("GET", "/metrics")
    return link.getresponse().read().decode().splitlines()


def at_the_end(model: Path, texts: list[str], given: argparse.Namespace) -> dict[str, Any]:
    right = expected("classify", model, texts)
    with served("unrolled", model, given.peers) as server:
        work = Soak(server, texts, right, time.monotonic() + 120)
        found = asyncio.run(ended(server, work, given.soak_clients, min(5.0, given.soak)))
    print(f"SIGTERM under load: {json.dumps(found)}", flush=True)
    return found


if __name__ == "__main__":
    main()
