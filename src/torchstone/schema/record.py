"""A record: the result of one job (one kernel judged on one case), and one line of a run's journal."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchstone.schema.case import Case
from torchstone.schema.codec import FORMAT_VERSION
from torchstone.schema.implementation import ImplementationReference
from torchstone.schema.job import IsolationLevel, Shapes
from torchstone.schema.measurement import Measurement
from torchstone.schema.verdict import Agrees, Verdict
from torchstone.schema.work_attribution import Attribution


class Layer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One layer of the sandbox and whether it was active."""

    name: str
    active: bool
    detail: str = ""
    """What the layer does here, or why it is missing."""


Holding = Literal["traced", "stopped"]
"""How workers are frozen. `traced`: by ptrace; only the judge can resume them. `stopped`: by SIGSTOP, because the
machine refuses ptrace; a candidate can undo it."""

ResultReading = Literal["read", "copied"]
"""`read`: the judge reads results in the candidate's memory. `copied`: the candidate's process copies them into the
judge's memory, as part of the timed call. This is used if the machine does not let the judge read them."""


class Isolation(msgspec.Struct, frozen=True):
    """The sandbox of the candidate, and how the judge froze and read it."""

    demanded: IsolationLevel
    """The requested level."""
    layers: tuple[Layer, ...] = ()
    held: Holding = "traced"
    """How the judge froze the candidate's processes between its calls."""
    results: ResultReading = "read"
    """How the judge got the candidate's results."""

    @property
    def active(self) -> tuple[str, ...]:
        return tuple(layer.name for layer in self.layers if layer.active)


class Record(msgspec.Struct, frozen=True):
    """The result of one job. Has a measurement only with `Agrees`."""

    job_key: str
    case: Case
    implementation: ImplementationReference
    verdict: Verdict
    manifest_key: str
    device: str
    """``cpu`` or ``cuda:0``."""
    isolation: Isolation
    measurement: Measurement | None = None
    attribution: Attribution | None = None
    """What did the work of a candidate that agrees or is `delegated`. None: not requested, or not available."""
    log_tail: str = ""
    """The last bytes of the candidate's printed output."""
    stage_seconds: dict[str, float] = {}
    attempts: int = 1
    """Number of attempts. More than one: Torchstone itself failed before, and the job was repeated."""
    finished_unix_ns: int = 0
    argument_names: tuple[str, ...] = ()
    """Names of the case's positional arguments in torch's schema; empty: an older version made the record."""
    shapes: Shapes = "near"
    """Sizes and memory layouts on which the kernel was judged. `stated`: others were not tried."""
    format_version: int = FORMAT_VERSION
    kind: Literal["record"] = "record"
    node: str = ""
    """Host name of the machine whose judge answered; empty: no judge did, or an earlier version."""
    device_uuid: str = ""
    """The driver's UUID of the GPU; empty for the CPU."""
    device_model: str = ""
    """Type of the device: ``NVIDIA H200``, or the model of the processor. Speeds are compared within one type only."""
    added_imports: tuple[str, ...] = ()
    """Imports that the kernel's file lacks and that were added when it was loaded: ``import triton.language as tl``."""

    def __post_init__(self) -> None:
        if self.measurement is not None and not isinstance(self.verdict, Agrees):
            raise ValueError("a measurement needs the verdict Agrees: a failure is never a number")
