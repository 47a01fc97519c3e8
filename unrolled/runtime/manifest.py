"""The manifest of an exported model: what its graphs take and give, and everything else that answers depend on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from unrolled.config.describe import show
from unrolled.config.stored import parsed
from unrolled.errors import UserError
from unrolled.exported import FORMAT, MANIFEST, VERSION

STATE = "state_"
AGAIN = "Export the model again: unrolled export MODEL --onnx FOLDER"
Name = Annotated[str, Field(min_length=1, max_length=1000)]
DType = Literal["int64", "float32", "bool"]
Dimension = Annotated[int, Field(ge=0)] | Name


class ArrayEntry(BaseModel):
    """An input or output of a graph; a free dimension is a name."""

    model_config = ConfigDict(strict=True)

    name: Name
    dtype: DType
    shape: list[Dimension]


class GraphEntry(BaseModel):
    """A graph's file with its digest, what it takes and what it gives."""

    model_config = ConfigDict(strict=True)

    file: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=200)]  # in the manifest's folder, nowhere else
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    inputs: list[ArrayEntry]
    outputs: list[ArrayEntry]

    @property
    def state(self) -> list[ArrayEntry]:
        """The inputs that carry a state from call to call: `state_0` goes in, and `new_state_0` comes out."""
        return [one for one in self.inputs if one.name.startswith(STATE)]


class Manifest(BaseModel):
    """The content of manifest.json. Unknown keys are entries of the task, in `model_extra`."""

    model_config = ConfigDict(strict=True, extra="allow")

    format: Literal["unrolled-onnx"]
    version: int
    task: Name
    config: dict[str, JsonValue]
    assets: JsonValue
    scores: dict[Name, float] = {}
    versions: dict[Name, Name] = {}
    graphs: dict[Name, GraphEntry]

    def entry(self, name: str, default: Any = None) -> Any:
        """An entry of the task."""
        return (self.model_extra or {}).get(name, default)


def read_manifest(folder: str | Path) -> Manifest:
    """The manifest of a folder, checked."""
    folder = Path(folder)
    path = folder / MANIFEST
    if not folder.exists():
        raise UserError(f"{folder} does not exist.", "Give a folder written by `unrolled export MODEL --onnx FOLDER`.")
    if not path.is_file():
        raise UserError(
            f"{folder} has no {MANIFEST}: it is no exported model.",
            "Give a folder written by `unrolled export MODEL --onnx FOLDER`.",
        )
    try:
        stored = parsed(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}.", AGAIN) from None
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        raise UserError(f"{path} is not the manifest of an exported model: its format is not {FORMAT!r}.", AGAIN)
    version = stored.get("version")
    if isinstance(version, int) and version > VERSION:
        written = stored.get("versions")
        by = written.get("unrolled", "unknown") if isinstance(written, dict) else "unknown"
        raise UserError(
            f"{path} has version {version}, written by unrolled {by}; this unrolled reads versions up to {VERSION}.",
            "Update unrolled, or export the model with this one.",
        )
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        got = "missing" if first["type"] == "missing" else show(first["input"])
        raise UserError(f"{path} is damaged: {place} is {got}.", AGAIN) from None
