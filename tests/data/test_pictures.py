"""Pictures from files of every kind, and what is said of those that cannot be read."""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from unrolled.data.readers.media.captions import (
    fitted_view,
    pictures_or_errors,
    read_captioned,
    read_captions,
    shape_for,
    some_pictures,
)
from unrolled.data.signals.pictures import decode_picture, open_pictures, resized
from unrolled.data.signals.views import Shape, View
from unrolled.errors import Note, UserError


def a_picture(height: int = 6, width: int = 8) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def bytes_of(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def read(raw: bytes) -> NDArray[np.uint8]:
    return decode_picture(io.BytesIO(raw), "a.png")[0]


def test_colours_come_back_as_they_were() -> None:
    pixels = a_picture()
    for kind in ("PNG", "BMP", "TIFF", "PPM"):
        assert np.array_equal(read(bytes_of(Image.fromarray(pixels), kind)), pixels), kind


def test_grey_and_black_and_white_become_colours() -> None:
    grey = a_picture()[..., 0]
    assert np.array_equal(read(bytes_of(Image.fromarray(grey))), np.repeat(grey[..., None], 3, -1))
    plain = Image.fromarray(grey > 127)
    assert plain.mode == "1"
    assert np.array_equal(read(bytes_of(plain)), np.repeat(np.where(grey > 127, 255, 0)[..., None], 3, -1))


def test_a_palette_gives_its_colours_and_its_holes_are_white() -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    image.putdata([0, 1, 2])
    expected = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]])
    assert np.array_equal(read(bytes_of(image)), expected)
    expected[0, 1] = 255
    assert np.array_equal(read(bytes_of(image, transparency=1)), expected)


def test_transparent_pixels_become_white() -> None:
    image = Image.new("RGBA", (2, 1), (200, 100, 0, 255))
    image.putpixel((1, 0), (0, 0, 0, 0))
    assert np.array_equal(read(bytes_of(image)), [[[200, 100, 0], [255, 255, 255]]])


def test_16_bits_become_8() -> None:
    values = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    found = read(bytes_of(Image.fromarray(values)))
    assert found[0, :, 0].tolist() == [0, 1, 128, 255]


def test_cmyk_is_read_and_a_photo_is_turned_as_it_was_held() -> None:
    assert read(bytes_of(Image.new("CMYK", (2, 2)), "JPEG")).min() > 250
    pixels = a_picture(4, 8)
    exif = Image.Exif()
    exif[0x0112] = 6  # held with its right side up
    assert np.array_equal(read(bytes_of(Image.fromarray(pixels), exif=exif)), np.rot90(pixels, -1))


def test_of_an_animation_the_first_frame_is_taken(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    with pytest.warns(Note, match=r"^1 pictures of .*a.gif are animated: the first frame is used.$"):
        ((name, view),) = some_pictures([tmp_path / "a.gif"])
    assert name == str(tmp_path / "a.gif")
    assert view.values is not None
    assert view.values[0, 0].tolist() == [255, 0, 0]


def broken_jpeg() -> bytes:
    return bytes_of(Image.fromarray(a_picture(64, 64)), "JPEG")[:900]


def broken_crc() -> bytes:
    raw = bytearray(bytes_of(Image.fromarray(a_picture(32, 32))))
    raw[60] ^= 0xFF
    return bytes(raw)


def fractions() -> bytes:
    return bytes_of(Image.fromarray(np.zeros((2, 2), dtype=np.float32)), "TIFF")


def deep() -> bytes:
    return bytes_of(Image.fromarray(np.full((2, 2), 2**20, dtype=np.int32)), "TIFF")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (broken_jpeg, r"a.png is damaged: .*truncated.* Get the file again, or leave it out."),
        (broken_crc, r"a.png is damaged: .* Get the file again, or leave it out."),
        (lambda: b"no picture", r"a.png is not a readable picture. Expected one of .png, .jpg, .*"),
        (lambda: b"", r"a.png is empty. Get the file again, or leave it out."),
        (fractions, r"a.png has fractions as pixels. Expected 8 or 16 bits."),
        (deep, r"a.png has values from 1048576 to 1048576. Expected 8 or 16 bits."),
    ],
)
def test_pictures_that_cannot_be_read(make: Callable[[], bytes], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}$"):
        read(make())


def test_too_many_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(UserError, match=r"^a.png has too many pixels. Make it smaller: 10,000 × 10,000 is enough.$"):
        read(bytes_of(Image.fromarray(a_picture())))


def test_a_folder_a_zip_and_arrays_give_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    (folder / "more").mkdir(parents=True)
    names = ["a.png", "more/b.png"]
    pictures = [a_picture(), a_picture()[::-1]]
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as file:
        for name, pixels in zip(names, pictures, strict=True):
            (folder / name).write_bytes(bytes_of(Image.fromarray(pixels)))
            file.write(folder / name, f"images/{name}")
        file.writestr("images/readme.txt", "no picture")
    np.savez(tmp_path / "images.npz", pictures=np.stack(pictures), names=np.array(names))
    assert open_pictures(folder).names() == names
    for source, asked in (
        (folder, names),
        (tmp_path / "images.npz", names),
        (tmp_path / "images.zip", ["a.png", "b.png"]),
    ):
        opened = open_pictures(source)
        assert len(opened.names()) == 2
        for name, pixels in zip(asked, pictures, strict=True):
            view = opened.read(name, "t.jsonl:1")
            assert view.values is not None
            assert np.array_equal(view.values, pixels)


def test_rows_without_names_go_by_number(tmp_path: Path) -> None:
    regions = np.random.default_rng(0).normal(size=(3, 7, 7, 5)).astype(np.float16)
    np.savez(tmp_path / "f.npz", regions=regions, vectors=np.zeros((3, 9)))
    source = open_pictures(tmp_path / "f.npz")
    view = source.read(2, "t")
    assert view.shape == Shape("regions", (7, 7, 5), 9)
    assert view.values is not None
    assert np.array_equal(view.values, regions[2])
    assert np.array_equal(view.values, np.asarray(source.read("2", "t").values))
    assert source.names() == ["0", "1", "2"]


def test_a_missing_picture_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "dog.jpg").write_bytes(bytes_of(Image.fromarray(a_picture()), "JPEG"))
    table = tmp_path / "c.jsonl"
    table.write_text('{"image": "dog.jpg", "captions": ["a"]}\n{"image": "dogs.jpg", "captions": ["b"]}\n')
    with pytest.raises(UserError) as error:
        read_captioned(read_captions(table), tmp_path / "images", table)
    assert str(error.value) == (
        f"{table}:2 names the picture 'dogs.jpg', and {tmp_path}/images has none of that name. Did you mean 'dog.jpg'?"
    )
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match=r"has none of that name. Give the folder, zip or npz file that holds it: --im"):
        read_captioned(read_captions(table), tmp_path / "none", table)
    with pytest.raises(UserError, match=r"c.jsonl:1 names the picture 'dog.jpg'.* Did you mean 'images/dog.jpg'?"):
        read_captioned(read_captions(table), None, table)


def test_one_picture_is_no_place_for_those_of_a_table(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(bytes_of(Image.fromarray(a_picture())))
    table = tmp_path / "c.tsv"
    table.write_text("a.png\tone\nb.png\ttwo\n")
    with pytest.raises(UserError) as error:
        read_captioned(read_captions(table), tmp_path / "a.png", table)
    assert str(error.value) == (
        f"{tmp_path}/a.png is one picture. Give the folder, .zip or .npz that holds all of them."
    )
    assert [name for name, _ in some_pictures([tmp_path / "a.png"])] == [str(tmp_path / "a.png")]


def test_a_missing_file_is_asked_for_as_what_it_should_be(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        list(some_pictures([tmp_path / "a.png"]))
    assert str(error.value) == (
        f"{tmp_path}/a.png does not exist. Give the path of a picture, or of a folder, zip or npz file of pictures."
    )
    with pytest.raises(UserError, match=r"does not exist. Give the path of a folder, zip or npz file of pictures.$"):
        open_pictures(tmp_path / "images")


def test_errors_stand_in_the_place_of_pictures(tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    for name in ("a.png", "c.png"):
        (tmp_path / "some" / name).write_bytes(bytes_of(Image.fromarray(a_picture())))
    (tmp_path / "some" / "b.png").write_bytes(b"no picture")
    found = list(pictures_or_errors([tmp_path / "none.png", tmp_path / "some", ""]))
    assert [name for name, _ in found] == [str(tmp_path / "none.png"), "a.png", "b.png", "c.png", ""]
    assert [isinstance(one, UserError) for _, one in found] == [True, False, True, False, True]


def savez(**arrays: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)


def rows(*names: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as file:
            for name in names:
                file.writestr(name, bytes_of(Image.fromarray(a_picture())))

    return make


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("f.npz", savez(other=np.zeros(3)), "{} has no array `pictures`, `regions` or `vectors`. Make one with"),
        (
            "f.npz",
            savez(regions=np.zeros((2, 3))),
            "{}: regions has shape (2, 3) and type float64. Expected numbers (N",
        ),
        ("f.npz", savez(vectors=np.zeros((2, 3, 4))), "{}: vectors has shape (2, 3, 4) and type float64. Expected"),
        ("f.npz", savez(pictures=np.zeros((2, 3, 3))), "{}: pictures has shape (2, 3, 3) and type float64. Expected"),
        (
            "f.npz",
            savez(pictures=np.zeros((2, 3, 3, 2), np.uint8)),
            "{}: pictures has shape (2, 3, 3, 2). Expected (N, height, width) or (N, height, width, 1, 3 or 4)",
        ),
        (
            "f.npz",
            savez(regions=np.zeros((2, 3, 4)), vectors=np.zeros((3, 4))),
            "{}: arrays of different numbers of rows, {{'regions': 2, 'vectors': 3}}. Expected a row for each picture.",
        ),
        (
            "f.npz",
            savez(regions=np.zeros((2, 3, 4)), pictures=np.zeros((2, 3, 3), np.uint8)),
            "{} has both pictures and features. Give one or the other.",
        ),
        (
            "f.npz",
            savez(vectors=np.zeros((2, 4)), names=np.array(["a", "a"])),
            "{} names 'a' twice. Give every row of `names` a different name.",
        ),
        (
            "f.npz",
            savez(vectors=np.zeros((2, 4))),
            "here names the picture 'a.png', and {} has 2 rows without names. Use numbers from 0 on, or add",
        ),
        ("f.zip", rows("x/a.png", "y/a.png"), "here: {} holds 'a.png' more than once: x/a.png, y/a.png. Name one."),
        (
            "f.zip",
            rows("x/a1.png"),
            "here names the picture 'a.png', and {} has none of that name. Did you mean 'a1.png'",
        ),
        (  # the ending alone is nothing in common
            "f.zip",
            rows("x/b.png"),
            "here names the picture 'a.png', and {} has none of that name. Give the folder, zip or npz file",
        ),
        ("f.zip", lambda path: path.write_bytes(b"PK"), "{} is not a whole zip file: File is not a zip file."),
        ("f.doc", lambda path: path.write_bytes(b"-"), "{} holds no pictures: its name ends in '.doc'. Give a folder"),
    ],
)
def test_sources_that_cannot_be(name: str, make: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    make(path)
    with pytest.raises(UserError, match=f"^{re.escape(message.format(path))}"):
        open_pictures(path).read("a.png", "here")


def test_features_that_are_no_numbers_are_found(tmp_path: Path) -> None:
    regions = np.zeros((2, 3, 4))
    regions[1, 2, 0] = np.nan
    np.savez(tmp_path / "f.npz", regions=regions)
    with pytest.raises(UserError, match=r"f.npz: 1: regions hold nan at \[2, 0\]. Replace it, or leave it out.$"):
        open_pictures(tmp_path / "f.npz").read(1, "t")


def test_a_damaged_member_of_a_zip(tmp_path: Path) -> None:
    rows("a.png")(tmp_path / "f.zip")
    raw = bytearray((tmp_path / "f.zip").read_bytes())
    raw[60] ^= 0xFF
    (tmp_path / "f.zip").write_bytes(raw)
    with pytest.raises(UserError, match=r"f.zip is damaged at a.png: Bad CRC-32 for file 'a.png'. Make it again.$"):
        open_pictures(tmp_path / "f.zip").read("a.png", "t")


def test_captions_of_several_rows_belong_together(tmp_path: Path) -> None:
    table = tmp_path / "c.tsv"
    table.write_text("a.jpg\ta dog\nb.jpg\ta cat\na.jpg\tthe dog\n")
    found = read_captions(table)
    assert [(one.image, one.captions) for one in found] == [("a.jpg", ("a dog", "the dog")), ("b.jpg", ("a cat",))]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ['{"image": "a", "captions": ["x"]}', '{"image": "a", "captions": ["y"]}'],
            "{}:2 names the picture 'a' again, after {}:1. Put all its captions into one row.",
        ),
        (['{"image": "a", "captions": []}'], "{}:1 has no captions. Give at least one, or leave the row out."),
        (['{"image": "a", "captions": ["x", " "]}'], "{}:1 has an empty caption. Write one, or leave it out."),
        (['{"image": "a", "captions": [3]}'], "{}:1: a caption is int 3. Expected a text."),
        (['{"image": "", "captions": ["x"]}'], "{}:1: the image is ''. Expected the name of a picture, or its row."),
        (
            ['{"image": "a", "mood": "x"}'],
            "{}:1 has no 'captions'. It has: image, mood. Say which it is: --set data.caption_column=…",
        ),
    ],
)
def test_tables_that_cannot_be(lines: list[str], message: str, tmp_path: Path) -> None:
    table = tmp_path / "c.jsonl"
    table.write_text("\n".join(lines))
    with pytest.raises(UserError) as error:
        read_captions(table)
    assert str(error.value) == message.format(table, table)


def test_sizes() -> None:
    assert shape_for(View(a_picture(20, 30)), None) == Shape("pixels", (20, 30, 3))
    assert shape_for(View(a_picture(20, 300)), None) == Shape("pixels", (64, 64, 3))
    assert shape_for(View(a_picture(20, 30)), 48) == Shape("pixels", (48, 48, 3))
    pixels = a_picture(20, 30)
    assert resized(pixels, 20, 30) is pixels
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(
            resized(pixels, 5, 7), np.array(Image.fromarray(pixels).resize((7, 5), Image.Resampling.BICUBIC))
        )


def test_a_column_that_is_not_there_is_told_with_its_key(tmp_path: Path) -> None:
    table = tmp_path / "c.csv"
    table.write_text("image,mood\na.png,a dog\n")
    with pytest.raises(UserError) as error:
        read_captions(table)
    assert str(error.value) == (
        f"{table}:1 has no column 'captions'. Its first row: image, mood. Say which it is, by its name there or its "
        "number: --set data.caption_column=…"
    )
    assert read_captions(table, caption_column="mood")[0].captions == ("a dog",)


def test_features_of_another_size_are_refused() -> None:
    view = View(np.zeros((7, 7, 48)), np.zeros(10))
    with pytest.raises(UserError) as error:
        fitted_view(view, Shape("regions", (14, 14, 512)), "f.npz")
    assert str(error.value) == (
        "f.npz is 7×7 regions of 48 numbers and a vector of 10 numbers, and the model reads 14×14 regions of 512 "
        "numbers. Compute its features like those in training."
    )
    with pytest.raises(UserError, match=r"^a.jpg is 6×8 pixels, and the model reads a vector of 4 numbers."):
        fitted_view(View(a_picture()), Shape("vector", (), 4), "a.jpg")
