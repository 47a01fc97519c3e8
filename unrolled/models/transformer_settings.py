"""Keys of Transformers that several sections of a config have, each with its own default."""

from typing import Annotated, Literal

from pydantic import Field

from unrolled.errors import UserError
from unrolled.models.recurrent_settings import TRANSFORMER

Blocks = Annotated[
    int, Field(ge=1, json_schema_extra=TRANSFORMER, description="transformer: number of blocks, instead of num_layers.")
]
Heads = Annotated[int, Field(ge=1, json_schema_extra=TRANSFORMER, description="transformer: heads of attention.")]
Feedforward = Annotated[
    int, Field(ge=1, json_schema_extra=TRANSFORMER, description="transformer: width of the feed-forward layers.")
]
PositionEncoding = Annotated[
    Literal["sinusoidal", "learned", "none"],
    Field(json_schema_extra=TRANSFORMER, description="transformer: encoding of positions."),
]
NormFirst = Annotated[
    bool,
    Field(
        json_schema_extra=TRANSFORMER,
        description="transformer: layer norm before each part of a block (pre-norm), not after it.",
    ),
]


def check_heads(width: int, heads: int) -> None:
    """Refuses a width that does not split into heads."""
    if width % heads:
        fitting = [number for number in (width // heads * heads, -(-width // heads) * heads) if number]
        raise UserError(
            f"model.hidden_size={width} is not divisible by model.heads={heads}.",
            f"Use model.hidden_size={' or '.join(map(str, fitting))}.",
        )
