"""Takes images as arrays in [-1, 1]; gives PNG files: grids and rows with labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def grid(images: np.ndarray, path: str | Path, columns: int = 8, enlarge: int = 2) -> None:
    """Write images (n, height, width, channels) as one picture, ``columns`` in a row."""
    from PIL import Image

    rows = -(-len(images) // columns)
    _, height, width, channels = images.shape
    sheet = np.full((rows * (height + 2), columns * (width + 2), channels), 255, np.uint8)
    for k, image in enumerate(to_bytes(images)):
        top, left = (k // columns) * (height + 2) + 1, (k % columns) * (width + 2) + 1
        sheet[top : top + height, left : left + width] = image
    sheet = sheet.repeat(enlarge, 0).repeat(enlarge, 1)
    Image.fromarray(sheet[..., 0] if channels == 1 else sheet).save(path)


def to_bytes(images: np.ndarray) -> np.ndarray:
    """Pixels in [-1, 1], or beyond by noise, as uint8."""
    return np.clip(np.round((np.asarray(images) + 1.0) * 127.5), 0, 255).astype(np.uint8)
