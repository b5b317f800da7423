"""Decides from the jobs how judges set up their workers: what workers import beforehand, how they open the device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, get_args

from torchstone.protocol.worker_environment import Preload
from torchstone.schema import Implementation, Job, SourceFiles

_PRELOADS: tuple[Preload, ...] = get_args(Preload)
"""In order: each choice imports all that those before it import."""
_WORDS_FOR_COMPILING = ("compile", "_dynamo", "_inductor", "export")
"""A source with one of these words may use torch's compiler."""


class WorkerSetup(NamedTuple):
    """How the workers of a judge are set up for some jobs."""

    preload: Preload = "compiler"
    """Modules that workers find imported. This is a guess: a kernel that needs more imports it itself."""
    few_queues: bool = False
    """Whether workers open their device with few queues. False if a job is timed with more than the least effort."""

    def joined(self, other: WorkerSetup) -> WorkerSetup:
        """A set-up that suits the jobs of both."""
        preload = max(self.preload, other.preload, key=_PRELOADS.index)
        return WorkerSetup(preload, self.few_queues and other.few_queues)

    def covers(self, other: WorkerSetup) -> bool:
        """Whether processes that were set up like this suit the jobs of the other, too."""
        return self.joined(other) == self


def worker_setup_for(jobs: Iterable[Job]) -> WorkerSetup:
    """A set-up that suits all these jobs."""
    joined = WorkerSetup("torch", few_queues=True)
    for job in jobs:
        joined = joined.joined(WorkerSetup(_preload_for(job.implementation), not _is_timed_precisely(job)))
    return joined


def _is_timed_precisely(job: Job) -> bool:
    """Whether the job is timed with more than the least effort."""
    return job.measured and job.case.timed and job.effort != "quick"


def _preload_for(implementation: Implementation) -> Preload:
    if implementation.language == "aten":
        return "torch"
    return "compiler" if _may_compile(implementation) else "triton"


def _may_compile(implementation: Implementation) -> bool:
    """Whether a kernel may use torch's compiler: installed kernel packages use Triton, and sources are searched."""
    if isinstance(implementation.origin, SourceFiles):
        return any(word in file.text for file in implementation.origin.files for word in _WORDS_FOR_COMPILING)
    return not implementation.package or implementation.package == "torch.compile"
