"""A planned run: how many cases it has for each backend and operator, and when its parts ran (`plan.json`)."""

from __future__ import annotations

import msgspec

from torchstone.schema.manifest import Manifest


class PlannedCases(msgspec.Struct, frozen=True):
    """How many cases of one operator are planned for one backend."""

    backend: str
    operator: str
    cases: int


class RunPart(msgspec.Struct, frozen=True):
    """One process that worked on a run: the first one, or one that resumed it."""

    began_unix_ns: int
    command: tuple[str, ...] = ()
    """The command line, word by word; empty if the run was started from Python."""
    ended_unix_ns: int | None = None
    """When it stopped judging, complete or not. None: it was killed, is still running, or an older version made it."""


class PlannedRun(msgspec.Struct, frozen=True):
    """The plan of a run and the parts in which it ran: ``plan.json`` of a run folder."""

    cases: tuple[PlannedCases, ...]
    parts: tuple[RunPart, ...]
    """Parts in the order of time. The last one made this plan."""
    left_out: dict[str, int] = {}
    """Number of selected entries of the suite's source of which it makes no case, by reason."""

    @property
    def total(self) -> int:
        """Number of cases of a complete run."""
        return sum(item.cases for item in self.cases)


class RunDescription(msgspec.Struct, frozen=True):
    """The circumstances of a run, for its summary."""

    manifest: Manifest
    planned: PlannedRun | None = None
    """None: the run was stopped before it had a plan, or an older version made it."""
