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
    """What it does here, or why it is missing."""


Holding = Literal["traced", "stopped"]
"""`traced`: by ptrace, which only the judge can end. `stopped`: by SIGSTOP, where the machine refuses ptrace; a
candidate can undo that."""

ResultReading = Literal["read", "copied"]
"""`read`: the judge reads results where they lie. `copied`: the candidate's process copies them into the judge's memory
while the clock runs, where the machine refuses to let them be read."""


class Isolation(msgspec.Struct, frozen=True):
    """The sandbox around the candidate: its layers."""

    demanded: IsolationLevel
    layers: tuple[Layer, ...] = ()
    held: Holding = "traced"
    """How the judge kept the candidate's processes stopped between its calls."""
    results: ResultReading = "read"
    """How the judge got the candidate's results."""

    @property
    def active(self) -> tuple[str, ...]:
        return tuple(layer.name for layer in self.layers if layer.active)


class Record(msgspec.Struct, frozen=True):
    """The outcome of one job. Carries a measurement only with `Agrees`."""

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
    """What did the work of a candidate that agrees or is `delegated`. None: not asked, or not seen."""
    log_tail: str = ""
    """The last bytes of what the candidate printed."""
    stage_seconds: dict[str, float] = {}
    attempts: int = 1
    """More than one: Torchstone itself failed before, and the job was repeated."""
    finished_unix_ns: int = 0
    argument_names: tuple[str, ...] = ()
    """Names of the case's positional arguments, as torch's schema has them; empty: an older version made the record."""
    shapes: Shapes = "near"
    """Which sizes and memory layouts it was judged on: `stated` says nothing about any other."""
    format_version: int = FORMAT_VERSION
    kind: Literal["record"] = "record"
    node: str = ""
    """Host name of the machine whose judge answered; empty: no judge did, or an earlier version."""
    device_uuid: str = ""
    """UUID of the GPU as the driver names it; empty for the CPU."""
    device_model: str = ""
    """Type of the device: ``NVIDIA H200``, or the model of the processor. Speeds are compared within one type only."""
    added_imports: tuple[str, ...] = ()
    """Imports that the kernel's file lacks and that were added when it was loaded: ``import triton.language as tl``."""

    def __post_init__(self) -> None:
        if self.measurement is not None and not isinstance(self.verdict, Agrees):
            raise ValueError("a measurement needs the verdict Agrees: a failure is never a number")
