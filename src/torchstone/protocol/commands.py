"""The commands of the judge to a worker, and to the process that forks workers (the zygote).

Commands go to the worker on a socket of its own; descriptors of shared memory travel with them.
"""

from __future__ import annotations

import msgspec

from torchstone.chain import Chain
from torchstone.protocol.reference_model_messages import CallModel, FetchResults, MakeWeights
from torchstone.protocol.tensor_places import Address, Output, Placement, Size
from torchstone.schema import Case, Implementation


class Load(msgspec.Struct, frozen=True, tag="load"):
    """Import a candidate, or prepare to build it. After this command the worker is not trusted.

    A worker may load several, one after another: implementations of one package, or the reference for each case.
    """

    token: str
    implementation: Implementation
    built_bytes: int = 0
    """Bytes of files that earlier workers of this candidate built, in the memory file that comes with this; 0: none."""


class Build(msgspec.Struct, frozen=True, tag="build"):
    """Compile the candidate's own source, if it is C++ or CUDA. Comes before the worker sees any argument."""

    token: str


class Collect(msgspec.Struct, frozen=True, tag="collect"):
    """Pack the files that the candidate has built into the memory file that comes with this."""

    token: str
    room_bytes: int
    """Size of the memory file. If the files do not fit, none is packed."""


class Bind(msgspec.Struct, frozen=True, tag="bind"):
    """Make the argument lists of a case's calls from the shared memory (arena). Replaces an earlier binding."""

    token: str
    case: Case
    sets: int
    inputs: tuple[Placement, ...]
    outputs: tuple[Output, ...]
    arena_bytes: int
    device_handle: str | None = None
    """CUDA IPC handle in hexadecimal. None: the arena is the memory file that comes with this command. On a device the
    worker then has a copy of the arena, and copies the arguments in before its calls and back after them."""


PASSES_APART = "other forward passes were made before this backward pass"
"""Added to the message of a failure in a backward pass: the other passes may be needed to reproduce it."""


class Call(msgspec.Struct, frozen=True, tag="call"):
    """Call the candidate once on each of these input sets, keep the results, and report where they lie."""

    token: str
    first: int
    count: int
    pretend: bool = False
    """Call the shim instead of the candidate, to measure the overhead of calling. Only for the reference's worker."""
    keep: tuple[int, ...] = ()
    """Calls of the last block whose results the worker must keep until the case is released."""
    chain: Chain | None = None
    """Compute the arguments of each call but the first from the result of the call before."""
    backward: tuple[int, ...] = ()
    """For gradients: make all forward passes first, then the backward passes of the calls in this order. Empty: make
    the backward pass of each call directly after its forward pass."""
    stated_shapes: bool = False
    """Make no forward pass with another shape between forward and backward passes."""
    repeats: int = 1
    """How often the first call is made. Above 1 it is the only call. Only for the reference: a candidate could return
    a kept result."""


class UncheckedCalls(msgspec.Struct, frozen=True, tag="unchecked_calls"):
    """Make this many blocks of calls, and drop the results. Kept results must not change by that. Never timed."""

    token: str
    blocks: int
    count: int
    """Calls in each block."""
    keep: tuple[int, ...] = ()


class Capture(msgspec.Struct, frozen=True, tag="capture"):
    """Record the candidate's calls on the first input sets as one CUDA graph, and report where results will lie.

    Before that the first call is made once; recording itself computes nothing. Replaces an earlier recording with the
    same number and kind of calls.
    """

    token: str
    count: int
    pretend: bool = False
    """Record the shim instead, to measure the overhead of a block. Only for the reference's worker."""
    chain: Chain | None = None
    """Compute the arguments of each call but the first from the result of the call before."""


GO = b"!"
"""The byte on which a worker begins the calls of ``Play``."""


class Play(msgspec.Struct, frozen=True, tag="play"):
    """Reply ``Armed``, wait for the byte :data:`GO`, and replay the recorded calls.

    The judge sends the byte when the input sets hold their values. So the time does not include waking the worker.
    """

    token: str
    count: int
    pretend: bool = False
    chained: bool = False


class Open(msgspec.Struct, frozen=True, tag="open"):
    """Open the device, if the worker did not when it started."""

    token: str


class Release(msgspec.Struct, frozen=True, tag="release"):
    """End the case: close the arena, because the judge is about to free it."""

    token: str


class Copy(msgspec.Struct, frozen=True, tag="copy"):
    """Copy pieces of the worker's memory into the judge's, or back, if the judge cannot read the worker's memory."""

    token: str
    pieces: tuple[tuple[Address, Size, Size], ...]
    """For each piece: address in the worker, offset in the judge's memory, and number of bytes."""
    memory_bytes: int
    """Size of the judge's memory, whose descriptor comes with the first command that uses it."""
    outward: bool
    """True: copy into the judge's memory. False: copy from it."""


class Attribute(msgspec.Struct, frozen=True, tag="attribute"):
    """Call the candidate on the first input set and report which operators and kernels did the work. Never timed."""

    token: str
    kernels: bool = False
    """Report device kernels too, which needs a profiler and a second call."""


class Trace(msgspec.Struct, frozen=True, tag="trace"):
    """Call the candidate under torch's profiler and write a Chrome trace into the memory file that comes with this."""

    token: str
    sets: int
    """Number of bound input sets; calls use them in turn."""
    warmup_calls: int
    """Calls that are made first and not traced, because they may compile."""
    calls: int
    room_bytes: int
    """Size of the memory file. A longer trace is not written at all."""


Command = (
    Load
    | Build
    | Collect
    | Open
    | Bind
    | Call
    | UncheckedCalls
    | Capture
    | Play
    | Release
    | Copy
    | Attribute
    | Trace
    | CallModel
    | MakeWeights
    | FetchResults
)


class Spawn(msgspec.Struct, frozen=True):
    """Command to the zygote: fork a worker. Comes with five descriptors, see ``zygote.py``."""

    policy: bytes
    """The sandbox policy, encoded."""
