"""A model behind LitServe, or behind plain FastAPI without batching. Run by serve.py, in an environment that has them.

python benchmarks/serve_peers.py litserve|fastapi MODEL PORT THREADS
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from unrolled import load
from unrolled.serve.service.answers import prediction

try:
    from litserve import LitAPI, LitServer
except ImportError:  # this process is the other peer
    LitAPI = object

MOST, WAIT = 64, 0.005  # inputs in a batch of LitServe, and seconds that it waits for them


class Api(LitAPI):  # type: ignore[misc]
    """The model in LitServe's worker process, in batches as LitServe's documentation recommends."""

    path, threads = "", 1

    def setup(self, device: str) -> None:
        torch.set_num_threads(self.threads)
        self.model = load(self.path)

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # LitServe reads the annotation
        return request["inputs"]

    def batch(self, inputs: list[Any]) -> list[Any]:
        return list(inputs)

    def predict(self, inputs: list[Any]) -> list[Any]:
        return list(self.model.predict(inputs))

    def unbatch(self, output: list[Any]) -> list[Any]:
        return output

    def encode_response(self, output: Any) -> dict[str, Any]:
        return {"predictions": [prediction(self.model.task.name, output)]}


def litserve(path: str, port: int, threads: int) -> None:
    api = Api(max_batch_size=MOST, batch_timeout=WAIT)
    api.path, api.threads = path, threads
    server = LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=port, num_api_servers=1, log_level="warning", generate_client_file=False)


def fastapi(path: str, port: int, threads: int) -> None:
    """An endpoint that calls the model, in FastAPI's pool of threads."""
    import uvicorn
    from fastapi import Body, FastAPI

    model = load(path)
    torch.set_num_threads(threads)
    app = FastAPI()

    @app.post("/predict")
    def predict(inputs: str = Body(embed=True)) -> dict[str, Any]:
        return {"predictions": [prediction(model.task.name, model.predict(inputs))]}

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    {"litserve": litserve, "fastapi": fastapi}[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
