"""What judge and worker say to each other.

Commands go to the worker on a socket of its own; descriptors of shared memory travel with them. Replies come back on
a pipe of their own, never on stdout. A reply is at most :data:`MAX_REPLY_BYTES` of JSON, decoded against these types.
It repeats the token of the command that it answers. A candidate that writes to the pipe itself produces a reply that
does not decode, is too long, or has no valid token. Replies prove nothing: results are read from the buffers, times
from the judge's clock.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from torchstone.chain import Chain
from torchstone.schema import Attribution, Case, Implementation, Layer

MAX_REPLY_BYTES = 256 << 10
MAX_TEXT_CHARACTERS = 16 << 10
"""Longest message or traceback that a reply carries."""

MOST_KEPT = 12
"""Calls of one case whose results a worker is asked to keep."""
MOST_SPARSE = 2
"""A result may span this many times the memory that its elements need; the worker closes wider gaps itself."""

KEPT_ARENA_BYTES = 4 << 20
"""Device memory of this size stays with a worker from case to case, because the driver opens memory slowly, for one
process after another. A larger block is opened for one case and closed after it."""

_HEADER = struct.Struct("<I")
HEADER_BYTES = _HEADER.size
GO = b"!"


class Placement(msgspec.Struct, frozen=True):
    """Where a tensor's storage lies in the arena: ``offset + set * pitch``."""

    offset_bytes: int
    pitch_bytes: int
    elements: int
    """Elements of storage, gaps and offset included."""
    dtype: str


class Output(msgspec.Struct, frozen=True):
    """What a returned leaf must look like. Where it lies is the candidate's affair: the judge reads it there."""

    dtype: str | None
    """None: a plain number, which the reply carries."""
    shape: tuple[int, ...] | None = ()
    """None: it depends on the values, and the reply says it."""
    argument: int | None = None
    """The returned leaf must be this tensor argument itself (in-place, out=)."""
    fresh: bool = False
    """The operator promises new memory: what is still to be conjugated or negated in an argument's is not that."""


Address = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
"""What a worker says is bounded where it is read, so that no sum or product of it can leave the machine's integers."""
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Sizes = Annotated[tuple[Size, ...], msgspec.Meta(max_length=64)]


class ResultAddress(msgspec.Struct, frozen=True, array_like=True):
    """Where a returned tensor lies in the worker's memory. A claim: what is found there is compared all the same."""

    address: Address
    strides: Sizes | None = None
    """None: contiguous."""
    shape: Sizes | None = None
    """None: the one that was declared."""


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """An allocation on the device that holds results, and the CUDA IPC handle in hexadecimal that opens it."""

    address: Address
    size_bytes: Size
    handle: Annotated[str, msgspec.Meta(max_length=256)]


class Load(msgspec.Struct, frozen=True, tag="load"):
    """Import the candidate. The only command that makes a worker untrusted; it is given once."""

    token: str
    implementation: Implementation


class Bind(msgspec.Struct, frozen=True, tag="bind"):
    """Make the argument lists of a case's calls from the shared arena. Replaces an earlier binding."""

    token: str
    case: Case
    sets: int
    inputs: tuple[Placement, ...]
    outputs: tuple[Output, ...]
    arena_bytes: int
    device_handle: str | None = None
    """CUDA IPC handle in hexadecimal; None: the arena is the descriptor that came with this command."""


PASSES_APART = "other forward passes were made before this backward pass"
"""What a reader must know who tries to see a failure again."""


class Call(msgspec.Struct, frozen=True, tag="call"):
    """Call the candidate once on each of these input sets, keep the results, and say where they lie."""

    token: str
    first: int
    count: int
    pretend: bool = False
    """Skip the candidate and return ready results: what the shim itself costs. Only asked of the reference's worker."""
    keep: tuple[int, ...] = ()
    """Calls of the last block whose results are to be kept until the case is released."""
    chain: Chain | None = None
    """Make the arguments of each call but the first from the result of the one before."""
    backward: tuple[int, ...] = ()
    """Of gradients: all forward passes first, then the backward passes of the calls in this order; empty: at once."""
    stated_shapes: bool = False
    """Make no pass with another shape in between."""


class Wear(msgspec.Struct, frozen=True, tag="wear"):
    """Make so many blocks of calls on the first input sets, and drop the results. Never timed."""

    token: str
    blocks: int
    count: int
    """Calls in each."""
    keep: tuple[int, ...] = ()


class Capture(msgspec.Struct, frozen=True, tag="capture"):
    """Record the candidate's calls on the first input sets as one graph of the device, and say where results will lie.

    Nothing is computed yet. Replaces an earlier recording of as many calls.
    """

    token: str
    count: int
    pretend: bool = False
    """Record next to nothing instead: what a block costs beside its calls. Only asked of the reference's worker."""
    chain: Chain | None = None
    """Make the arguments of each call but the first from the result of the one before."""


class Play(msgspec.Struct, frozen=True, tag="play"):
    """Get ready to make the recorded calls, say so, and make them as soon as a byte comes.

    The byte is sent when the input sets hold their values: what waking up costs is then not on the clock.
    """

    token: str
    count: int
    pretend: bool = False
    chained: bool = False


class Open(msgspec.Struct, frozen=True, tag="open"):
    """Open the device, if the worker did not when it started."""

    token: str


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Let go of the arena: the judge is about to free it."""

    token: str


class Attribute(msgspec.Struct, frozen=True, tag="attribute"):
    """Call the candidate on the first input set and report what did the work. Never timed."""

    token: str
    kernels: bool = False
    """Watch device kernels too, which needs a profiler and a second call."""


class Trace(msgspec.Struct, frozen=True, tag="trace"):
    """Call the candidate under torch's profiler and write a Chrome trace into the memory file that comes with this."""

    token: str
    sets: int
    """Input sets that are bound; calls go through them in turn."""
    warmup_calls: int
    """Made first and not traced: they may compile."""
    calls: int
    room_bytes: int
    """Of the memory file. A longer trace is not written at all."""


Command = Load | Open | Bind | Call | Wear | Capture | Play | Release | Attribute | Trace


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The sandbox is closed, the device is open or at least chosen, no candidate code has been seen."""

    layers: tuple[Layer, ...]


NonFiniteText = Literal["nan", "inf", "-inf"]
"""What JSON has no number for; without this it would arrive as nothing at all."""
Plain = bool | int | float | NonFiniteText | None
"""A number, flag or None as it is sent."""


def sent_plain(value: bool | int | float | None) -> Plain:
    """As a message can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def received_plain(value: Plain) -> bool | int | float | None:
    """What was meant."""
    return float(value) if isinstance(value, str) else value


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
    """The first call whose result does not have the expected structure; the calls after it were not made."""
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


Reply = Ready | Armed | Bound | Done | Failed | Attributed | Traced


class Spawn(msgspec.Struct, frozen=True):
    """To the zygote: fork a worker. Comes with five descriptors, see ``zygote.py``."""

    policy: bytes
    """The sandbox policy, encoded."""


class Ending(msgspec.Struct, frozen=True):
    """From a warden: how its worker ended."""

    exit_code: int | None
    signal_number: int | None


def span_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """From the first element of a tensor to its last; it must have some."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def same_steps(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether strides mean the same: where there is no second element any stride does."""
    return 0 in shape or all(size == 1 or a == b for size, a, b in zip(shape, one, other, strict=True))


def frame(message: object) -> bytes:
    """Length and JSON."""
    data = msgspec.json.encode(message)
    return _HEADER.pack(len(data)) + data


def frame_length(header: bytes) -> int:
    """The payload length that a header announces."""
    (length,) = _HEADER.unpack(header)
    return int(length)
