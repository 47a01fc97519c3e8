"""Pictures of lines of text, normalised to grey, light letters on black and one height."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrolled.data.readers.media.archives import Medium
from unrolled.data.signals.pictures import unreadable
from unrolled.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

Grey = NDArray[np.uint8]
FIX = "Expected a whole picture of one line: png, jpeg, tiff, …"
SPECKS = 0.02  # share of the fullest row; a row with less ink is between lines
NEARLY = 0.4  # share of the highest band; a lower one is not a line
LEAST_ROWS = 8  # smallest height of a readable line
WIDE = 4.0  # in heights; narrower bands are letters or signs
REACH = 4.0  # margin above and below the middle of the line, in mean distances of ink from it
MOST_PIXELS = 40_000_000  # more than a line across the largest sheets at 600 dots per inch
WIDEST = 65_000  # largest width of a line at its final height


class LineFacts(NamedTuple):
    """Facts from the header of a picture."""

    width: int
    height: int


class LineImage(NamedTuple):
    """A normalised line (W, height), and its columns per pixel of the original picture."""

    columns: Grey
    scale: float
    lines: int = 1  # lines of text found in the picture


def line_facts(medium: Medium) -> LineFacts:
    """Width and height, without decoding the picture."""
    return LineFacts(*_opened(medium.read(), str(medium)).size)


def read_line(medium: Medium, height: int, center: bool = True) -> LineImage:
    """The line at a height of `height`: see `prepared_line`."""
    return prepared_line(grey_of(medium.read(), str(medium)), height, center, str(medium))


def grey_of(data: bytes, place: str) -> Grey:
    """The picture of an image file in grey (H, W)."""
    picture = _opened(data, place)
    if picture.width * picture.height > MOST_PIXELS:
        raise UserError(f"{place} has {picture.width} × {picture.height} pixels: too many for one line.", FIX)
    try:
        return _grey(picture)
    except Exception as error:  # Pillow's error depends on the format and the damage
        raise UserError(f"{place} is damaged: {str(error).rstrip('.')[:200]}.", FIX) from None


def prepared_line(grey: Grey, height: int, center: bool = True, place: str = "The picture") -> LineImage:
    """A grey picture (H, W) normalised for the network: light ink on black, `height` high.

    With `center` every column is shifted so that the line is straight and centred, and the margins are cut off: the
    size of letters does not depend on the white around them (after Breuel's ocropy).
    """
    from PIL import Image

    if grey.ndim != 2 or 0 in grey.shape:
        raise UserError(f"{place} has shape {grey.shape}.", "Expected (height, width), both at least 1.")
    ink = 255 - grey if np.median(grey) > 127 else grey
    lines = text_lines(ink)
    ink = _straightened(ink) if center else ink
    scale = height / len(ink)
    width = max(1, round(ink.shape[1] * scale))
    if width > WIDEST:
        raise UserError(
            f"{place} is {grey.shape[1]} by {grey.shape[0]}: {width / height:.0f} times as wide as high.", FIX
        )
    picture = Image.fromarray(ink).resize((width, height), Image.Resampling.BILINEAR)
    return LineImage(np.ascontiguousarray(np.asarray(picture).T), scale, lines)


def text_lines(ink: Grey) -> int:
    """The number of lines of text one above the other; ink is light.

    Lines are bands of rows with ink, separated by rows with almost none, nearly as high as the highest and wide enough
    for text; accents, underlines and parts of neighbouring letters are lower or narrower.
    """
    dark = ink > max(64, int(ink.max()) // 2)
    across = dark.sum(axis=1)
    if not across.any():
        return 0
    filled = across > max(1.0, SPECKS * float(across.max()))
    if not filled.any():  # at most a dot in each row
        return 1
    edges = np.flatnonzero(np.diff(np.concatenate([[False], filled, [False]])))
    bands = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
    highest = max(end - start for start, end in bands)
    count = 0
    for start, end in bands:
        high = end - start
        columns = dark[start:end].any(axis=0)
        # letters and gaps: every column is within one line height of ink
        covered = np.convolve(columns, np.ones(2 * high + 1), mode="same") > 0
        count += high >= NEARLY * highest and high >= LEAST_ROWS and int(covered.sum()) >= WIDE * high
    return max(1, count)


def _straightened(ink: Grey) -> Grey:
    high, wide = ink.shape
    weight = ink.astype(np.float32) / 255
    if weight.sum() < 1:
        return ink
    # centre of the ink around every column: mean row of the smoothed picture
    rows = np.arange(high, dtype=np.float32)
    reach = max(1, 2 * high)
    mass = _smooth(weight.sum(axis=0), reach) + 1e-3 * weight.sum() / wide
    moment = _smooth((weight * rows[:, None]).sum(axis=0), reach)
    overall = float((weight * rows[:, None]).sum() / weight.sum())
    moment += 1e-3 * weight.sum() / wide * overall
    middle = moment / mass  # (W,)
    distance = float((weight * np.abs(rows[:, None] - middle)).sum() / weight.sum())
    half = max(2, high // 5, round(REACH * distance))  # a line of one dot is not enlarged
    place = np.round(middle).astype(int)[None, :] + np.arange(-half, half)[:, None]  # (2 · half, W)
    inside = (place >= 0) & (place < high)
    taken = np.take_along_axis(ink, place.clip(0, high - 1), axis=0)
    return np.where(inside, taken, 0).astype(np.uint8)


def _smooth(values: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Three moving averages in a row: nearly a Gaussian filter."""
    width = min(width, len(values))
    for _ in range(3):
        padded = np.pad(values, (width // 2, width - 1 - width // 2), mode="edge").astype(np.float64)
        sums = np.concatenate([[0.0], np.cumsum(padded)])
        values = ((sums[width:] - sums[:-width]) / width).astype(np.float32)
    return values


def _opened(data: bytes, place: str) -> Image.Image:
    try:
        from PIL import Image
    except ImportError:
        raise UserError("Pictures need the package pillow.", "pip install 'unrolled[image]'") from None
    try:
        return Image.open(io.BytesIO(data))
    except Exception:
        raise unreadable(data[:12], place) from None


def _grey(picture: Image.Image) -> Grey:
    """Grey from 0 (black) to 255; transparent pixels are white."""
    from PIL import Image

    if picture.mode.startswith("I") or picture.mode == "F":  # more than 8 bits: the lightest becomes white
        values = np.asarray(picture, dtype=np.float64)
        most = max(float(values.max()), 1.0)
        return np.asarray((values.clip(min=0) * (255 / most)).round(), dtype=np.uint8)
    if "A" in picture.mode or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        paper = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(paper, picture)
    return np.asarray(picture.convert("L"))
