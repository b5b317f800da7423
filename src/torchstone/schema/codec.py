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
    """Decode and validate; raises ``msgspec.ValidationError`` or ``msgspec.DecodeError`` on anything else."""
    decoder: msgspec.json.Decoder[T] = _decoder(kind)  # type: ignore[arg-type]  # unions are hashable
    return decoder.decode(data)


@cache
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    """Made once per type: reading a type takes longer than most messages do, and judge and worker wait for them."""
    return msgspec.json.Decoder(kind)


def content_key(*nouns: Any) -> str:
    """A short content hash. Equal keys mean objects that encode to the same bytes."""
    digest = hashlib.blake2b(digest_size=10)
    for noun in nouns:
        data = encode(noun)
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
