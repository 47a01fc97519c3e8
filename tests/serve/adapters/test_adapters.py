"""Models behind LitServe and Ray Serve, and Triton's layout of an exported model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve.service.test_command import free_port
from unrolled import api
from unrolled.errors import UserError
from unrolled.model import Model
from unrolled.serve.service.answers import prediction

Runs = Callable[[str], Path]
TEXTS = ["one fine two three", "one", "three two bad one"]
LITSERVE = """
import sys
from litserve import LitServer
from unrolled.serve.adapters.litserve import LitModel

if __name__ == "__main__":
    server = LitServer(LitModel(sys.argv[1], max_batch_size=4, batch_timeout=0.01), accelerator="cpu")
    server.run(host="127.0.0.1", port=int(sys.argv[2]), generate_client_file=False, num_api_servers=1)
"""
RAY = """
import sys, time
import ray
from ray import serve
from unrolled.serve.adapters.ray import deployment

ray.init(address="local", num_cpus=1, include_dashboard=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
serve.run(deployment(sys.argv[1]), route_prefix="/predict")
time.sleep(300)
"""


def ask(port: int, text: str) -> Any:
    body = json.dumps({"inputs": text}).encode()
    url = f"http://127.0.0.1:{port}/predict"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    end = time.monotonic() + 300
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)["predictions"][0]
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.3)


@pytest.mark.parametrize(("package", "program"), [("litserve", LITSERVE), ("ray", RAY)])
def test_a_model_behind_another_server(
    package: str, program: str, run_of: Runs, model_of: Callable[[str], Model], tmp_path: Path
) -> None:
    pytest.importorskip(package, reason=f"the adapter needs {package}")
    script, port = tmp_path / "program.py", free_port()
    script.write_text(program)
    command = [sys.executable, str(script), str(run_of("classify")), str(port)]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            for text in TEXTS:
                expected = json.loads(json.dumps(prediction("classify", model_of("classify").predict(text))))
                assert ask(port, text) == expected
        finally:
            os.killpg(process.pid, signal.SIGTERM)  # LitServe's workers too, which would go on without it


def test_a_replica_of_ray_is_given_whole_batches() -> None:
    pytest.importorskip("ray", reason="the adapter needs ray")
    from unrolled.serve.adapters.ray import MOST, deployment

    def most(**settings: Any) -> Any:
        return deployment("model", **settings)._bound_deployment.max_ongoing_requests

    assert most() >= MOST
    assert most(max_ongoing_requests=7) == 7


def test_triton_gets_each_graph_with_its_configuration(run_of: Runs, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    import onnxruntime

    from unrolled.serve.adapters.triton import write_repository

    api.export_onnx(api.load(run_of("tag-softmax")), tmp_path / "tags", check=False)
    assert write_repository(tmp_path / "tags", tmp_path / "models") == ["tags"]
    text = (tmp_path / "models" / "tags" / "config.pbtxt").read_text()
    found = re.findall(r'(input|output) \{ name: "(\w+)" data_type: TYPE_(\w+) dims: \[ ([-\d, ]+) \] \}', text)
    session = onnxruntime.InferenceSession(str(tmp_path / "models" / "tags" / "1" / "model.onnx"))
    assert [name for kind, name, _, _ in found if kind == "input"] == [one.name for one in session.get_inputs()]
    assert [name for kind, name, _, _ in found if kind == "output"] == [one.name for one in session.get_outputs()]
    kinds = {"INT64": np.int64, "FP32": np.float32}
    fed = {
        name: np.ones([3 if size == "-1" else int(size) for size in sizes.split(", ")], kinds[dtype])
        for kind, name, dtype, sizes in found
        if kind == "input"
    }
    assert all(len(one.shape) == len(fed[one.name].shape) for one in session.get_inputs())
    with pytest.raises(UserError, match=r"^\S+tags exists already\. Give another name, or remove it\.$"):
        write_repository(tmp_path / "tags", tmp_path / "models")
    with pytest.raises(UserError, match=r"^\S+nothing is no exported model\. Write one: unrolled export MODEL"):
        write_repository(tmp_path / "nothing", tmp_path / "models")
