"""Jobs that wait for a judge, in the order in which their candidates came.

A candidate's worker is warm in the judge that had its last job; starting it elsewhere costs another worker. So a judge
chooses in this order:

1. its own candidate;
2. a candidate that no judge has, on a case whose reference this judge has already measured, if there is one;
3. the candidate of another judge with the most jobs left.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Collection, Iterable, Sequence

from torchstone.protocol.environment import Preload
from torchstone.schema import Implementation, Job, SourceFiles, tensors_of

_LOOKED_AT = 64
"""Candidates that wait, for one that comes with a known case."""
_ELEMENTS_FOR_A_JOB = 1 << 20
"""Take as long as everything else about a job."""
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
_WORDS_FOR_COMPILING = ("compile", "_dynamo", "_inductor", "export")
Waiting = tuple[Job, int]
"""A job, and how many judges it has already cost."""


class JobQueue:
    """Jobs that wait, by candidate."""

    def __init__(self, jobs: Iterable[Job], heaviest_first: bool = False) -> None:
        """Heaviest first: for several judges, so that none is left alone with much work in the end."""
        self._groups: dict[str, deque[Waiting]] = {}
        for job in jobs:
            self._groups.setdefault(job.implementation.key, deque()).append((job, 0))
        self._weights = {key: _weight(group) if heaviest_first else 0.0 for key, group in self._groups.items()}
        if heaviest_first:
            heaviest = sorted(self._groups.items(), key=lambda item: -self._weights[item[0]])
            self._groups = {key: deque(sorted(group, key=lambda each: -_elements(each[0]))) for key, group in heaviest}

    def preload(self) -> Preload:
        """What workers should find imported. A guess: a kernel that needs more imports it."""
        implementations = [group[0][0].implementation for group in self._groups.values()]
        if all(each.language == "aten" for each in implementations):
            return "torch"
        return "compiler" if any(map(_may_compile, implementations)) else "triton"

    def measures_with_care(self) -> bool:
        """Whether some job is to be timed with more than the least effort."""
        jobs = (job for group in self._groups.values() for job, _ in group)
        return any(job.measured and job.case.timed and job.effort != "quick" for job in jobs)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def take(self, last: str | None, elsewhere: Collection[str] = (), known: Collection[str] = ()) -> Waiting:
        """The next job for a judge that had this candidate last and knows these cases, while other judges have those
        candidates.
        """
        if last in self._groups and last is not None:
            key = last
        else:
            free = itertools.islice((key for key in self._groups if key not in elsewhere), _LOOKED_AT)
            key = self._first_of(list(free), known) or self._longest()
        group = self._groups[key]
        found = group.popleft()
        if not group:
            del self._groups[key]
        return found

    def _longest(self) -> str:
        """The candidate with the most jobs left."""
        return max(self._groups, key=lambda key: len(self._groups[key]))

    def _first_of(self, keys: Sequence[str], known: Collection[str]) -> str | None:
        """The first of these candidates, or one that waits with as much work and begins with a case that is known."""
        if not keys:
            return None
        alike = (key for key in keys if self._weights[key] == self._weights[keys[0]])
        return next((key for key in alike if self._groups[key][0][0].case.key in known), keys[0])

    def put_back(self, job: Job, lost: int) -> None:
        """To the front: it has waited before."""
        key = job.implementation.key
        group = self._groups.pop(key, deque())
        group.appendleft((job, lost))
        self._groups = {key: group, **self._groups}


def _may_compile(implementation: Implementation) -> bool:
    """Whether it may use torch's compiler. Installed packages of kernels use Triton; sources say what they use."""
    if isinstance(implementation.origin, SourceFiles):
        return any(word in file.text for file in implementation.origin.files for word in _WORDS_FOR_COMPILING)
    return not implementation.package or implementation.package == "torch.compile"


def _weight(group: Sequence[Waiting]) -> float:
    """About how long its jobs take: each a while, and more where tensors are large."""
    elements = sum(_elements(job) for job, _ in group)
    name = group[0][0].case.operator.partition(".")[2]
    slow = _JOBS_FOR_SLOW_ONES if name.startswith(_SLOW) else 0.0
    return len(group) + elements / _ELEMENTS_FOR_A_JOB + slow


def _elements(job: Job) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensors_of(job.case))
