"""Estimates how long the rest of a run takes, from the cases that are done.

Cases differ in cost: one that is timed takes 20 to 80 times as long as one that is only checked (smoke suite, CPU). So
each kind has a mean of its own, from the seconds that its records took, those of an earlier part of the run included.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

from torchstone.runs import JobPlan
from torchstone.schema import Missing, Record

_TIMED, _CHECKED = "timed", "checked"
_TIMED_TO_CHECKED = 30.0
"""A timed case costs about so many checked ones; used until there is one of each."""


class Cost(NamedTuple):
    """What one record took."""

    kind: str
    seconds: float


ALIKE = Cost("", 1.0)
"""Of records that are only counted."""
_BEFORE = ("start", "wait")
"""Stages in which a case waits for its judge and its worker: they tell little of the cases to come."""


def cost_of_case(record: Record, plan: JobPlan) -> Cost | None:
    """Of a judged case; None for one without a kernel, which takes no time."""
    if isinstance(record.verdict, Missing):
        return None
    is_timed = record.case.timed and plan.terms.measured
    seconds = sum(value for stage, value in record.stage_seconds.items() if stage not in _BEFORE)
    return Cost(_TIMED if is_timed else _CHECKED, seconds)


def cases_left(plan: JobPlan) -> Counter[str]:
    """Kind -> how many cases are still to be judged."""
    return Counter(_TIMED if job.case.timed and job.measured else _CHECKED for job in plan.jobs)


class TimeLeft:
    """Seconds until the end, by the kinds of what is left and the pace so far."""

    def __init__(self, left: Counter[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._left, self._clock = left, clock
        self._began = self._last = clock()
        self._counts: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._spent = 0.0
        """Seconds of the records of this part of the run. Several judges spend more than the clock shows."""

    def known(self, cost: Cost | None) -> None:
        """A record of an earlier part of the run."""
        if cost is not None:
            self._counts[cost.kind] += 1
            self._seconds[cost.kind] += cost.seconds

    def add(self, cost: Cost | None) -> None:
        """A record that this part of the run made."""
        self._last = self._clock()
        if cost is not None:
            if not self._spent and cost is not ALIKE:  # before the first case, judges start
                self._began = max(self._began, self._last - cost.seconds)
            self.known(cost)
            self._left[cost.kind] -= 1
            self._spent += cost.seconds

    def seconds(self, records: int) -> float | None:
        """Seconds until this many more records are made; less as time passes. None: nothing that takes time is done.

        Records beyond those that were known when the run began count as the mean of all.
        """
        if self._spent <= 0:
            return None
        known = {kind: count for kind, count in self._left.items() if count > 0}
        expected = sum(count * self._mean(kind) for kind, count in known.items())
        unknown = max(0, records - sum(known.values()))
        expected += unknown * sum(self._seconds.values()) / sum(self._counts.values())
        at_last_record = (self._last - self._began) * expected / self._spent
        return max(0.0, at_last_record - (self._clock() - self._last))

    def _mean(self, kind: str) -> float:
        if self._counts[kind]:
            return self._seconds[kind] / self._counts[kind]
        if kind == _TIMED:
            return _TIMED_TO_CHECKED * self._mean(_CHECKED) if self._counts[_CHECKED] else 0.0
        return self._mean(_TIMED) / _TIMED_TO_CHECKED if self._counts[_TIMED] else 0.0
