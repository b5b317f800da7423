"""Queue of waiting jobs, grouped by candidate: a judge first gets jobs of the candidate that its worker has loaded.

Jobs may come at any time. Candidates wait in the order in which they came. Of candidates that came together, those with
the most work come first if there are several judges. A candidate's worker is warm in the judge that had its last job.
Another judge must start another worker for it. So a judge chooses in this order:

1. its own candidate;
2. a candidate that no judge has, on a case whose reference this judge has already measured, if there is one;
3. the candidate of another judge with the most jobs left, if these seem to take longer than a worker takes to start.

A candidate that has timed out twice in the same stage would time out in its other cases too: its waiting jobs are given
up. Jobs that come after its last one was judged are tried.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from threading import Lock

from torchstone.executors.base import Ticket, ticket_of
from torchstone.schema import Deadlines, Job, Stage, TimedOut, Verdict, tensors_of

_MOST_CHECKED_CANDIDATES = 64
"""Most waiting candidates that are searched for one whose next case is known to the judge."""
_MOST_PASSED_OVER = 64
"""Most times that the first candidate is passed over for one with a known case. Otherwise it could wait forever."""
_ELEMENTS_PER_JOB = 1 << 20
"""Number of tensor elements that take as long as all other work of a job."""
_SLOW = (
    *("polygamma", "lgamma", "digamma", "special_", "i0", "erf", "sinc", "prod"),  # compiled by torch when first called
    *(
        "multinomial",
        "cauchy",
        "geometric",
        "uniform",
        "exponential",
        "log_normal",
        "normal",
    ),  # many draws are compared
    *("unbind", "unsafe_split", "split", "unique_dim"),  # many results, or sorted ones
)
"""Prefixes of operators whose cases take a second or more on an H200. They come first: the last job of a run should be
short."""
_SLOW_OPERATOR_JOBS = 60.0
"""Number of jobs that a slow operator adds to the weight of its candidate."""
_MOST_TIMEOUTS = 2
"""Timeouts of a candidate in one stage, at which its waiting jobs are given up. The second one distinguishes a kernel
that hangs from one slow case."""
_NOT_TRIED = "not tried: two earlier cases of this kernel timed out"
Waiting = tuple[Job, int]
"""A job, and the number of judges that were lost on it."""


class JobQueue:
    """Waiting jobs by candidate. Every method is safe from any thread."""

    def __init__(
        self,
        jobs: Iterable[Job] = (),
        heaviest_first: bool = False,
        worker_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``heaviest_first``: for several judges, so that at the end not one judge alone has much work left.

        ``worker_seconds``: time to start a worker for a candidate. A judge gets the candidate of another judge only if
        the waiting jobs of that candidate seem to take longer.
        """
        self._lock = Lock()
        self._heaviest_first, self._worker_seconds, self._clock = heaviest_first, worker_seconds, clock
        self._groups: dict[str, deque[Waiting]] = {}
        self._weights: dict[str, float] = {}
        self._passed_over = 0
        """How often the first candidate was passed over since it was taken last."""
        self._count = 0
        self._running: Counter[str] = Counter()
        """Number of jobs that were taken and neither judged nor put back, by candidate."""
        self._taken_at: dict[str, dict[Ticket, float]] = {}
        """Time at which each running job was taken, by candidate."""
        self._unwanted: set[Ticket] = set()
        """Jobs that were withdrawn while they were running."""
        self._shortest_seconds: dict[str, float] = {}
        """Time of the shortest job so far, by candidate, for candidates with waiting or running jobs."""
        self._timeouts: dict[str, Counter[tuple[Stage, Deadlines]]] = {}
        """Timeouts by candidate, for candidates with waiting or running jobs."""
        self._closed = False
        self.put(jobs)

    def put(self, jobs: Iterable[Job]) -> None:
        """Add jobs after the waiting ones. Jobs of one call are sorted together."""
        groups: dict[str, deque[Waiting]] = {}
        for job in jobs:
            groups.setdefault(job.implementation.key, deque()).append((job, 0))
        tickets = {ticket_of(job) for group in groups.values() for job, _ in group}
        weights = {key: _weight(group) if self._heaviest_first else 0.0 for key, group in groups.items()}
        if self._heaviest_first:
            heaviest = sorted(groups.items(), key=lambda item: -weights[item[0]])
            groups = {key: deque(sorted(group, key=lambda each: -_elements(each[0]))) for key, group in heaviest}
        with self._lock:
            if self._closed:
                raise RuntimeError("the queue is closed: no job can be added")
            self._unwanted -= tickets
            for key, group in groups.items():
                self._groups.setdefault(key, deque()).extend(group)
                self._weights[key] = self._weights.get(key, 0.0) + weights[key]
                self._count += len(group)

    def close(self) -> None:
        """Declare that no more jobs come."""
        with self._lock:
            self._closed = True

    @property
    def closed(self) -> bool:
        return self._closed

    def __len__(self) -> int:
        return self._count

    def take(self, last: str | None, elsewhere: Collection[str] = (), known: Collection[str] = ()) -> Waiting | None:
        """Take the next job for a judge. None: no job waits, or only few short ones of other judges' candidates.

        ``last``: candidate of the judge's last job. ``elsewhere``: candidates of other judges. ``known``: cases whose
        reference the judge has measured.
        """
        with self._lock:
            if not self._groups:
                return None
            if last in self._groups and last is not None:
                key = last
            else:
                free = itertools.islice((key for key in self._groups if key not in elsewhere), _MOST_CHECKED_CANDIDATES)
                chosen = self._first_or_known(list(free), known) or self._most_jobs_left(elsewhere)
                if chosen is None:
                    return None
                key = chosen
            found = self._groups[key].popleft()
            self._count -= 1
            self._running[key] += 1
            self._taken_at.setdefault(key, {})[ticket_of(found[0])] = self._clock()
            self._forget_if_empty(key)
            return found

    def judged(self, job: Job, verdict: Verdict) -> list[tuple[Job, TimedOut]]:
        """Note the verdict of a running job. Returns the waiting jobs that it gives up, each with its own verdict."""
        key = job.implementation.key
        with self._lock:
            began = self._end_running(job)
            self._shortest_seconds[key] = min(self._clock() - began, self._shortest_seconds.get(key, math.inf))
            given_up = self._give_up(key, job.deadlines, verdict) if isinstance(verdict, TimedOut) else []
            self._forget_if_empty(key)
        return given_up

    def drop(self, job: Job) -> None:
        """Remove a running job that was stopped because it was withdrawn."""
        with self._lock:
            self._end_running(job)
            self._forget_if_empty(job.implementation.key)

    def unwanted_seconds(self, job: Job) -> float | None:
        """How long ago this job was taken, if it was withdrawn since then; None: its verdict is wanted."""
        with self._lock:
            if ticket_of(job) not in self._unwanted:
                return None
            return self._clock() - self._taken_at.get(job.implementation.key, {}).get(ticket_of(job), -math.inf)

    def _end_running(self, job: Job) -> float:
        """Remove a job from the running ones; return the time at which it was taken."""
        self._unwanted.discard(ticket_of(job))
        self._running[job.implementation.key] -= 1
        return self._taken_at.get(job.implementation.key, {}).pop(ticket_of(job), -math.inf)

    def _give_up(self, key: str, deadlines: Deadlines, verdict: TimedOut) -> list[tuple[Job, TimedOut]]:
        """Count a timeout. If there are :data:`_MOST_TIMEOUTS`, remove and return waiting jobs with these deadlines."""
        timeouts = self._timeouts.setdefault(key, Counter())
        timeouts[verdict.stage, deadlines] += 1
        if timeouts[verdict.stage, deadlines] < _MOST_TIMEOUTS:
            return []
        group = self._groups.get(key, deque())
        found = [job for job, _ in group if job.deadlines == deadlines and not job.try_every_case]
        self._remove(key, {ticket_of(job) for job in found})
        return [(job, TimedOut(verdict.stage, verdict.limit_seconds, 0.0, _NOT_TRIED)) for job in found]

    def _most_jobs_left(self, elsewhere: Collection[str]) -> str | None:
        """The candidate with the most waiting jobs. None: another judge has it, and a worker takes longer to start."""
        key = max(self._groups, key=lambda key: len(self._groups[key]))
        if key not in elsewhere:
            return key
        now = self._clock()
        running_seconds = now - min(self._taken_at.get(key, {}).values(), default=now)
        # The time of a short job says little about the others if one that is running has already taken longer.
        each_seconds = max(self._shortest_seconds.get(key, 0.0), running_seconds)
        return key if len(self._groups[key]) * each_seconds >= self._worker_seconds else None

    def _first_or_known(self, keys: Sequence[str], known: Collection[str]) -> str | None:
        """The first of these candidates, or one of equal weight whose next case is known to the judge."""
        if not keys:
            return None
        alike = (key for key in keys if self._weights[key] == self._weights[keys[0]])
        chosen = next((key for key in alike if self._groups[key][0][0].case.key in known), keys[0])
        if chosen == keys[0] or self._passed_over >= _MOST_PASSED_OVER:
            self._passed_over = 0
            return keys[0]
        self._passed_over += 1
        return chosen

    def put_back(self, job: Job, lost: int) -> None:
        """Put a running job back to the front of the queue, because it has waited before."""
        key = job.implementation.key
        with self._lock:
            group = self._groups.pop(key, deque())
            group.appendleft((job, lost))
            self._running[key] -= 1
            self._taken_at.get(key, {}).pop(ticket_of(job), None)
            self._groups = {key: group, **self._groups}
            self._weights.setdefault(key, 0.0)
            self._count += 1

    def withdraw(self, jobs: Iterable[Job]) -> list[Job]:
        """Remove those of these jobs that wait, and return them. Mark those that are running as unwanted."""
        tickets = {ticket_of(job): job.implementation.key for job in jobs}
        found: list[Job] = []
        with self._lock:
            self._unwanted |= {ticket for ticket, key in tickets.items() if ticket in self._taken_at.get(key, {})}
            for key in set(tickets.values()) & self._groups.keys():
                found += self._remove(key, tickets)
                self._forget_if_empty(key)
        return found

    def _remove(self, key: str, tickets: Collection[Ticket]) -> list[Job]:
        """Remove these waiting jobs of a candidate, and return them."""
        group = self._groups.get(key, deque())
        found = [job for job, _ in group if ticket_of(job) in tickets]
        if found:
            self._groups[key] = deque(each for each in group if ticket_of(each[0]) not in tickets)
            self._count -= len(found)
        return found

    def _forget_if_empty(self, key: str) -> None:
        """Drop the data of a candidate that has no waiting jobs, and its history if none is running either."""
        if not self._groups.get(key):
            self._groups.pop(key, None)
            self._weights.pop(key, None)
            if self._running[key] <= 0:
                del self._running[key]
                for known in (self._timeouts, self._taken_at, self._shortest_seconds):
                    known.pop(key, None)


def _weight(group: Sequence[Waiting]) -> float:
    """Estimate of how long a candidate's jobs take, in jobs with small tensors."""
    elements = sum(_elements(job) for job, _ in group)
    name = group[0][0].case.operator.partition(".")[2]
    slow = _SLOW_OPERATOR_JOBS if name.startswith(_SLOW) else 0.0
    return len(group) + elements / _ELEMENTS_PER_JOB + slow


def _elements(job: Job) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensors_of(job.case))
