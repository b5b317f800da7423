"""Encodes data classes as deterministic JSON, decodes them, and hashes them into keys of cases, jobs and kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

FORMAT_VERSION = 1
"""Version of the record format. Raised when an old reader could misread a new record."""

_encoder = msgspec.json.Encoder(order="deterministic")


def encode(noun: Any) -> bytes:
    """Deterministic JSON of any data class: equal objects give equal bytes."""
    return _encoder.encode(noun)


def decode(data: bytes | str, kind: type[T]) -> T:
    """Decode and validate. Raises ``msgspec.ValidationError`` or ``msgspec.DecodeError`` for invalid data."""
    decoder: msgspec.json.Decoder[T] = _decoder(kind)  # type: ignore[arg-type]  # unions are hashable
    return decoder.decode(data)


@cache
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    """A decoder, cached by type: creating one takes longer than decoding most messages, and judge and worker wait."""
    return msgspec.json.Decoder(kind)


def content_key(*nouns: Any) -> str:
    """A short content hash. Objects that encode to the same bytes have equal keys."""
    digest = hashlib.blake2b(digest_size=10)
    for noun in nouns:
        data = encode(noun)
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
