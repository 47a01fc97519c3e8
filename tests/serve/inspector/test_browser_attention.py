"""Maps of attention over a picture in a real browser: the weights above, the region that hard attention read below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.fitting import fitting
from tests.see.models import SEEN, write_files
from tests.serve.inspector.browsing import opened, served
from unrolled import Model, api
from unrolled.serve.inspector import Asked, Inspection

DARK, DUSK = 0.12, 70  # brightness and grey of regions without attention
BLURRED = 24  # the browser smooths the map: beside the middle of a region an eighth of its neighbours shines through
PIXELS = """[...document.querySelectorAll('.pictures figure:not(#unmasked)')].map(figure => ({
  word: figure.querySelector('figcaption').textContent,
  maps: [...figure.querySelectorAll('canvas')].map(canvas => ({
    label: canvas.ariaLabel, top: canvas.getBoundingClientRect().top, bottom: canvas.getBoundingClientRect().bottom,
    width: canvas.width, height: canvas.height,
    pixels: [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data],
  })),
}))"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_files(folder)
    return folder


def captioner(data: Path, attention: str) -> Model:
    keys = fitting("caption", {**SEEN, "model.decoder.attention": attention, "data.size": 32})
    return api.train(
        "caption", train=data / "pictures" / "train.tsv", out=data / f"run-{attention}", set=keys, quiet=True
    )


def shown(page: Any, model: Model, data: Path) -> list[dict[str, Any]]:
    """The maps of each word as the page draws them."""
    asked = Asked({"model": model}, file=str(data / "pictures" / "0.png"))
    with served(Inspection(asked)) as address:
        page.goto(f"{address}#view=attention&specials=yes")
        opened(page, "attention")
        found: list[dict[str, Any]] = page.evaluate(PIXELS)
        for word in found:
            word["note"] = "below the one region that was read" in page.text_content("#view")
        return found


def middles(picture: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """The pixel in the middle of each region, the regions from left to right and from above."""
    down, across = grid
    rows = [int((i + 0.5) * picture.shape[0] / down) for i in range(down)]
    columns = [int((i + 0.5) * picture.shape[1] / across) for i in range(across)]
    return picture[np.ix_(rows, columns)].reshape(-1).astype(float)


def test_hard_attention_stands_below_soft(page: Any, data: Path) -> None:
    model = captioner(data, "hard")
    trace = model.trace(str(data / "pictures" / "0.png"))
    (attention,) = trace.attention.values()
    assert attention.hard
    assert attention.grid is not None
    assert attention.image is not None
    picture = (attention.image.float().clamp(0, 1).numpy() * 255).round()
    weights = attention.weights[0, 0].numpy()
    found = shown(page, model, data)
    assert [word["word"] for word in found] == list(attention.rows)
    assert found
    for word, row in zip(found, weights, strict=True):
        soft, hard = word["maps"]
        assert word["note"]
        assert hard["top"] >= soft["bottom"]
        assert (soft["label"], hard["label"]) == (
            f"attention of “{word['word']}”",
            f"region read for “{word['word']}”",
        )
        read = np.arange(len(row)) == row.argmax()
        for one, light in ((soft, row / row.max()), (hard, read.astype(float))):
            pixels = np.array(one["pixels"]).reshape(one["height"], one["width"], 4)[..., 0]
            share = DARK + (1 - DARK) * light
            grey = picture if picture.ndim == 2 else picture[..., 0]
            expected = share * middles(grey, attention.grid) + (1 - share) * DUSK
            np.testing.assert_allclose(middles(pixels, attention.grid), expected, atol=BLURRED)
        assert np.array(soft["pixels"]).tolist() != np.array(hard["pixels"]).tolist()


def test_soft_attention_has_one_map(page: Any, data: Path) -> None:
    found = shown(page, captioner(data, "soft"), data)
    assert found
    assert all(len(word["maps"]) == 1 and not word["note"] for word in found)


def test_the_picture_is_the_one_that_was_given(data: Path) -> None:
    """The maps are compared with the picture in the file, not with an invention of the trace."""
    model = api.load(data / "run-hard")
    (attention,) = model.trace(str(data / "pictures" / "0.png")).attention.values()
    assert attention.image is not None
    given = np.asarray(Image.open(data / "pictures" / "0.png").convert("L"))
    assert attention.image.shape[:2] == given.shape
