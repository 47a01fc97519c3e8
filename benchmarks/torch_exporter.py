"""Models whose graphs torch's own exporter writes, `torch.onnx.export(dynamo=True)`, in the same folder and runtime."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unrolled.export.graphs import GraphPlan, plans_of
from unrolled.model import Model


class Computing(nn.Module):
    """The computation of a graph, as a module."""

    def __init__(self, model: Model, plan: GraphPlan) -> None:
        super().__init__()
        self.network, self._plan = plan.network or model.network, plan

    def forward(self, *tensors: Tensor) -> Any:
        return self._plan.compute(*tensors)


def write_by_torch(model: Model, ours: Path, folder: Path) -> dict[str, str]:
    """Copy an exported model, with every graph that torch's exporter can write in place of ours.

    The reason is returned for each graph that it cannot write; then the folder is of no use.
    """
    shutil.copytree(ours, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    reasons = {}
    model.network.eval()
    for plan in plans_of(model).graphs:
        try:
            data = _written(model, plan)
        except Exception as error:  # torch has a class for each of its reasons
            reasons[plan.name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
            continue
        entry = manifest["graphs"][plan.name]
        (folder / entry["file"]).write_bytes(data)
        entry["sha256"] = hashlib.sha256(data).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return reasons


def _written(model: Model, plan: GraphPlan) -> bytes:
    given = plan.arguments()
    free = tuple(dict.fromkeys(argument.free, torch.export.Dim.AUTO) or None for argument in given)
    with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        program: Any = torch.onnx.export(
            Computing(model, plan).eval(),
            tuple(argument.example for argument in given),
            dynamo=True,
            dynamic_shapes=(free,),
            input_names=list(plan.inputs),
            output_names=list(plan.outputs),
            verbose=False,
        )
    found: bytes = program.model_proto.SerializeToString()
    return found
