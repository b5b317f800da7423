"""Runs: judges the kernels of backends on the cases of a suite, and keeps the results in a run folder."""

from torchstone.runs.folder import StoredRun, read_manifest, read_run
from torchstone.runs.plan import JobPlan
from torchstone.runs.request import RunRequest, canonical_dtypes
from torchstone.runs.run import Observer, RunResult, SilentObserver, execute

__all__ = [
    "JobPlan",
    "Observer",
    "RunRequest",
    "RunResult",
    "SilentObserver",
    "StoredRun",
    "canonical_dtypes",
    "execute",
    "read_manifest",
    "read_run",
]
