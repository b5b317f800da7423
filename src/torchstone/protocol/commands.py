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
    """Import a candidate, or prepare to build it. The only command that makes a worker untrusted.

    A worker may load several, one after another: implementations of one package, or the reference for each case.
    """

    token: str
    implementation: Implementation
    built_bytes: int = 0
    """Length of what earlier workers of this candidate have built, in the memory file that comes with this; 0: none."""


class Build(msgspec.Struct, frozen=True, tag="build"):
    """Compile the candidate's own source, if it is C++ or CUDA. Comes before any value."""

    token: str


class Collect(msgspec.Struct, frozen=True, tag="collect"):
    """Pack what the candidate has built into the memory file that comes with this."""

    token: str
    room_bytes: int
    """Of the memory file. More is not packed at all."""


class Bind(msgspec.Struct, frozen=True, tag="bind"):
    """Make the argument lists of a case's calls from the shared memory (arena). Replaces an earlier binding."""

    token: str
    case: Case
    sets: int
    inputs: tuple[Placement, ...]
    outputs: tuple[Output, ...]
    arena_bytes: int
    device_handle: str | None = None
    """CUDA IPC handle in hexadecimal; None: the arena is the descriptor that came with this command. On a device the
    worker then has a copy of it, which it brings up to date around its calls."""


PASSES_APART = "other forward passes were made before this backward pass"
"""Added to the message of a failure: it may be needed to reproduce it."""


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
    repeats: int = 1
    """How often the first call is made; above 1 it is the only one. Only asked of the reference: a candidate could
    return a result that it has kept."""


class Wear(msgspec.Struct, frozen=True, tag="wear"):
    """Make so many blocks of calls, and drop the results: results kept from earlier must survive. Never timed."""

    token: str
    blocks: int
    count: int
    """Calls in each."""
    keep: tuple[int, ...] = ()


class Capture(msgspec.Struct, frozen=True, tag="capture"):
    """Record the candidate's calls on the first input sets as one graph of the device, and say where results will lie.

    Before that the first call is made once; recording itself computes nothing. Replaces an earlier recording of as many
    calls of the same kind.
    """

    token: str
    count: int
    pretend: bool = False
    """Record next to nothing instead: what a block costs beside its calls. Only asked of the reference's worker."""
    chain: Chain | None = None
    """Make the arguments of each call but the first from the result of the one before."""


GO = b"!"


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


class Copy(msgspec.Struct, frozen=True, tag="copy"):
    """Copy pieces of the worker's memory into the judge's, or back: where the judge may not read it in place."""

    token: str
    pieces: tuple[tuple[Address, Size, Size], ...]
    """Address in the worker, offset in the judge's memory, and bytes."""
    memory_bytes: int
    """Of the judge's memory, whose descriptor comes with the first command that uses it."""
    outward: bool
    """Into the judge's memory; otherwise from it."""


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


Command = (
    Load
    | Build
    | Collect
    | Open
    | Bind
    | Call
    | Wear
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
    """To the zygote: fork a worker. Comes with five descriptors, see ``zygote.py``."""

    policy: bytes
    """The sandbox policy, encoded."""
