"""A job: one kernel to judge on one case, with settings. A running judge process takes no other request."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec

from torchstone.schema.case import Case, forward_operator
from torchstone.schema.codec import content_key
from torchstone.schema.implementation import (
    PROBLEM_FILE,
    WEIGHTS_FILE,
    Implementation,
    ImportPath,
    SourceFile,
    SourceFiles,
)
from torchstone.schema.measurement import Baseline, Cache
from torchstone.schema.verdict import Replay

Effort = Literal["quick", "normal", "thorough"]
"""How many calls are checked, and how long calls are timed."""

IsolationLevel = Literal["strict", "best", "none"]

Shapes = Literal["near", "stated"]
"""Whether a kernel is judged also on sizes and memory layouts near the stated ones, or only on the stated ones."""

NonFiniteInputs = Literal["check", "ignore"]
"""Whether pointwise operators are also called with NaN and infinities among their inputs."""


class Deadlines(msgspec.Struct, frozen=True):
    """Seconds that each stage may take."""

    load_seconds: float = 60.0
    """Importing a kernel."""
    compile_seconds: float = 60.0
    """A case's first call."""
    check_seconds: float = 60.0
    """Checking a case."""
    measure_seconds: float = 60.0
    """Timing a case."""


class Limits(msgspec.Struct, frozen=True):
    """Resource limits of one worker."""

    memory_bytes: int = 8 << 30
    """Resident memory of the worker and everything it starts."""
    processes: int = 256
    """Processes of a worker, itself and its warden included."""
    open_files: int = 1024
    """Files that a process has open at the same time."""
    file_bytes: int = 1 << 30
    """Size of one file."""
    scratch_bytes: int = 2 << 30
    """Size of all files that the kernel writes."""
    log_tail_bytes: int = 8 << 10
    """How much of the end of its output is kept."""


class Job(msgspec.Struct, frozen=True, dict=True):
    """A request to judge an implementation on a case."""

    case: Case
    implementation: Implementation
    effort: Effort = "normal"
    deadlines: Deadlines = Deadlines()
    measured: bool = True
    """False: the case is only checked, even if it is a timed one."""
    require_authored: bool = False
    """True: a candidate whose work is done by torch or a library gets the verdict `delegated`."""
    cache: Cache = "cold"
    """Whether the arguments lie in the device's cache when a timed call begins."""
    replay: Replay | None = None
    """Repeat this one call instead of judging the case."""
    save_to: str | None = None
    """File for the arguments, the result and the expected result of a replay. Not part of the key."""
    shapes: Shapes = "near"
    non_finite: NonFiniteInputs = "check"
    try_every_case: bool = False
    """True: try this case although two others of the kernel timed out in one stage. Not part of the key."""
    baseline: Baseline = "eager"
    """What is timed as the reference: torch's operator in eager mode, or under torch.compile. Results are always
    compared with eager mode."""

    @cached_property
    def key(self) -> str:
        """Content hash that identifies the job when a run is resumed. Deadlines are not part of it."""
        kind = (self.effort, self.measured, self.require_authored)
        replayed = () if self.replay is None else (self.replay,)
        warm = () if self.cache == "cold" else (self.cache,)
        shapes = () if self.shapes == "near" else (f"shapes {self.shapes}",)
        non_finite = () if self.non_finite == "check" else (f"non-finite {self.non_finite}",)
        baseline = () if self.baseline == "eager" else (f"baseline {self.baseline}",)
        later = (*warm, *replayed, *shapes, *non_finite, *baseline)
        return content_key(self.case.key, self.implementation.key, *kind, *later)


def torchs_own(case: Case) -> Implementation:
    """The reference of a case as an implementation: torch's operator, or the problem's own model."""
    if case.model is None:
        path = ImportPath("torch", f"ops.{forward_operator(case.operator)}")
        return Implementation("aten", case.operator, path, "aten")
    return Implementation("aten", case.operator, with_problem(None, case.model), "python")


def with_problem(solution: SourceFiles | None, problem: SourceFiles) -> SourceFiles:
    """A solution's files together with the problem's. Without a solution, the entry point is the problem's model."""
    files = SourceFile(PROBLEM_FILE, problem.files[0].text), *problem.files[1:]
    if solution is None:
        return SourceFiles(files, "Model", problem.label)
    others = tuple(file for file in solution.files if file.name not in (PROBLEM_FILE, WEIGHTS_FILE))
    return SourceFiles((*others, *files), solution.entry, solution.label)
