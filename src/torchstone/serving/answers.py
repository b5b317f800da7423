"""Data classes of the service's requests and answers. Results appear as feedback, never as full records."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchstone.feedback import FeedbackInfo, ProfiledWork, profile_text

JobState = Literal["running", "finished", "cancelled", "failed"]


class GivenKernel(msgspec.Struct, frozen=True):
    """A kernel as a client gives it: a text, or a file that the server reads."""

    operator: str
    """``relu``, ``add.Tensor`` or ``aten.add.Tensor``."""
    source: str = ""
    """The whole text of a Python kernel file."""
    path: str = ""
    """A kernel file, ``.py``, ``.cpp`` or ``.cu``. Exactly one of source and path is given."""
    entry: str = ""
    """Name of the function; empty: found by its name."""


class OperatorAnswer(msgspec.Struct, frozen=True):
    """An operator of a suite."""

    operator: str
    cases: int
    timed_cases: int


class CaseAnswer(msgspec.Struct, frozen=True):
    """A case of an operator."""

    case: str
    """Key of the case."""
    operator: str
    arguments: str
    timed: bool
    tags: tuple[str, ...] = ()


class RecordName(msgspec.Struct, frozen=True):
    """Names a record (the result of one case), so that a client can have it explained."""

    record: str
    """Key of the record: the argument of `explain`."""
    operator: str
    arguments: str
    right: bool


class KernelAnswer(msgspec.Struct, frozen=True):
    """The results of one kernel so far: its feedback, and the names of its records."""

    operator: str
    where: str
    """The path, or ``source text``."""
    feedback: FeedbackInfo
    records: tuple[RecordName, ...]


class JobAnswer(msgspec.Struct, frozen=True):
    """The progress of a job, and its results once it has ended."""

    job: str
    state: JobState
    done_cases: int
    total_cases: int
    elapsed_seconds: float
    seconds_left: float | None = None
    """Estimate from the judged cases; None: no case is judged yet, or the job has ended."""
    wrong_cases: int = 0
    """Judged cases so far that do not agree."""
    error: str = ""
    """Why the job failed; empty: it did not."""
    kernels: tuple[KernelAnswer, ...] = ()
    """One for every kernel with a record, once the job has ended. A cancelled job has the records made until then."""

    def to_text(self, max_tokens: int | None = None) -> str:
        """The answer as text for a model: the feedback on each kernel, all together within ``max_tokens``."""
        parts = [self._heading()]
        share = None if max_tokens is None else max_tokens // max(1, len(self.kernels))
        for kernel in self.kernels:
            parts.append(kernel.feedback.to_text(share))
            wrong = [item for item in kernel.records if not item.right]
            if wrong:
                parts.append("To see one case alone, explain_record with: " + ", ".join(_short(wrong)))
        return "\n\n".join(parts)

    def _heading(self) -> str:
        done = f"{self.done_cases} of {self.total_cases} cases judged in {self.elapsed_seconds:.1f} s"
        match self.state:
            case "running":
                left = "" if self.seconds_left is None else f", about {self.seconds_left:.0f} s left"
                return f"job {self.job} is running: {done}{left}, {self.wrong_cases} wrong. Ask job_progress again."
            case "failed":
                return f"job {self.job} failed: {self.error}"
            case state:
                return f"job {self.job} {state}: {done}."


def _short(records: list[RecordName], most: int = 3) -> list[str]:
    return [f"{item.record[:8]} ({item.arguments})" for item in records[:most]]


class Explanation(msgspec.Struct, frozen=True):
    """The feedback on one record."""

    record: str
    operator: str
    arguments: str
    feedback: FeedbackInfo


class ProfileAnswer(msgspec.Struct, frozen=True):
    """The result of a profiler."""

    operator: str
    arguments: str
    profiler: str
    status: str
    """``profiled``, ``absent``, ``unavailable`` or ``failed``."""
    sandboxed: bool
    folder: str
    """Folder of the profiler's files."""
    work: tuple[ProfiledWork, ...] = ()
    """Kernels and operators with their share of the time; empty if the profiler saw none."""
    notice: str = ""

    def to_text(self) -> str:
        """The answer as text for a model."""
        lines = [f"{self.profiler} on {self.operator}({self.arguments}): {self.status}"]
        lines += [self.notice] if self.notice else []
        lines += [profile_text(self.work)] if self.work else []
        return "\n".join([*lines, f"files: {self.folder}"])
