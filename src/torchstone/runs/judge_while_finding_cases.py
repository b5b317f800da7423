"""Judges the first cases of a suite while the suite still finds others.

The suite names its operators beforehand, each with at most one case, so that a plan can be written and progress shown.
Each case is planned when it is found. One thread iterates the suite and one the judging session. All other work is done
in the thread that iterates the records.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Thread
from typing import NamedTuple, Protocol

import msgspec

from torchstone.errors import unknown_name
from torchstone.executors import Answer, Executor, Session, session_of
from torchstone.executors.devices import find_devices
from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.runs.growing_plan import GrowingPlan
from torchstone.runs.plan import JobPlan
from torchstone.runs.request import RunRequest
from torchstone.schema import Case, Job, Record
from torchstone.suites import Arrivals, CaseQuery, Quiet, Suite, known_operators, names_operator, refuse_unused


def arrivals_of(request: RunRequest, device: str, suite: Suite, query: CaseQuery) -> Arrivals | None:
    """The suite's cases as they are found. None: the suite finds all at once, or the query must choose among all.

    Raises UsageError for a requested name that is no operator of the suite. An operator without a case is left out.
    """
    arriving: Callable[[CaseQuery, Quiet], Arrivals] | None = getattr(suite, "arriving", None)
    chooses_among_all = query.expression is not None or query.keys is not None  # not `largest`: each has one case
    if arriving is None or chooses_among_all or query.mode != "fwd":
        return None
    refuse_unused(request.suite, suite, query)
    _require_names(query, suite, request.suite)
    is_timed_here = request.measured and request.executor == "local"
    return arriving(query, _Lane(device) if is_timed_here else nullcontext)


def _require_names(query: CaseQuery, suite: Suite, suite_name: str) -> None:
    """Raise UsageError for an unknown operator name before any case is read."""
    known = known_operators(suite, msgspec.structs.replace(query, operators=None, sample=None)) or frozenset()
    for name in query.operators or ():
        if not any(names_operator(name, operator) for operator in known):
            hint = f"'torchstone list operators --suite {suite_name}'"
            raise unknown_name("operator", name, sorted(known), hint)


class _Lane:
    """Makes context managers whose blocks never overlap a measurement on the device, by its lane (`measuring_lane`)."""

    def __init__(self, device: str) -> None:
        self._name = find_devices(device)[0].name

    def __call__(self) -> AbstractContextManager[None]:
        return self._shared()

    @contextmanager
    def _shared(self) -> Iterator[None]:
        lane = MeasuringLane(self._name)
        try:
            with lane.shared():
                yield
        finally:
            lane.close()


class _Found(NamedTuple):
    """The case of an operator; None: it has none."""

    operator: str
    case: Case | None


class _Ended(NamedTuple):
    """One of the two threads has ended, perhaps with an error."""

    thread: str
    error: Exception | None = None


class LateObserver(Protocol):
    """The methods of an observer that late cases need."""

    def recorded_earlier(self, record: Record) -> None:
        """A case that was found now already has a record, made by an earlier part of the run."""
        ...

    def fewer(self, count: int) -> None:
        """This many of the planned cases turned out not to exist."""
        ...


class LateCases:
    """Judges the planned cases, and those that are found meanwhile, in one session."""

    def __init__(self, arrivals: Arrivals, growing: GrowingPlan, observer: LateObserver) -> None:
        self._arrivals, self._growing, self._observer = arrivals, growing, observer
        self._news: queue.SimpleQueue[_Found | Answer | _Ended] = queue.SimpleQueue()
        self.waiting: dict[str, Job] = {}
        """Submitted jobs by key. The caller removes those that are answered."""

    def left_out(self) -> dict[str, int]:
        """Reasons why operators have no case -> number of operators, as far as known."""
        return self._arrivals.left_out()

    def answers(self, executor: Executor, first: JobPlan) -> Iterator[Record]:
        """Judge the first plan's jobs and later ones; yield their records, and those of cases without a kernel."""
        session = session_of(executor)
        threads = [
            Thread(target=self._watch, args=("cases", (_Found(*each) for each in self._arrivals)), daemon=True),
            Thread(target=self._watch, args=("answers", session), daemon=True),
        ]
        try:
            self._submit(session, first)
            for thread in threads:
                thread.start()
            while True:
                match self._news.get():
                    case _Found(operator, case):
                        yield from self._planned(session, operator, case)
                    case Answer(_, record):
                        yield record
                    case _Ended(error=Exception() as error):
                        raise error
                    case _Ended("cases"):
                        session.finish()
                    case _Ended("answers"):
                        return
        finally:
            self._arrivals.stop()
            session.close()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()

    def _watch(self, name: str, items: Iterator[_Found | Answer]) -> None:
        """Body of a thread: put every item into the queue, and at the end an `_Ended` with the error, if any."""
        try:
            for item in items:
                self._news.put(item)
        except Exception as error:  # noqa: BLE001 - raised again in the thread that iterates the records
            self._news.put(_Ended(name, error))
        else:
            self._news.put(_Ended(name))

    def _planned(self, session: Session, operator: str, case: Case | None) -> Iterator[Record]:
        """Plan a found case and submit its jobs; yield the records of backends without a kernel for it."""
        if case is None:
            self._observer.fewer(self._growing.found_none(operator))
            return
        plan = self._growing.found(operator, case)
        for record in plan.done:
            self._observer.recorded_earlier(record)
        self._submit(session, plan)
        yield from plan.missing

    def _submit(self, session: Session, plan: JobPlan) -> None:
        if plan.jobs:
            self.waiting |= {job.key: job for job in plan.jobs}
            session.submit(plan.jobs)
