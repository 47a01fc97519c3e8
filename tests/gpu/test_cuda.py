"""On a GPU: our layers against torch.nn's there, and a whole training run. Skipped where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import unrolled
from unrolled import api

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

TEXT = "\n".join(f"{a} and {b} make {a + b}" for a in range(12) for b in range(12)) + "\n"


@pytest.mark.parametrize("ragged", [False, True], ids=["full", "ragged"])
@pytest.mark.parametrize("engine", ["torch", "reference"])
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_equals_torch_nn_on_the_gpu(name: str, engine: str, ragged: bool) -> None:
    """float64, so that only the arithmetic and not cuDNN's rounding is compared."""
    options: dict[str, Any] = {
        "num_layers": 2,
        "bidirectional": True,
        "batch_first": True,
        "device": "cuda",
        "dtype": torch.float64,
    }
    theirs, ours = getattr(nn, name)(5, 7, **options), getattr(unrolled, name)(5, 7, backend=engine, **options)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(3, 11, 5, device="cuda", dtype=torch.float64)
    lengths = torch.tensor([11, 4, 7])
    if ragged:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
        actual, _ = ours(x, lengths=lengths)
    else:
        (expected, _), (actual, _) = theirs(x), ours(x)
    assert torch.allclose(actual, expected, atol=1e-10)
    gradients = torch.autograd.grad(actual.pow(2).sum(), list(ours.parameters()))
    wanted = torch.autograd.grad(expected.pow(2).sum(), list(theirs.parameters()))
    for a, e in zip(gradients, wanted, strict=True):
        assert torch.allclose(a, e, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("options", [{}, {"peephole": True}, {"layer_norm": True}], ids=str)
def test_autocast(dtype: torch.dtype, options: dict[str, Any]) -> None:
    layer: Any = unrolled.LSTM(5, 7, batch_first=True, device="cuda", **options)
    x = torch.randn(3, 11, 5, device="cuda")
    exact, _ = layer(x)
    with torch.autocast("cuda", dtype=dtype):
        output, _ = layer(x)
    # torch.nn runs cuDNN in float16 under any autocast
    assert output.dtype == (dtype if options else torch.float16)
    assert (output.float() - exact).abs().max() < 0.05


def test_no_copies_of_weights_are_complained_about(recwarn: pytest.WarningsRecorder) -> None:
    layer: Any = unrolled.LSTM(8, 8, 2, bidirectional=True, combine="concat").cuda()
    layer(torch.randn(5, 2, 8, device="cuda"))[0].sum().backward()
    assert not [w for w in recwarn if "contiguous" in str(w.message)]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_training(precision: str, tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text(TEXT)
    settings = {
        "model.hidden_size": 24,
        "model.num_layers": 1,
        "train.batch_size": 8,
        "train.k1": 20,
        "train.epochs": 40,
        "train.max_steps": 60,
        "train.lr": 0.02,
        "train.precision": precision,
        "train.device": "cuda",
    }
    model = api.train("generate", train=book, out=tmp_path / "run", set=settings, quiet=True)
    assert model.device.type == "cuda"
    assert model.scores["nats_per_token"] < 1.8
    assert api.load(tmp_path / "run").predict("3 and", max_tokens=5, seed=0)
    api.resume(tmp_path / "run", quiet=True)
