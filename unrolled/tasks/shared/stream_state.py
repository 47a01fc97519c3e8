"""The state of a stream as bytes: taken out, kept anywhere, and put back into a stream of the same model."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unrolled.errors import UserError

if TYPE_CHECKING:
    from unrolled.model import Model

FORMAT = 1
NAME = "unrolled-stream"  # of the entry in the metadata
MOST = 2**28  # bytes
Arrays = dict[str, NDArray[Any]]


def packed(model: Model, kind: str, values: dict[str, Any]) -> bytes:
    """Everything a stream keeps, as a safetensors file: numbers as arrays, and their places in the metadata as JSON."""
    from safetensors.numpy import save

    arrays: Arrays = {}
    about = {"format": FORMAT, "kind": kind, "model": digest_of(model), "values": _tree(values, arrays)}
    text = json.dumps(about)
    return save(arrays, {NAME: text, "sha256": _sum(text, arrays)})


def unpacked(model: Model, kind: str, data: bytes) -> dict[str, Any]:
    """The values that `packed` was given; anything else, and the state of another model or stream, is an error."""
    about, arrays = _read(data)
    if about.get("format") != FORMAT:
        raise UserError("The stream's state is of another version of unrolled.", "Begin a new stream.")
    if about["kind"] != kind:
        raise UserError(f"The state is of {about['kind']}, and this is {kind}.", "Use the options it was begun with.")
    if about["model"] != digest_of(model):
        raise UserError("The stream's state is of another model.", "Use the model it was begun with.")
    values: dict[str, Any] = _value(about["values"], arrays)
    return values


def digest_of(model: Model) -> str:
    """A digest of a model's config and weights, computed again where these have changed."""
    network: Any = model.network
    if not hasattr(network, "state_dict"):
        raise UserError("A stream of an exported model has no state to store.", "Use the model it was exported from.")
    weights = {name: value.detach() for name, value in sorted(network.state_dict().items())}
    version = tuple((value.data_ptr(), value._version) for value in weights.values())
    known = network.__dict__.get("_stream_digest")
    if known is not None and known[0] == version:
        return str(known[1])
    found = hashlib.sha256(json.dumps(model.config.model_dump(mode="json"), sort_keys=True).encode())
    for name, value in weights.items():
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.cpu().contiguous().numpy().tobytes())
    network.__dict__["_stream_digest"] = version, found.hexdigest()
    return found.hexdigest()


def _read(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """The description and the arrays of a state, whole and undamaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    damaged = UserError(
        "The stream's state is damaged.", "Give the bytes that state() returned, or begin a new stream."
    )
    if not isinstance(data, (bytes, bytearray)) or not 8 < len(data) <= MOST:
        raise damaged
    size = int.from_bytes(data[:8], "little")
    try:
        arrays: Arrays = load(bytes(data))
        metadata = json.loads(data[8 : 8 + size])["__metadata__"]
        text = metadata[NAME]
        about = json.loads(text)
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError):
        raise damaged from None
    if metadata.get("sha256") != _sum(text, arrays):
        raise damaged
    return about, arrays


def _sum(text: str, arrays: Arrays) -> str:
    found = hashlib.sha256(text.encode())
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _tree(value: Any, arrays: Arrays) -> Any:
    """A value as JSON, its arrays by their names."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {"dict": {key: _tree(one, arrays) for key, one in value.items()}}
    if isinstance(value, (list, tuple)):
        name = type(value).__name__ if hasattr(value, "_fields") else "list" if isinstance(value, list) else "tuple"
        return {name: [_tree(one, arrays) for one in value]}
    kind, name = ("array" if isinstance(value, np.ndarray) else "tensor"), str(len(arrays))
    array = value if kind == "array" else value.detach().cpu().numpy()
    arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
    return {kind: name}


def _value(tree: Any, arrays: Arrays) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, inside),) = tree.items()
    if kind == "dict":
        return {key: _value(one, arrays) for key, one in inside.items()}
    if kind == "array":
        return arrays[inside].copy()
    if kind == "tensor":
        import torch

        return torch.from_numpy(arrays[inside].copy())
    several = [_value(one, arrays) for one in inside]
    if kind == "list":
        return several
    if kind == "TransformerState":
        from unrolled.nn.transformer import TransformerState

        return TransformerState(*several)
    return tuple(several)
