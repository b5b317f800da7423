"""The replies of a worker to the judge, and the report of how it ended.

Replies come back on a pipe of their own, never on stdout. A reply is at most :data:`MAX_REPLY_BYTES` of JSON, decoded
against these types. It repeats the token of the command that it answers. A candidate that writes to the pipe itself
produces a reply that does not decode, is too long, or has no valid token. Replies prove nothing: results are read from
the buffers, times from the judge's clock.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from torchstone.protocol.plain_values import Plain
from torchstone.protocol.reference_model_messages import ModelResults
from torchstone.protocol.tensor_places import Address, Nanoseconds, ResultAddress, Segment, Size, Sizes
from torchstone.schema import Attribution, Layer

MAX_REPLY_BYTES = 256 << 10
MAX_TEXT_CHARACTERS = 16 << 10
"""Longest message or traceback that a reply carries."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The sandbox is closed, the device is open or at least chosen, no candidate code has been seen."""

    layers: tuple[Layer, ...]


class TensorLeaf(msgspec.Struct, frozen=True, tag="tensor"):
    """A tensor that a call returned."""

    dtype: str
    shape: Sizes
    device: str


class PlainLeaf(msgspec.Struct, frozen=True, tag="plain"):
    """A number, flag or None that a call returned."""

    value: Plain


class OtherLeaf(msgspec.Struct, frozen=True, tag="other"):
    """Something that is neither."""

    type_name: str


Leaf = TensorLeaf | PlainLeaf | OtherLeaf


class Done(msgspec.Struct, frozen=True, tag="done", omit_defaults=True):
    """The command was carried out."""

    token: str
    claimed_ns: Nanoseconds = 0
    places: tuple[tuple[ResultAddress, ...], ...] = ()
    """Per call, where its returned tensors lie, in order, without those that are arguments."""
    segments: tuple[Segment, ...] = ()
    """On a device: the allocations that these places are in."""
    plain_values: tuple[tuple[Plain, ...], ...] = ()
    """Per call, the plain leaves in order, where the operator returns such."""
    odd_call: int | None = None
    """The first call whose result does not have the expected structure; later ones are not reported."""
    odd_leaves: tuple[Leaf, ...] = ()


class Armed(msgspec.Struct, frozen=True, tag="armed"):
    """Awake, and waiting for nothing but the byte."""

    token: str


class Bound(msgspec.Struct, frozen=True, tag="bound"):
    """The argument lists are made."""

    token: str
    arena_address: Address
    """Where the worker sees the arena: a result in there is an argument's memory, not a new tensor."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The candidate raised."""

    token: str
    kind: Literal["exception", "exit", "memory", "device", "unsupported"]
    message: str
    traceback: str
    call: int | None = None
    """Which of the calls raised, as far as the worker can tell. Only a replay depends on it."""


class Attributed(msgspec.Struct, frozen=True, tag="attributed"):
    """What one call set in motion, as the candidate's own process saw it."""

    token: str
    attribution: Attribution


class Traced(msgspec.Struct, frozen=True, tag="traced"):
    """The calls were made under the profiler."""

    token: str
    trace_bytes: Size
    """How long the trace is. More than there was room for: it was not written."""


class Collected(msgspec.Struct, frozen=True, tag="collected"):
    """What the candidate has built is packed."""

    token: str
    size_bytes: Size


Reply = Ready | Armed | Bound | Done | Failed | Attributed | Traced | Collected | ModelResults


class Ending(msgspec.Struct, frozen=True):
    """From a warden: how its worker ended."""

    exit_code: int | None
    signal_number: int | None
