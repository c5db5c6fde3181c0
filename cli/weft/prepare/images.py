"""One image: decoded in full, and handed on as the JPEG in grey or RGB that the layouts promise."""

from __future__ import annotations

import io
import struct
import warnings
from typing import NamedTuple

import PIL.Image
from PIL import ImageOps

from weft.prepare.options import ImageOptions, ResizeMode

# Nothing else is opened: Pillow knows formats that start other programs. (MPO, several JPEGs in one, comes with JPEG.)
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
_ORIENTATION = 0x0112
_RESAMPLING = PIL.Image.Resampling.BICUBIC


class CorruptImage(ValueError):
    """An image that can't be decoded; the text says why."""


class Jpeg(NamedTuple):
    """The JPEG's bytes; ``recoded`` says why they had to be made anew other than for their size, or is empty."""

    content: bytes
    recoded: str = ""


def to_jpeg(content: bytes, options: ImageOptions) -> Jpeg:
    """An image file of any common format as a JPEG in grey or RGB.

    A camera's note on how it was held (EXIF) is put into effect, as training code does not look at it; transparency
    becomes white.

    Raises:
        CorruptImage: it is none, is cut off or damaged, or unfolds to more pixels than any photograph has.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
            with PIL.Image.open(io.BytesIO(content), formats=_FORMATS) as image:
                if options.resize and image.format == "JPEG":
                    # JPEG can be decoded at a half, a quarter, an eighth: a large photograph in a fraction of the time.
                    image.draft(None, (2 * options.resize, 2 * options.resize))
                image.load()
                return _normalised(image, content, options)
    except PIL.UnidentifiedImageError:
        raise CorruptImage(f"no image: it begins with {content[:8]!r}" if content else "empty") from None
    except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning) as error:
        raise CorruptImage(f"too many pixels: {error}") from None
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, struct.error, ZeroDivisionError) as error:
        # All of these come out of Pillow's decoders for damaged files.
        raise CorruptImage(str(error) or type(error).__name__) from None


def grey_to_jpeg(pixels: bytes, width: int, height: int, options: ImageOptions) -> Jpeg:
    """Grey pixels, row by row, as a JPEG."""
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
    except Exception:  # a note that can't be read is none; the pixels were read
        return False


def _plain(image: PIL.Image.Image) -> PIL.Image.Image:
    """In grey or RGB."""
    if image.mode in ("RGB", "L"):
        return image
    if image.mode.startswith("I") or image.mode == "F":
        # 16 bits of grey, as PNG and TIFF have them; convert("L") would cut off what is above 255.
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
