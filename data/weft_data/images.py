"""Images: each is decoded completely and returned as the grey or RGB JPEG that the layouts promise."""

from __future__ import annotations

import io
import struct
import warnings
from typing import NamedTuple

import PIL.Image
from PIL import ImageOps

from weft_data.options import ImageOptions, ResizeMode

# No other format is opened: for some, Pillow starts other programs. (JPEG includes MPO, several JPEGs in one file.)
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
_ORIENTATION = 0x0112
_RESAMPLING = PIL.Image.Resampling.BICUBIC


class CorruptImage(ValueError):
    """An image that can't be decoded; the text says why."""


class Jpeg(NamedTuple):
    """A JPEG's bytes; ``recoded`` says why the image was converted (apart from its size), or is empty."""

    content: bytes
    recoded: str = ""


def to_jpeg(content: bytes, options: ImageOptions) -> Jpeg:
    """Convert an image file in any common format to a grey or RGB JPEG.

    The EXIF orientation is applied, because training code ignores it. Transparent pixels become white.

    Raises:
        CorruptImage: it is not an image, is truncated or damaged, or has more pixels than any photograph.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
            with PIL.Image.open(io.BytesIO(content), formats=_FORMATS) as image:
                if options.resize and image.format == "JPEG":
                    # A JPEG can be decoded at 1/2, 1/4 or 1/8 of its size, in a fraction of the time.
                    image.draft(None, (2 * options.resize, 2 * options.resize))
                image.load()
                return _normalised(image, content, options)
    except PIL.UnidentifiedImageError:
        raise CorruptImage(f"not an image: it begins with {content[:8]!r}" if content else "empty") from None
    except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning) as error:
        raise CorruptImage(f"too many pixels: {error}") from None
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, struct.error, ZeroDivisionError) as error:
        # Pillow's decoders raise all of these for damaged files.
        raise CorruptImage(str(error) or type(error).__name__) from None


def grey_to_jpeg(pixels: bytes, width: int, height: int, options: ImageOptions) -> Jpeg:
    """Convert grey pixels (row by row, a byte each) to a JPEG."""
    image = PIL.Image.frombytes("L", (width, height), pixels)
    return Jpeg(_encoded(_resized(image, options), options))


def _normalised(image: PIL.Image.Image, content: bytes, options: ImageOptions) -> Jpeg:
    reasons = []
    if image.format != "JPEG":
        reasons.append(image.format or "?")
    if image.mode not in ("RGB", "L"):
        reasons.append(image.mode)
    turned = _is_turned(image)
    if turned:
        reasons.append("EXIF orientation")
    if not reasons and not options.resize:
        return Jpeg(content)
    upright = ImageOps.exif_transpose(image) if turned else image
    return Jpeg(_encoded(_resized(_plain(upright), options), options), ", ".join(reasons))


def _is_turned(image: PIL.Image.Image) -> bool:
    try:
        return image.getexif().get(_ORIENTATION, 1) in range(2, 9)
    except Exception:  # unreadable EXIF counts as no EXIF; the pixels could be read
        return False


def _plain(image: PIL.Image.Image) -> PIL.Image.Image:
    """The image in grey or RGB."""
    if image.mode in ("RGB", "L"):
        return image
    if image.mode.startswith("I") or image.mode == "F":
        # 16 bits of grey, as in some PNG and TIFF files; convert("L") would clip values above 255.
        low, high = image.getextrema()
        if isinstance(high, (int, float)) and isinstance(low, (int, float)) and (high > 255 or low < 0):
            image = image.convert("F").point(lambda value: value / 257 + 0)
        return image.convert("L")
    if image.has_transparency_data:
        white = PIL.Image.new("RGBA", image.size, "white")
        return PIL.Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("L" if image.mode == "1" else "RGB")


def _resized(image: PIL.Image.Image, options: ImageOptions) -> PIL.Image.Image:
    n = options.resize
    if n is None or image.size == (n, n):
        return image
    if options.resize_mode is ResizeMode.CROP:
        return ImageOps.fit(image, (n, n), _RESAMPLING)
    if options.resize_mode is ResizeMode.STRETCH:
        return image.resize((n, n), _RESAMPLING)
    width, height = image.size
    scale = n / min(width, height)
    return image.resize((max(round(width * scale), n), max(round(height * scale), n)), _RESAMPLING)


def _encoded(image: PIL.Image.Image, options: ImageOptions) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=options.quality)
    return out.getvalue()
