"""The isolation layers that were active over all cases of a run."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from torchstone.schema import Missing, Record, Unjudged


class IsolationSummary(msgspec.Struct, frozen=True):
    """The isolation layers over all judged cases."""

    demanded: tuple[str, ...]
    layers: tuple[str, ...]
    """Active for every judged case."""
    partly: tuple[str, ...]
    """Active for some judged cases only."""
    cases: int
    """How many judged cases are counted; missing and unjudged ones have no known isolation."""

    @property
    def words(self) -> str:
        """For people."""
        if not self.cases:
            return "–"
        partly = f" (partly {', '.join(self.partly)})" if self.partly else ""
        return (", ".join(self.layers) or "none") + partly


def isolation_in_force(records: Iterable[Record]) -> IsolationSummary:
    """The layers that the records name."""
    kept = tuple(records)
    demanded = sorted({record.isolation.demanded for record in kept})
    active = [record.isolation.active for record in kept if not isinstance(record.verdict, Missing | Unjudged)]
    some = list(dict.fromkeys(name for names in active for name in names))
    everywhere = tuple(name for name in some if all(name in names for names in active))
    partly = tuple(name for name in some if name not in everywhere)
    return IsolationSummary(tuple(demanded), everywhere, partly, len(active))
