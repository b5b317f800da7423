"""The pixels of a PNG as vl-convert writes it, without an imaging library."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray


def pixels(data: bytes) -> NDArray[np.uint8]:
    """Height x width x 4, for 8-bit RGBA whose rows are stored as differences to the left (filter 1)."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    position = 8
    while position < len(data):
        length, kind = struct.unpack(">I4s", data[position : position + 8])
        chunks[kind] = chunks.get(kind, b"") + data[position + 8 : position + 8 + length]
        position += 12 + length
    width, height, depth, colour_type = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colour_type) == (8, 6)
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + 4 * width)
    assert set(lines[:, 0]) <= {1}, "rows are stored in another way than this reads"
    return np.cumsum(lines[:, 1:].reshape(height, width, 4), axis=1, dtype=np.uint8)


def colours(data: bytes) -> set[tuple[int, int, int]]:
    """All colours in the picture."""
    flat = pixels(data)[..., :3].reshape(-1, 3)
    packed = np.unique(flat.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32))
    return {(int(one) >> 16, int(one) >> 8 & 255, int(one) & 255) for one in packed}
