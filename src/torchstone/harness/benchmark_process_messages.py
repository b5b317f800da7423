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
    """The benchmark is an object of the caller's, made again from its class."""

    module: str
    """As the caller knows it; `__main__` is loaded from its file under another name."""
    file: str
    qualname: str
    search_path: tuple[str, ...]
    """The caller's `sys.path`."""
    arguments: bytes | None
    """Pickled constructor arguments. None: the state below is a pickled object."""
    state: bytes | None
    """Pickled attributes that the object has, laid over what its constructor makes."""


Source = FileSource | ObjectSource


class Load(msgspec.Struct, frozen=True, tag=True):
    """Make the benchmark object and read its configuration."""

    source: Source | None
    """None: the object is there already, in a thread of the caller's process."""
    environment: dict[str, str]
    """All variables of the caller, with those that choose the device."""
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
    """Cores to stay on from the second call to the end of the measurement; empty: any."""
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
    """Cores of the thread that calls, for as long as the block takes; empty: any."""


class TakeTurn(msgspec.Struct, frozen=True, tag=True):
    """Have triton's or torch's own timer take samples."""

    mode: str
    milliseconds: float


class EndMeasurement(msgspec.Struct, frozen=True, tag=True):
    """Report what was collected besides the times: memory, metrics, outputs."""


class Validate(msgspec.Struct, frozen=True, tag=True):
    """Call `validate_result`."""


class Teardown(msgspec.Struct, frozen=True, tag=True):
    """Call `teardown`."""


class Trace(msgspec.Struct, frozen=True, tag=True):
    """Set up, call under torch's profiler, and tear down: a run of its own, of which no time counts."""

    settings: BenchmarkDefaults
    seed: int
    warmup_calls: int
    calls: int
    path: str
    """File for the Chrome trace."""


Request = Load | Setup | Warmup | TakeBlock | TakeTurn | EndMeasurement | Validate | Teardown | Trace


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The benchmark is there."""

    config: BenchmarkConfig
    ignored: tuple[str, ...] = ()


class OutputTensor(msgspec.Struct, frozen=True):
    """One tensor of the output, whose values are in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Outputs(msgspec.Struct, frozen=True):
    """What a side computed in its first call."""

    tensors: tuple[OutputTensor, ...] = ()
    """Empty: it offers none."""
    note: str = ""
    """Why it offers none, where it seemed to."""
    tolerance: tuple[float, float] | None = None
    """rtol and atol that the benchmark declares."""
    allows_tf32: bool = False


class Warmed(msgspec.Struct, frozen=True, tag=True):
    """The untimed calls are done."""

    times_ms: tuple[float, ...]
    """Wall time of each."""
    unseen_ms: float | None = None
    """How much longer the host waits for a call than CUDA events say, less what waiting itself takes. None: unknown."""


class Block(msgspec.Struct, frozen=True, tag=True):
    """Samples of one block or turn."""

    times_ms: tuple[float, ...]
    """One per call, by the clock that was asked for."""
    host_ms: float = 0.0
    """Host time to issue all calls of the block, where they were queued."""


class Measured(msgspec.Struct, frozen=True, tag=True):
    """What was collected besides the times."""

    memory: MemoryStats | None = None
    ttft_times_ms: tuple[float, ...] = ()
    tpot_times_ms: tuple[float, ...] = ()
    custom_metrics: dict[str, float] = {}
    outputs: Outputs | None = None
    notes: tuple[str, ...] = ()


class Done(msgspec.Struct, frozen=True, tag=True):
    """The stage is over; nothing to tell."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The stage raised."""

    message: str
    """One line."""
    trace: str = ""
    skip_reason: str = ""
    """Not empty: the benchmark does not apply here."""
    out_of_memory: bool = False
    memory: MemoryStats | None = None
    """If it had begun to be measured."""


Reply = Loaded | Done | Warmed | Block | Measured | Failed
