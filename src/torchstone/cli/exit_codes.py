"""Computes the exit code of `torchstone run` from the verdicts of the run."""

from __future__ import annotations

from torchstone.cli import INTERRUPTED
from torchstone.reports import Summary

ALL_AGREE = 0
SOME_DO_NOT = 1
INFRASTRUCTURE = 3

_FAILURES = ("disagrees", "cheated", "crashed", "timed_out", "delegated")


def exit_code(summary: Summary, interrupted: bool, fail_on_missing: bool) -> int:
    """The exit code of a run. Torchstone's own failure takes precedence over a kernel's: the run is not complete."""
    counts = summary.counts
    refused_by_kernel = counts.get("unsupported", 0) - summary.excused
    if interrupted:
        return INTERRUPTED
    if counts.get("unjudged", 0):
        return INFRASTRUCTURE
    if refused_by_kernel or any(counts.get(name, 0) for name in _FAILURES):
        return SOME_DO_NOT
    if fail_on_missing and counts.get("missing", 0):
        return SOME_DO_NOT
    return ALL_AGREE if counts.get("agrees", 0) else SOME_DO_NOT
