"""An exported model as a model repository of Triton: for each graph NAME/1/model.onnx and NAME/config.pbtxt."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnxruntime

from unrolled.errors import UserError

KINDS = {
    "tensor(float)": "TYPE_FP32",
    "tensor(float16)": "TYPE_FP16",
    "tensor(double)": "TYPE_FP64",
    "tensor(int64)": "TYPE_INT64",
    "tensor(int32)": "TYPE_INT32",
    "tensor(bool)": "TYPE_BOOL",
}


def write_repository(exported: str | Path, repository: str | Path, name: str | None = None) -> list[str]:
    """Write the graphs of `unrolled export --onnx` into a repository; the names of Triton's models.

    A model NAME of one graph is NAME, one of several is NAME-GRAPH for each. Triton runs the graphs; texts become ids,
    and ids texts, in the client, by `manifest.json`, which lies beside config.pbtxt.
    """
    source, target = Path(exported), Path(repository)
    graphs = sorted(source.glob("*.onnx"))
    if not graphs or not (source / "manifest.json").is_file():
        raise UserError(f"{source} is no exported model.", f"Write one: unrolled export MODEL --onnx {source}")
    names = [(name or source.name) + ("" if len(graphs) == 1 else f"-{graph.stem}") for graph in graphs]
    for one in names:
        if (target / one).exists():
            raise UserError(f"{target / one} exists already.", "Give another name, or remove it.")
    for graph, one in zip(graphs, names, strict=True):
        (target / one / "1").mkdir(parents=True)
        shutil.copyfile(graph, target / one / "1" / "model.onnx")
        shutil.copyfile(source / "manifest.json", target / one / "manifest.json")
        (target / one / "config.pbtxt").write_text(config_of(graph, one))
    return names


def config_of(graph: Path, name: str) -> str:
    """Triton's configuration of a graph: its inputs and outputs, with -1 where a size varies."""
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    parts = [f'name: "{name}"', 'backend: "onnxruntime"', "max_batch_size: 0"]
    for kind, values in (("input", session.get_inputs()), ("output", session.get_outputs())):
        for value in values:
            sizes = ", ".join(str(size) if isinstance(size, int) else "-1" for size in value.shape)
            parts.append(f'{kind} {{ name: "{value.name}" data_type: {KINDS[value.type]} dims: [ {sizes} ] }}')
    return "\n".join(parts) + "\n"
