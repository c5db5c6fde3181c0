"""Single images: kept unchanged, encoded anew, or corrupt."""

from __future__ import annotations

import io
import zlib

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.conftest import picture, pixels

from weft_data.images import CorruptImage, to_jpeg
from weft_data.options import ImageOptions, ResizeMode

AS_IT_IS = ImageOptions()


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_plain_jpeg_keeps_its_bytes(mode: str) -> None:
    content = picture(mode=mode)
    assert to_jpeg(content, AS_IT_IS) == (content, "")


@pytest.mark.parametrize(
    ("mode", "kind", "reason"),
    [
        ("CMYK", "JPEG", "CMYK"),
        ("RGB", "PNG", "PNG"),
        ("P", "PNG", "PNG, P"),
        ("RGBA", "PNG", "PNG, RGBA"),
        ("LA", "PNG", "PNG, LA"),
        ("1", "PNG", "PNG, 1"),
        ("RGB", "BMP", "BMP"),
        ("RGB", "WEBP", "WEBP"),
        ("P", "GIF", "GIF"),
        ("CMYK", "TIFF", "TIFF, CMYK"),
    ],
)
def test_all_else_becomes_a_jpeg_that_looks_the_same(mode: str, kind: str, reason: str) -> None:
    jpeg, recoded = to_jpeg(picture(mode=mode, kind=kind), AS_IT_IS)
    assert recoded.startswith(reason)
    with PIL.Image.open(io.BytesIO(jpeg)) as image:
        assert (image.format, image.size) == ("JPEG", (20, 16))
        assert image.mode in ("RGB", "L")
    wanted = pixels(picture(mode={"LA": "L", "1": "1"}.get(mode, "RGB"), kind="PNG"))
    assert np.abs(pixels(jpeg) - wanted).mean() < (40 if mode == "1" else 12)


def test_adobes_inverted_cmyk_is_not_a_negative() -> None:
    # Adobe's programs store ink inverted, and say so in a marker; ImageNet's CMYK images are of that kind.
    white = PIL.Image.new("CMYK", (16, 16), (0, 0, 0, 0))
    out = io.BytesIO()
    white.save(out, "JPEG")
    assert b"Adobe" in out.getvalue()
    assert pixels(to_jpeg(out.getvalue(), AS_IT_IS).content).min() > 250


def test_transparency_becomes_white() -> None:
    out = io.BytesIO()
    PIL.Image.new("RGBA", (16, 16), (200, 0, 0, 0)).save(out, "PNG")
    assert pixels(to_jpeg(out.getvalue(), AS_IT_IS).content).min() > 250


def test_sixteen_bits_keep_their_brightness() -> None:
    out = io.BytesIO()
    PIL.Image.fromarray(np.full((16, 16), 128 * 257, np.uint16)).save(out, "PNG")
    assert np.abs(pixels(to_jpeg(out.getvalue(), AS_IT_IS).content) - 128).max() <= 2


def test_a_camera_that_was_held_sideways() -> None:
    image = PIL.Image.open(io.BytesIO(picture(size=(30, 10))))
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    image.save(out, "JPEG", exif=exif, quality=95)
    jpeg, recoded = to_jpeg(out.getvalue(), AS_IT_IS)
    with PIL.Image.open(io.BytesIO(jpeg)) as turned:
        assert turned.size == (10, 30)
        assert turned.getexif().get(0x0112, 1) == 1
    assert recoded == "EXIF orientation"


@pytest.mark.parametrize(
    ("mode", "size"),
    [(ResizeMode.CROP, (24, 24)), (ResizeMode.SHORT, (48, 24)), (ResizeMode.STRETCH, (24, 24))],
)
@pytest.mark.parametrize("from_size", [(400, 200), (16, 8)])
def test_resizing(mode: ResizeMode, size: tuple[int, int], from_size: tuple[int, int]) -> None:
    content = picture(size=from_size)
    options = ImageOptions(24, mode)
    jpeg, recoded = to_jpeg(content, options)
    assert PIL.Image.open(io.BytesIO(jpeg)).size == size
    assert recoded == ""
    middle = pixels(content)[from_size[1] // 2, from_size[0] // 2]
    assert np.abs(pixels(jpeg)[size[1] // 2, size[0] // 2] - middle).max() < 12


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"<html>404", "not an image: it begins with"),
        (picture(size=(200, 200))[:-600], "truncated"),
        (picture(size=(200, 200), kind="PNG")[:-600], "truncated"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
    ],
)
def test_corrupt_images_say_why(content: bytes, reason: str) -> None:
    with pytest.raises(CorruptImage, match=reason):
        to_jpeg(content, AS_IT_IS)


def test_a_small_file_of_very_many_pixels() -> None:
    bomb = bytearray(picture(kind="PNG"))
    bomb[16:24] = (30000).to_bytes(4) * 2  # the size that the header tells
    header = bytes(bomb[12:29])
    bomb[29:33] = zlib.crc32(header).to_bytes(4)
    with pytest.raises(CorruptImage, match="too many pixels"):
        to_jpeg(bytes(bomb), AS_IT_IS)


SOME = [picture(kind=kind) for kind in ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(SOME), st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=8), st.integers(0)
)
def test_damage_is_an_image_or_corrupt_and_nothing_else(
    content: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    damaged = bytearray(content)
    for at, value in changes:
        damaged[at % len(damaged)] = value
    try:
        jpeg, _ = to_jpeg(bytes(damaged[: len(damaged) - cut % 40]), AS_IT_IS)
    except CorruptImage:
        pass  # anything else would end the run
    else:
        assert PIL.Image.open(io.BytesIO(jpeg)).format == "JPEG"
