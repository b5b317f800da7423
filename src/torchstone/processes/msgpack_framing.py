"""Sends and receives messages over a byte stream: length, then msgpack, which unlike JSON has infinity and NaN."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO, TypeVar

import msgspec

_LENGTH = struct.Struct("<I")
HEADER_BYTES = _LENGTH.size

T = TypeVar("T")


def frame(message: Any) -> bytes:
    """Encode a message with its length before it."""
    data = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(data)) + data


def length_in(head: bytes) -> int:
    """The length in bytes of the message that follows a header."""
    return int(_LENGTH.unpack(head)[0])


def take(buffer: bytearray) -> bytes | None:
    """Remove the first whole message from the buffer, and return it. None: it is not complete yet."""
    if len(buffer) < HEADER_BYTES:
        return None
    end = HEADER_BYTES + _LENGTH.unpack(buffer[:HEADER_BYTES])[0]
    if len(buffer) < end:
        return None
    data = bytes(buffer[HEADER_BYTES:end])
    del buffer[:end]
    return data


def send(stream: BinaryIO, message: Any) -> None:
    """Write one message and flush the stream."""
    stream.write(frame(message))
    stream.flush()


def receive(stream: BinaryIO, kind: type[T]) -> T | None:
    """The next message; None: the other end is closed."""
    head = stream.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return None
    length = _LENGTH.unpack(head)[0]
    data = stream.read(length)
    return None if len(data) < length else msgspec.msgpack.decode(data, type=kind)
