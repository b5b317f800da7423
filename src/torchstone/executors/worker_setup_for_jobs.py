"""Decides from the jobs how judges set up their workers: what these import beforehand, and how they open the device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, get_args

from torchstone.protocol.worker_environment import Preload
from torchstone.schema import Implementation, Job, SourceFiles

_PRELOADS: tuple[Preload, ...] = get_args(Preload)
"""Each imports everything that those before it import."""
_WORDS_FOR_COMPILING = ("compile", "_dynamo", "_inductor", "export")


class WorkerSetup(NamedTuple):
    """How the workers of a judge are set up for some jobs."""

    preload: Preload = "compiler"
    """What workers find imported. A guess: a kernel that needs more imports it."""
    few_queues: bool = False
    """Workers open their device with few queues. Not where a time is measured with care."""

    def joined(self, other: WorkerSetup) -> WorkerSetup:
        """What suits the jobs of both."""
        preload = max(self.preload, other.preload, key=_PRELOADS.index)
        return WorkerSetup(preload, self.few_queues and other.few_queues)

    def covers(self, other: WorkerSetup) -> bool:
        """Whether processes that were set up for this suit the other too."""
        return self.joined(other) == self


def worker_setup_for(jobs: Iterable[Job]) -> WorkerSetup:
    """What suits all these jobs."""
    joined = WorkerSetup("torch", few_queues=True)
    for job in jobs:
        joined = joined.joined(WorkerSetup(_preload_for(job.implementation), not _measured_with_care(job)))
    return joined


def _measured_with_care(job: Job) -> bool:
    """Whether the job is timed with more than the least effort."""
    return job.measured and job.case.timed and job.effort != "quick"


def _preload_for(implementation: Implementation) -> Preload:
    if implementation.language == "aten":
        return "torch"
    return "compiler" if _may_compile(implementation) else "triton"


def _may_compile(implementation: Implementation) -> bool:
    """Whether it may use torch's compiler. Installed packages of kernels use Triton; sources say what they use."""
    if isinstance(implementation.origin, SourceFiles):
        return any(word in file.text for file in implementation.origin.files for word in _WORDS_FOR_COMPILING)
    return not implementation.package or implementation.package == "torch.compile"
