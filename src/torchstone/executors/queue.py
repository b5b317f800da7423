"""Queue of waiting jobs, grouped by candidate: a judge first gets jobs of the candidate that its worker has loaded.

Jobs may come at any time. Candidates wait in the order in which they came; of those that came together the heaviest
come first, if there are several judges. A candidate's worker is warm in the judge that had its last job; starting it
elsewhere costs another worker. So a judge chooses in this order:

1. its own candidate;
2. a candidate that no judge has, on a case whose reference this judge has already measured, if there is one;
3. the candidate of another judge with the most jobs left, if these seem to take longer than a worker takes to start.

A candidate that has timed out twice in the same stage would time out in its other cases too: those that still wait are
given up. Jobs that come after its last one was judged are tried.
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

_LOOKED_AT = 64
"""Candidates that wait, for one that comes with a known case."""
_MOST_PASSED_OVER = 64
"""How often the first candidate is passed over for one with a known case. Without a bound it could wait forever."""
_ELEMENTS_FOR_A_JOB = 1 << 20
"""Elements of tensors that take as long as everything else about a job."""
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
_JOBS_FOR_SLOW_ONES = 60.0
_MOST_TIMEOUTS = 2
"""Of a candidate in one stage. The second tells a kernel that hangs from one slow case."""
_NOT_TRIED = "not tried: two earlier cases of this kernel timed out"
Waiting = tuple[Job, int]
"""A job, and how many judges it has already cost."""


class JobQueue:
    """Jobs that wait, by candidate. Every method is safe from any thread."""

    def __init__(
        self,
        jobs: Iterable[Job] = (),
        heaviest_first: bool = False,
        worker_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Heaviest first: for several judges, so that none is left alone with much work in the end.

        ``worker_seconds``: what starting a worker for a candidate takes. A candidate that some judge has is shared only
        if its waiting jobs seem to take longer.
        """
        self._lock = Lock()
        self._heaviest_first, self._worker_seconds, self._clock = heaviest_first, worker_seconds, clock
        self._groups: dict[str, deque[Waiting]] = {}
        self._weights: dict[str, float] = {}
        self._passed_over = 0
        """How often since the first candidate of the queue was taken last."""
        self._count = 0
        self._under_way: Counter[str] = Counter()
        """Jobs that were taken and neither judged nor put back, by candidate."""
        self._begun: dict[str, dict[Ticket, float]] = {}
        """When each job under way was taken, by candidate."""
        self._unwanted: set[Ticket] = set()
        """Jobs that were withdrawn while they were under way."""
        self._quickest: dict[str, float] = {}
        """Seconds of the quickest job judged so far, of candidates that have jobs here or under way."""
        self._timeouts: dict[str, Counter[tuple[Stage, Deadlines]]] = {}
        """Of candidates that have jobs here or under way."""
        self._closed = False
        self.put(jobs)

    def put(self, jobs: Iterable[Job]) -> None:
        """Add jobs behind those that wait. What comes together is put into order together."""
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
        """No more jobs come."""
        with self._lock:
            self._closed = True

    @property
    def closed(self) -> bool:
        return self._closed

    def __len__(self) -> int:
        return self._count

    def take(self, last: str | None, elsewhere: Collection[str] = (), known: Collection[str] = ()) -> Waiting | None:
        """The next job for a judge that had this candidate last and knows these cases, while other judges have those
        candidates. None if no job waits, or only few quick ones of other judges' candidates.
        """
        with self._lock:
            if not self._groups:
                return None
            if last in self._groups and last is not None:
                key = last
            else:
                free = itertools.islice((key for key in self._groups if key not in elsewhere), _LOOKED_AT)
                chosen = self._first_of(list(free), known) or self._longest(elsewhere)
                if chosen is None:
                    return None
                key = chosen
            found = self._groups[key].popleft()
            self._count -= 1
            self._under_way[key] += 1
            self._begun.setdefault(key, {})[ticket_of(found[0])] = self._clock()
            self._forget_if_empty(key)
            return found

    def judged(self, job: Job, verdict: Verdict) -> list[tuple[Job, TimedOut]]:
        """A job that was taken has its verdict. Returns waiting jobs that are given up because of it, with theirs."""
        key = job.implementation.key
        with self._lock:
            began = self._no_longer_under_way(job)
            self._quickest[key] = min(self._clock() - began, self._quickest.get(key, math.inf))
            given_up = self._give_up(key, job.deadlines, verdict) if isinstance(verdict, TimedOut) else []
            self._forget_if_empty(key)
        return given_up

    def drop(self, job: Job) -> None:
        """A job that was taken is not judged, because nobody wants its verdict."""
        with self._lock:
            self._no_longer_under_way(job)
            self._forget_if_empty(job.implementation.key)

    def unwanted_seconds(self, job: Job) -> float | None:
        """How long ago this job was taken, if it has been withdrawn since; None: its verdict is wanted."""
        with self._lock:
            if ticket_of(job) not in self._unwanted:
                return None
            return self._clock() - self._begun.get(job.implementation.key, {}).get(ticket_of(job), -math.inf)

    def _no_longer_under_way(self, job: Job) -> float:
        """When the job was taken."""
        self._unwanted.discard(ticket_of(job))
        self._under_way[job.implementation.key] -= 1
        return self._begun.get(job.implementation.key, {}).pop(ticket_of(job), -math.inf)

    def _give_up(self, key: str, deadlines: Deadlines, verdict: TimedOut) -> list[tuple[Job, TimedOut]]:
        """Count a timeout; the candidate's waiting jobs with the same deadlines, if it is one too many."""
        timeouts = self._timeouts.setdefault(key, Counter())
        timeouts[verdict.stage, deadlines] += 1
        if timeouts[verdict.stage, deadlines] < _MOST_TIMEOUTS:
            return []
        group = self._groups.get(key, deque())
        found = [job for job, _ in group if job.deadlines == deadlines and not job.try_every_case]
        self._remove(key, {ticket_of(job) for job in found})
        return [(job, TimedOut(verdict.stage, verdict.limit_seconds, 0.0, _NOT_TRIED)) for job in found]

    def _longest(self, elsewhere: Collection[str]) -> str | None:
        """The candidate with the most jobs left; None if a worker for it takes as long as these."""
        key = max(self._groups, key=lambda key: len(self._groups[key]))
        if key not in elsewhere:
            return key
        now = self._clock()
        under_way_seconds = now - min(self._begun.get(key, {}).values(), default=now)
        # One job that was over at once says little about the others, while one of these takes longer.
        each_seconds = max(self._quickest.get(key, 0.0), under_way_seconds)
        return key if len(self._groups[key]) * each_seconds >= self._worker_seconds else None

    def _first_of(self, keys: Sequence[str], known: Collection[str]) -> str | None:
        """The first of these candidates, or one that waits with as much work and begins with a case that is known."""
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
        """To the front: it has waited before."""
        key = job.implementation.key
        with self._lock:
            group = self._groups.pop(key, deque())
            group.appendleft((job, lost))
            self._under_way[key] -= 1
            self._begun.get(key, {}).pop(ticket_of(job), None)
            self._groups = {key: group, **self._groups}
            self._weights.setdefault(key, 0.0)
            self._count += 1

    def withdraw(self, jobs: Iterable[Job]) -> list[Job]:
        """Remove these jobs as far as they wait; returns those that did. The others under way are unwanted now."""
        tickets = {ticket_of(job): job.implementation.key for job in jobs}
        found: list[Job] = []
        with self._lock:
            self._unwanted |= {ticket for ticket, key in tickets.items() if ticket in self._begun.get(key, {})}
            for key in set(tickets.values()) & self._groups.keys():
                found += self._remove(key, tickets)
                self._forget_if_empty(key)
        return found

    def _remove(self, key: str, tickets: Collection[Ticket]) -> list[Job]:
        """Remove these jobs of a candidate; returns those that waited."""
        group = self._groups.get(key, deque())
        found = [job for job, _ in group if ticket_of(job) in tickets]
        if found:
            self._groups[key] = deque(each for each in group if ticket_of(each[0]) not in tickets)
            self._count -= len(found)
        return found

    def _forget_if_empty(self, key: str) -> None:
        if not self._groups.get(key):
            self._groups.pop(key, None)
            self._weights.pop(key, None)
            if self._under_way[key] <= 0:
                del self._under_way[key]
                for known in (self._timeouts, self._begun, self._quickest):
                    known.pop(key, None)


def _weight(group: Sequence[Waiting]) -> float:
    """About how long its jobs take: each a while, and more where tensors are large."""
    elements = sum(_elements(job) for job, _ in group)
    name = group[0][0].case.operator.partition(".")[2]
    slow = _JOBS_FOR_SLOW_ONES if name.startswith(_SLOW) else 0.0
    return len(group) + elements / _ELEMENTS_FOR_A_JOB + slow


def _elements(job: Job) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensors_of(job.case))
