"""Estimates how long the rest of a run takes, from the cases that are done.

A timed case takes 20 to 80 times as long as one that is only checked (smoke suite, CPU). So each of the two kinds has
its own mean, over the seconds of its records. Records of an earlier part of the run are included.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

from torchstone.runs import JobPlan
from torchstone.schema import Missing, Record

_TIMED, _CHECKED = "timed", "checked"
_TIMED_COST_IN_CHECKED = 30.0
"""Assumed time of a timed case divided by that of a checked case. Used until there is a record of each kind."""


class Cost(NamedTuple):
    """The kind of a record, and the seconds that it took."""

    kind: str
    seconds: float


ALIKE = Cost("", 1.0)
"""Cost of every record in runs whose records are only counted."""
_WAITING_STAGES = ("start", "wait")
"""Stages in which a case waits for its judge and its worker. They do not predict the cost of later cases."""


def cost_of_case(record: Record, plan: JobPlan) -> Cost | None:
    """The cost of a judged case; None: it has no kernel and took no time."""
    if isinstance(record.verdict, Missing):
        return None
    is_timed = record.case.timed and plan.terms.measured
    seconds = sum(value for stage, value in record.stage_seconds.items() if stage not in _WAITING_STAGES)
    return Cost(_TIMED if is_timed else _CHECKED, seconds)


def cases_left(plan: JobPlan) -> Counter[str]:
    """Number of cases left to judge, by kind."""
    return Counter(_TIMED if job.case.timed and job.measured else _CHECKED for job in plan.jobs)


class TimeLeft:
    """Estimates the seconds until a run ends, from the records that are left and the time that earlier ones took.

    ``left``: number of records to come, by kind: of timed cases, and of cases that are only checked.
    """

    def __init__(self, left: Counter[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._records_left, self._clock = left, clock
        self._start = self._last_record = clock()
        self._counts: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._seconds_of_this_part = 0.0
        """Sum of the seconds of records of this part of the run. With several judges it exceeds the elapsed time."""

    def known(self, cost: Cost | None) -> None:
        """Count a record that an earlier part of a resumed run made."""
        if cost is not None:
            self._counts[cost.kind] += 1
            self._seconds[cost.kind] += cost.seconds

    def add(self, cost: Cost | None) -> None:
        """Count a record that was just made."""
        self._last_record = self._clock()
        if cost is not None:
            if not self._seconds_of_this_part and cost is not ALIKE:  # leave out the time in which judges start
                self._start = max(self._start, self._last_record - cost.seconds)
            self.known(cost)
            self._records_left[cost.kind] -= 1
            self._seconds_of_this_part += cost.seconds

    def seconds(self, records: int) -> float | None:
        """Seconds until this many more records are made, counting down between records. None: not known yet.

        Records that were not expected when the run began count with the mean of all kinds.
        """
        if self._seconds_of_this_part <= 0:
            return None
        known = {kind: count for kind, count in self._records_left.items() if count > 0}
        expected = sum(count * self._mean(kind) for kind, count in known.items())
        unknown = max(0, records - sum(known.values()))
        expected += unknown * sum(self._seconds.values()) / sum(self._counts.values())
        at_last_record = (self._last_record - self._start) * expected / self._seconds_of_this_part
        return max(0.0, at_last_record - (self._clock() - self._last_record))

    def _mean(self, kind: str) -> float:
        if self._counts[kind]:
            return self._seconds[kind] / self._counts[kind]
        if kind == _TIMED:
            return _TIMED_COST_IN_CHECKED * self._mean(_CHECKED) if self._counts[_CHECKED] else 0.0
        return self._mean(_TIMED) / _TIMED_COST_IN_CHECKED if self._counts[_TIMED] else 0.0
