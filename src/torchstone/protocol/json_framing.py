"""Encodes a message as its length, then JSON: for the judge, workers and the process that forks them (zygote)."""

from __future__ import annotations

import struct

import msgspec

_HEADER = struct.Struct("<I")
HEADER_BYTES = _HEADER.size


def frame(message: object) -> bytes:
    """The message as length and JSON."""
    data = msgspec.json.encode(message)
    return _HEADER.pack(len(data)) + data


def frame_length(header: bytes) -> int:
    """The payload length in bytes that a header gives."""
    (length,) = _HEADER.unpack(header)
    return int(length)
