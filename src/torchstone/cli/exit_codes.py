"""Computes the exit code of `torchstone run` from the verdicts of the run."""

from __future__ import annotations

from torchstone.cli import INTERRUPTED
from torchstone.reports import Summary

ALL_AGREE = 0
SOME_DO_NOT = 1
INFRASTRUCTURE = 3

_FAILURES = ("disagrees", "cheated", "crashed", "timed_out", "delegated")


def exit_code(summary: Summary, interrupted: bool, fail_on_missing: bool) -> int:
    """A failure of Torchstone itself wins over one of a kernel: the run is then not complete."""
    counts = summary.counts
    refused = counts.get("unsupported", 0) - summary.excused
    if interrupted:
        return INTERRUPTED
    if counts.get("unjudged", 0):
        return INFRASTRUCTURE
    if refused or any(counts.get(name, 0) for name in _FAILURES):
        return SOME_DO_NOT
    if fail_on_missing and counts.get("missing", 0):
        return SOME_DO_NOT
    return ALL_AGREE if counts.get("agrees", 0) else SOME_DO_NOT
