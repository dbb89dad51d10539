"""Pictures of synthetic data."""

import io

import numpy as np
from PIL import Image


def image_grid(images: np.ndarray) -> np.ndarray:
    """Tiles uint8 images [rows, columns, H, W, C] into one picture [rows * H, columns * W, C]."""
    rows, columns, height, width, channels = images.shape
    return images.transpose(0, 2, 1, 3, 4).reshape(rows * height, columns * width, channels)


def png_bytes(picture: np.ndarray, scale: int = 1) -> bytes:
    """A picture uint8 [H, W, 1 or 3] as PNG, every pixel repeated `scale` times."""
    enlarged = picture.repeat(scale, 0).repeat(scale, 1)
    buffer = io.BytesIO()
    Image.fromarray(enlarged[..., 0] if enlarged.shape[-1] == 1 else enlarged).save(buffer, "PNG")
    return buffer.getvalue()
