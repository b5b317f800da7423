"""Messages between the harness and the process that runs one benchmark of a pair. Imports no torch."""

from __future__ import annotations

import msgspec

from torchstone.benchmarks import BenchmarkConfig, BenchmarkDefaults
from torchstone.harness.results import MemoryStats


class FileSource(msgspec.Struct, frozen=True, tag=True):
    """The benchmark is loaded from a file: its `get_benchmark()`, or its only benchmark class."""

    path: str
    root: str


class ObjectSource(msgspec.Struct, frozen=True, tag=True):
    """The benchmark is the caller's object; the process recreates it from its class."""

    module: str
    """Module name in the caller. `__main__` is loaded from its file under another name."""
    file: str
    qualname: str
    search_path: tuple[str, ...]
    """The caller's `sys.path`."""
    arguments: bytes | None
    """Pickled constructor arguments. None: the state below is a pickled object."""
    state: bytes | None
    """Pickled attributes of the object, set after its constructor ran. None: they cannot be pickled."""


Source = FileSource | ObjectSource


class Load(msgspec.Struct, frozen=True, tag=True):
    """Request: make the benchmark object and read its configuration."""

    source: Source | None
    """None: the object exists already, in a thread of the caller's process."""
    environment: dict[str, str]
    """Environment variables of the caller, with those that select the device."""
    folder: str
    """The working directory."""
    device: str
    seed: int
    cores: tuple[int, ...] = ()
    """Cores to load on; empty: any."""
    deterministic: bool = False


class Setup(msgspec.Struct, frozen=True, tag=True):
    """Check what hardware is needed, seed, and call `setup`."""

    settings: BenchmarkDefaults
    seed: int


class Warmup(msgspec.Struct, frozen=True, tag=True):
    """Call `benchmark_fn` untimed; after the first call keep its output."""

    calls: int
    cores: tuple[int, ...]
    """Cores to which the process is pinned from the second call on; empty: any."""
    outputs: str
    """File for the output; empty: keep none."""


class TakeBlock(msgspec.Struct, frozen=True, tag=True):
    """Take one block of timed calls."""

    calls: int
    by_events: bool = False
    """Queue the calls and time them by CUDA events. False: wait for the device after each, by the host's clock."""
    leads_in: bool = False
    """Make one untimed call first, so that the device is busy when the first timed one arrives."""
    cores: tuple[int, ...] = ()
    """Cores to which the calling thread is pinned during the block; empty: any."""


class TakeTurn(msgspec.Struct, frozen=True, tag=True):
    """Have triton's or torch's own timer take samples."""

    mode: str
    milliseconds: float


class EndMeasurement(msgspec.Struct, frozen=True, tag=True):
    """Request: report what was collected besides the times: memory, metrics, outputs."""


class Validate(msgspec.Struct, frozen=True, tag=True):
    """Call `validate_result`."""


class Teardown(msgspec.Struct, frozen=True, tag=True):
    """Call `teardown`."""


class Trace(msgspec.Struct, frozen=True, tag=True):
    """Request: set up, call under torch's profiler, and tear down. No time of it is a measurement."""

    settings: BenchmarkDefaults
    seed: int
    warmup_calls: int
    calls: int
    path: str
    """File for the Chrome trace."""


Request = Load | Setup | Warmup | TakeBlock | TakeTurn | EndMeasurement | Validate | Teardown | Trace


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The benchmark is loaded."""

    config: BenchmarkConfig
    ignored: tuple[str, ...] = ()
    """Fields of its configuration that have no counterpart here."""


class OutputTensor(msgspec.Struct, frozen=True):
    """One tensor of the output, whose values are in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Outputs(msgspec.Struct, frozen=True):
    """The output of a side's first call."""

    tensors: tuple[OutputTensor, ...] = ()
    """Empty: the benchmark offers no output."""
    note: str = ""
    """Why an output that the benchmark offers could not be read."""
    tolerance: tuple[float, float] | None = None
    """rtol and atol that the benchmark declares."""
    allows_tf32: bool = False


class WarmupReply(msgspec.Struct, frozen=True, tag=True):
    """The untimed calls are done."""

    times_ms: tuple[float, ...]
    """Wall time of each call."""
    unseen_ms: float | None = None
    """Wall time of a call that CUDA events do not show, less that of an empty call. None: unknown."""


class Block(msgspec.Struct, frozen=True, tag=True):
    """Samples of one block or turn."""

    times_ms: tuple[float, ...]
    """One time per call, by the requested clock."""
    host_ms: float = 0.0
    """Host time to issue all calls of the block, where they were queued."""


class MeasurementReply(msgspec.Struct, frozen=True, tag=True):
    """Statistics that were collected besides the times."""

    memory: MemoryStats | None = None
    ttft_times_ms: tuple[float, ...] = ()
    tpot_times_ms: tuple[float, ...] = ()
    custom_metrics: dict[str, float] = {}
    outputs: Outputs | None = None
    notes: tuple[str, ...] = ()


class Done(msgspec.Struct, frozen=True, tag=True):
    """The stage has ended without a result."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The stage raised."""

    message: str
    """One line."""
    trace: str = ""
    skip_reason: str = ""
    """Not empty: the benchmark does not apply here."""
    out_of_memory: bool = False
    memory: MemoryStats | None = None
    """None: memory was not measured before the failure."""


Reply = Loaded | Done | WarmupReply | Block | MeasurementReply | Failed
