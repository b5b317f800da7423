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
"""Longest reply that the judge accepts."""
MAX_TEXT_CHARACTERS = 16 << 10
"""Longest message or traceback that a reply carries."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The sandbox is closed, the device is chosen and perhaps open, and no candidate code was loaded."""

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
    """An object of another type that a call returned."""

    type_name: str


Leaf = TensorLeaf | PlainLeaf | OtherLeaf


class Done(msgspec.Struct, frozen=True, tag="done", omit_defaults=True):
    """The command was carried out."""

    token: str
    claimed_ns: Nanoseconds = 0
    """Time of the calls by the worker's own clock or device. The judge does not trust it."""
    places: tuple[tuple[ResultAddress, ...], ...] = ()
    """For each call, where its returned tensors lie, in order, without those that are arguments."""
    segments: tuple[Segment, ...] = ()
    """On a device: the allocations that contain these places."""
    plain_values: tuple[tuple[Plain, ...], ...] = ()
    """For each call, its plain leaves in order, if the operator returns any."""
    odd_call: int | None = None
    """The first call whose result does not have the expected structure; later ones are not reported."""
    odd_leaves: tuple[Leaf, ...] = ()


class Armed(msgspec.Struct, frozen=True, tag="armed"):
    """The worker is ready for the recorded calls, and polls for the byte ``GO``."""

    token: str


class Bound(msgspec.Struct, frozen=True, tag="bound"):
    """The argument lists are made."""

    token: str
    arena_address: Address
    """Address of the arena in the worker. A result in the arena is an argument's memory, not a new tensor."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The candidate raised."""

    token: str
    kind: Literal["exception", "exit", "memory", "device", "unsupported"]
    message: str
    traceback: str
    call: int | None = None
    """Number of the call that raised, if the worker knows it. Only a replay uses it."""


class Attributed(msgspec.Struct, frozen=True, tag="attributed"):
    """Operators and device kernels of one call, as the candidate's own process reports them."""

    token: str
    attribution: Attribution


class Traced(msgspec.Struct, frozen=True, tag="traced"):
    """The calls were made under the profiler."""

    token: str
    trace_bytes: Size
    """Size of the trace. If it is more than the memory file holds, the trace was not written."""


class Collected(msgspec.Struct, frozen=True, tag="collected"):
    """The candidate's compiled files are packed."""

    token: str
    size_bytes: Size
    """Bytes written into the memory file; 0: there are no files, or they do not fit."""


Reply = Ready | Armed | Bound | Done | Failed | Attributed | Traced | Collected | ModelResults


class Ending(msgspec.Struct, frozen=True):
    """A warden's report of how its worker ended."""

    exit_code: int | None
    signal_number: int | None
