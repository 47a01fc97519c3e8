"""A configuration with every kind of key, and calls that read it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, field_validator, model_validator

from unrolled.config import Section, read_config
from unrolled.errors import UserError

Size = Annotated[int, Field(ge=1)]


class Data(Section):
    train: str | None = Field(default=None, description="File to train on")
    cache: Path = Field(default=Path("cache"), description="Folder for what was read once.")
    level: Literal["char", "word"] = Field(default="char", description="Unit of text.")
    lowercase: bool = Field(default=False, description="Whether capitals are lost.")
    files: list[str] = Field(default_factory=list, description="More files.")
    name: str = Field(default='a "b"\n\\c', description="Name.")


class Encoder(Section):
    num_layers: int = Field(default=1, ge=1, le=8, description="Layers.")
    sizes: list[Size] = Field(default=[8], min_length=1, description="Width of each layer.")


class Model(Section):
    cell: Literal["gru", "lstm"] = Field(default="lstm", description="Recurrent cell.")
    hidden_size: int = Field(default=256, ge=1, description="Units in each layer.")
    num_heads: int = Field(default=1, ge=1, description="Heads.")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Share of units dropped.")
    peephole: Literal[True, False, "previous"] = Field(default=False, description="Which memory gates see.")
    encoder: Encoder = Field(default=Encoder(num_layers=2), description="The part that reads")

    @model_validator(mode="after")
    def heads_divide(self) -> Model:
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size={self.hidden_size} is not divisible by num_heads={self.num_heads}.")
        return self


class Train(Section):
    lr: float = Field(default=3e-4, gt=0, description="Learning rate.")
    decay: Literal["cosine", "plateau"] | None = Field(default="cosine", description="How the learning rate falls.")
    clip_norm: float | None = Field(default=1.0, gt=0, description="Largest norm of the gradient.")
    max_steps: int | None = Field(default=None, ge=1, description="Stop after so many steps.")
    batch_size: Size | Literal["auto"] = Field(default="auto", description="Sequences in a batch.")
    betas: tuple[float, float] = Field(default=(0.9, 0.999), description="Averages of Adam. " * 9)
    seed: int = Field(default=1, description="bf16 is no seed")

    @field_validator("seed")
    @classmethod
    def not_unlucky(cls, value: int) -> int:
        if value == 13:
            raise ValueError("13 is an unlucky number.")
        return value


class Config(Section):
    task: str = Field(default="generate", description="Task.")
    data: Data = Data()
    model: Model = Field(default=Model(), description="The network.")
    train: Train = Train()


def read(tmp_path: Path, text: str, *overrides: str, **extra: Any) -> Config:
    path = tmp_path / "my.toml"
    path.write_text(text)
    return read_config(Config, path, overrides, extra)


def message(tmp_path: Path, text: str, *overrides: str, extra: dict[str, Any] | None = None) -> str:
    with pytest.raises(UserError) as caught:
        read(tmp_path, text, *overrides, **(extra or {}))
    return str(caught.value).replace(str(tmp_path) + os.sep, "")
