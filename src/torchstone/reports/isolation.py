"""Computes which isolation layers of the sandbox were active in all judged cases of a run, and which in some."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from torchstone.reports.safe_text import counted
from torchstone.schema import Missing, Record, Unjudged


class IsolationSummary(msgspec.Struct, frozen=True):
    """The isolation layers over all judged cases."""

    demanded: tuple[str, ...]
    """The isolation levels that were requested."""
    layers: tuple[str, ...]
    """Active for every judged case."""
    partly: tuple[str, ...]
    """Active for some judged cases only."""
    cases: int
    """How many judged cases are counted: those for which a worker was started."""
    not_run: int = 0
    """Cases for which no worker was started: they have no isolation."""
    every: int = 0
    """How many layers there are; 0: not known, or it differs between cases."""
    stopped: int = 0
    """Cases in which the worker was frozen by signals, which a kernel can undo, because the machine refuses ptrace."""
    copied: int = 0
    """Cases whose results the worker copied, because the judge could not read its memory or was configured not to."""

    @property
    def words(self) -> str:
        """The summary as a text."""
        if not self.cases:
            return "–"
        notes = [f"partly {', '.join(self.partly)}"] if self.partly else []
        notes += [f"{counted(self.not_run, 'case')} {'was' if self.not_run == 1 else 'were'} not run"] * bool(
            self.not_run
        )
        notes += [f"{counted(self.stopped, 'case')} frozen by SIGSTOP"] * bool(self.stopped)
        notes += [f"results of {counted(self.copied, 'case')} copied by the worker"] * bool(self.copied)
        complete = 1 < len(self.layers) == self.every
        layers = f"all {self.every} layers" if complete else ", ".join(self.layers) or "none"
        return layers + (f" ({', '.join(notes)})" if notes else "")


def isolation_in_force(records: Iterable[Record]) -> IsolationSummary:
    """The summary of the isolation layers in the records."""
    kept = tuple(records)
    demanded = sorted({record.isolation.demanded for record in kept})
    judged = [record for record in kept if not isinstance(record.verdict, Missing | Unjudged)]
    run = [record for record in judged if record.isolation.layers]
    active = [record.isolation.active for record in run]
    sizes = {len(record.isolation.layers) for record in run}
    some = list(dict.fromkeys(name for names in active for name in names))
    everywhere = tuple(name for name in some if all(name in names for names in active))
    partly = tuple(name for name in some if name not in everywhere)
    not_run = len(judged) - len(run)
    every = sizes.pop() if len(sizes) == 1 else 0
    stopped = sum(record.isolation.held == "stopped" for record in run)
    copied = sum(record.isolation.results == "copied" for record in run)
    return IsolationSummary(tuple(demanded), everywhere, partly, len(active), not_run, every, stopped, copied)
