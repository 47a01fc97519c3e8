"""A model behind LitServe: `LitServer(LitModel("runs/mood", max_batch_size=64, batch_timeout=0.005))`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from litserve import LitAPI

from unrolled.jobs import load_model
from unrolled.model import find_file
from unrolled.serve.service.answers import prediction


class LitModel(LitAPI):  # type: ignore[misc]
    """Answers {"inputs": one} with {"predictions": [answer]}, the answers of `model.predict` in batches.

    `options` are those of `model.predict`; the others go to LitAPI.
    """

    def __init__(self, path: str | Path, options: dict[str, Any] | None = None, **given: Any) -> None:
        super().__init__(**given)
        self.path, self.options = str(path), options or {}

    def setup(self, device: str) -> None:
        self.model = load_model(find_file(self.path), device=device)

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # LitServe reads the annotation
        return request["inputs"]

    def batch(self, inputs: list[Any]) -> list[Any]:
        return list(inputs)

    def predict(self, inputs: Any) -> Any:
        return self.model.predict(inputs, **self.options)

    def unbatch(self, output: Any) -> Any:
        return list(output)

    def encode_response(self, output: Any) -> dict[str, Any]:
        return {"predictions": [prediction(self.model.task.name, output)]}
