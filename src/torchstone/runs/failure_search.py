"""Searches for a call of an operator on which a kernel fails, and shrinks it to the smallest: ``torchstone fuzz``.

The library hypothesis proposes calls of an operator, and a judge judges the kernel on each. Separate from `run`: cases
are not known beforehand, no journal is written, and one judge judges all of them.

The judge draws new values each time, so a case may fail once and agree the next time. But hypothesis needs repeatable
answers, so the answer for each case is stored. If the first failing case does not fail every time, other cases count as
agreeing only after several tries.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from torchstone import registry
from torchstone.backends import Backend, BackendOptions
from torchstone.errors import UsageError
from torchstone.executors import ExecutorOptions, Session, judge_one
from torchstone.runs.devices import device_type, resolve_device
from torchstone.runs.request import canonical_dtypes
from torchstone.schema import (
    Case,
    Cheated,
    Crashed,
    Disagrees,
    Effort,
    Implementation,
    IsolationLevel,
    Job,
    Record,
    TimedOut,
    Unjudged,
    Unsupported,
    verdict_name,
)
from torchstone.suites.fuzz import overloads_of, smoke_operators

if TYPE_CHECKING:
    from torchstone.suites.learned_call_forms import Operator
    from torchstone.suites.torch_probe import TorchProbe

FAILURES = (Disagrees, Cheated, Crashed, TimedOut)
"""Verdicts that count as a failure of the kernel."""
TRIES = 3
"""How often a case is judged if once may not be enough."""
_MOST_SHRINKING_JOBS = 200
"""Most judged jobs for finding the smallest case."""


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a search, as the command line has them."""

    backend: str = "aten"
    kernels_dir: Path | None = None
    operators: tuple[str, ...] | None = None
    """Overload or base names; None: those of the smoke suite that the backend offers."""
    dtypes: tuple[str, ...] | None = None
    device: str = "auto"
    effort: Effort = "quick"
    examples: int = 200
    """Draws for each operator after which it counts as correct. Some repeat a case, which is judged once."""
    seed: int = 0
    isolation: IsolationLevel = "best"
    threads: int = 1


class Failure(msgspec.Struct, frozen=True):
    """The smallest case that fails."""

    record: Record
    tries: int
    """How often this case was judged when it was found and confirmed."""
    failures: int
    """In how many of these tries it failed."""
    first: Case
    """The first failing case that was found, before shrinking."""


class SmallestFailure(msgspec.Struct, frozen=True):
    """The result for one operator."""

    operator: str
    examples: int = 0
    """Number of judged cases, including those of shrinking."""
    refused: int = 0
    """Number of drawn calls that torch refuses."""
    verdicts: dict[str, int] = {}
    failure: Failure | None = None
    doubtful: int = 0
    """Number of cases on which torch's own operator fails, too. They do not count as failures."""
    reason: str = ""
    """Why the operator was not searched."""
    seconds: float = 0.0


class Watcher(Protocol):
    """Receives the events of a search."""

    def tried(self, operator: str, examples: int, of: int, failing: Case | None) -> None:
        """``examples`` of ``of`` cases were judged. ``failing``: the last one that failed, which is being shrunk."""
        ...


def search(request: SearchRequest, watcher: Watcher) -> Iterator[SmallestFailure]:
    """Search all operators; yield the result of each when its search ends."""
    from torchstone.suites.learned_call_forms import Unfuzzable, learn
    from torchstone.suites.torch_probe import TorchProbe

    device = resolve_device(request.device)
    backend = _backend(request.backend, request.kernels_dir, device)
    dtypes = None if request.dtypes is None else canonical_dtypes(request.dtypes)
    options = ExecutorOptions(device=device, isolation=request.isolation, threads=request.threads)
    offers = _offers(request, backend)
    with registry.executors.factory("local")(options).open() as session, TorchProbe() as probe:
        for name, offered in offers.items():
            if offered is None:
                yield SmallestFailure(name, reason=f"backend '{request.backend}' offers nothing for it")
                continue
            try:
                operator = learn(name, probe, dtypes)
            except Unfuzzable as reason:
                yield SmallestFailure(name, reason=str(reason))
                continue
            rival = None if request.backend == "aten" else _backend("aten", None, device).implementation(name)
            bench = Bench(session, request.effort, offered, rival)
            yield search_operator(operator, probe, bench, request, watcher)


def _backend(name: str, kernels_dir: Path | None, device: str) -> Backend:
    made: Backend = registry.backends.factory(name)(BackendOptions(kernels_dir, device_type(device)))
    return made


def _offers(request: SearchRequest, backend: Backend) -> dict[str, Implementation | None]:
    """The backend's kernel for each requested overload; for a base name, only the overloads with a kernel."""
    found: dict[str, Implementation | None] = {}
    for name in request.operators or smoke_operators():
        offers = {overload: backend.implementation(overload) for overload in overloads_of(name)}
        offered = {overload: offer for overload, offer in offers.items() if offer is not None}
        if request.operators is not None and not offered:
            found[next(iter(offers))] = None
        found |= offered
    if not any(found.values()):
        wanted = ", ".join(request.operators or ("the operators of suite 'smoke'",))
        raise UsageError(f"backend '{request.backend}' offers nothing for {wanted}. Name other operators.")
    return found


# ---- one operator


class UnansweredError(Exception):
    """The judge has no verdict on a kernel, perhaps because of the kernel. Other kernels may still be judged."""


class Bench:
    """Judges one kernel on any number of cases, and torch's own operator where the kernel fails."""

    def __init__(
        self, session: Session, effort: Effort, implementation: Implementation, rival: Implementation | None = None
    ) -> None:
        self._session = session
        self._effort = effort
        self._implementation = implementation
        self._rival = rival

    def judge(self, case: Case) -> Record:
        """Judge the kernel on a case. Raises :class:`UnansweredError` if there is no verdict."""
        return self._judge(case, self._implementation)

    def is_doubtful(self, case: Case) -> bool:
        """Whether torch's own operator fails too: then the case is at fault, not the kernel."""
        return self._rival is not None and isinstance(self._judge(case, self._rival).verdict, FAILURES)

    def _judge(self, case: Case, implementation: Implementation) -> Record:
        record = judge_one(self._session, Job(case, implementation, self._effort, measured=False))
        if isinstance(record.verdict, Unjudged):
            raise UnansweredError(record.verdict.reason)
        return record


class SearchTrial:
    """Tells hypothesis whether the kernel fails on a case, and stores the answers."""

    def __init__(self, operator: str, bench: Bench, examples: int, watcher: Watcher) -> None:
        self._operator = operator
        self._bench = bench
        self._of = examples
        self._watcher = watcher
        self._known: dict[str, bool] = {}
        self.failing: list[Record] = []
        """Records of failing cases in the order of judging: hypothesis proposes smaller and smaller ones."""
        self.verdicts: Counter[str] = Counter()
        self.examples = self.refused = self.doubtful = self._shrinking = 0
        self._tries = 1
        self.trouble: UnansweredError | None = None

    def fails(self, case: Case) -> bool:
        """Whether the kernel fails on the case. The case is judged once; later calls return the same answer."""
        if case.key not in self._known:
            self._known[case.key] = self._fails(case)
        return self._known[case.key]

    def _fails(self, case: Case) -> bool:
        if self.trouble is not None or self._shrinking >= _MOST_SHRINKING_JOBS:
            return False
        try:
            found = any(self._fails_once(case) for _ in range(self._tries))
            if found and len(self.failing) == 1:
                self._tries = 1 if all(self._fails_once(case) for _ in range(TRIES - 1)) else TRIES
            return found
        except UnansweredError as error:
            self.trouble = error  # hypothesis would count an exception as a failure, and shrink it
            return False

    def _fails_once(self, case: Case) -> bool:
        record = self._bench.judge(case)
        self._shrinking += bool(self.failing)
        failed = self._is_like_the_first(record)
        if failed and self._bench.is_doubtful(case):
            self.doubtful += 1
            return False
        self._count(record)
        if failed:
            self.failing.append(record)
        self._watcher.tried(self._operator, self.examples, self._of, self.failing[-1].case if self.failing else None)
        return failed

    def _is_like_the_first(self, record: Record) -> bool:
        """Whether it fails with the first failure's verdict. Shrinking must not turn a wrong result into a crash."""
        first = self.failing[0].verdict if self.failing else record.verdict
        return isinstance(record.verdict, FAILURES) and type(record.verdict) is type(first)

    def _count(self, record: Record) -> None:
        if isinstance(record.verdict, Unsupported) and record.verdict.by != "candidate":
            self.refused += 1
        else:
            self.examples += 1
            self.verdicts[verdict_name(record.verdict)] += 1


def search_operator(
    operator: Operator, probe: TorchProbe, bench: Bench, request: SearchRequest, watcher: Watcher
) -> SmallestFailure:
    """Judge cases until one fails, and shrink it, or until the requested number is reached."""
    began = time.monotonic()
    trial = SearchTrial(operator.name, bench, request.examples, watcher)
    smallest = _smallest(operator, probe, trial, request)
    try:
        failure = None if smallest is None else _confirmed(smallest, trial.failing[0].case, bench)
    except UnansweredError as error:
        failure, trial.trouble = None, error
    return SmallestFailure(
        operator.name,
        trial.examples,
        trial.refused,
        dict(trial.verdicts),
        failure,
        trial.doubtful,
        reason="" if failure is not None or trial.trouble is None else f"a case was not judged: {trial.trouble}",
        seconds=round(time.monotonic() - began, 3),
    )


def _smallest(operator: Operator, probe: TorchProbe, trial: SearchTrial, request: SearchRequest) -> Record | None:
    from torchstone.suites.hypothesis_strategies import find_smallest

    def fails(case: Case | None) -> bool | None:
        if case is None:
            trial.refused += 1
            return None
        return trial.fails(case)

    case = find_smallest(operator, probe, fails, request.examples, random.Random(request.seed))
    by_key = {record.case.key: record for record in trial.failing}
    return by_key[case.key] if case is not None else next(reversed(trial.failing), None)


def _confirmed(record: Record, first: Case, bench: Bench) -> Failure:
    """Judge the case again several times, to report how often it fails."""
    again = [bench.judge(record.case) for _ in range(TRIES)]
    failed = [other for other in again if isinstance(other.verdict, FAILURES)]
    return Failure(record, 1 + TRIES, 1 + len(failed), first)
