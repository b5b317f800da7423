"""Progress of a run on stderr: a live line on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TextIO, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from torchstone.cli.time_left import ALIKE, Cost, TimeLeft, cases_left, cost_of_case
from torchstone.reports.safe_text import counted, one_line
from torchstone.reports.slowest_cases import seconds_of
from torchstone.runs import Observer
from torchstone.schema import Agrees, Missing, Record, verdict_name

_SECONDS_BETWEEN_LINES = 5.0
"""Shortest time between two progress lines in a pipe."""


R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


def can_redraw(stream: TextIO) -> bool:
    """Whether this is a terminal on which lines can be drawn again. A dumb terminal is treated as a pipe."""
    return stream.isatty() and not Console(file=stream).is_dumb_terminal


class Planned(Protocol[R_co]):
    """The part of a run's plan that progress uses."""

    @property
    def total(self) -> int: ...

    @property
    def done(self) -> Sequence[R_co]: ...


class Counting(NamedTuple, Generic[R]):
    """How progress counts and shows the records of one kind of run."""

    noun: str
    """What a record is about: `case`."""
    finished: str
    """Past participle: `judged`."""
    doing: str
    """Present participle: `judging`."""
    sort: Callable[[R], str]
    """Returns the status of a record, by which records are counted."""
    words: Callable[[Mapping[str, int]], str]
    """Returns the counts by status as a text."""
    line: Callable[[R], str]
    """Returns a record as one line, for `--verbose`."""
    cost: Callable[[R, Any], Cost | None] = lambda record, plan: ALIKE
    """Returns the cost of a record in a run of this plan; None: it took no time. By default all cost the same."""
    left: Callable[[Any], Counter[str]] = lambda plan: Counter({"": plan.total - len(plan.done)})
    """Returns, for each kind of cost, how many records of it are left when the run begins."""


def _case_words(counts: Mapping[str, int]) -> str:
    missing = counts.get("missing", 0)
    return f"{counts.get('agrees', 0)} agree, {counts.get('fails', 0)} do not" + (
        f", {missing} missing" if missing else ""
    )


def _case_status(record: Record) -> str:
    if isinstance(record.verdict, Agrees):
        return "agrees"
    return "missing" if isinstance(record.verdict, Missing) else "fails"


def _case_line(record: Record) -> str:
    """One line with verdict, operator, backend, arguments and seconds."""
    backend = one_line(record.implementation.backend)
    operator, label = one_line(record.case.operator), one_line(record.case.label)
    return f"{verdict_name(record.verdict):<11}  {operator} [{backend}]  {label}  {seconds_of(record):.2f} s"


JUDGED_CASES: Counting[Record] = Counting(
    "case", "judged", "judging", _case_status, _case_words, _case_line, cost_of_case, cases_left
)


class Tally(Generic[R]):
    """Counts of a run in progress, and the estimated time until its end."""

    def __init__(self, plan: Planned[R], counting: Counting[R], clock: Callable[[], float] = time.monotonic) -> None:
        self.total = plan.total
        self.done = 0
        self._time_left = TimeLeft(counting.left(plan), clock)
        self._plan, self._counting = plan, counting
        self._counts: Counter[str] = Counter()
        for record in plan.done:
            self.add_earlier(record)

    def add(self, record: R) -> None:
        """Count a record that this part of the run made."""
        self._count(record)
        self._time_left.add(self._counting.cost(record, self._plan))

    def add_earlier(self, record: R) -> None:
        """Count a record that an earlier part of the run made."""
        self._count(record)
        self._time_left.known(self._counting.cost(record, self._plan))

    def _count(self, record: R) -> None:
        self.done += 1
        self._counts[self._counting.sort(record)] += 1

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the end; None: not known yet."""
        return self._time_left.seconds(self.total - self.done)

    @property
    def words(self) -> str:
        return self._counting.words(self._counts)


class QuietProgress(Generic[R]):
    """Shows warnings only."""

    def __init__(self, stream: TextIO, counting: Counting[R]) -> None:
        self._stream, self._counting = stream, counting

    def preparing(self, done: int, total: int, what: str) -> None:
        pass

    def planned(self, plan: Planned[R], folder: Path) -> None:
        pass

    def recorded(self, record: R) -> None:
        pass

    def recorded_earlier(self, record: R) -> None:
        pass

    def fewer(self, count: int) -> None:
        pass

    def warned(self, message: str) -> None:
        print(f"warning: {one_line(message, limit=1000)}", file=self._stream, flush=True)


class PlainProgress(QuietProgress[R]):
    """Prints one line every few seconds, for logs; with ``verbose`` one line for every record."""

    def __init__(
        self,
        stream: TextIO,
        counting: Counting[R],
        clock: Callable[[], float] = time.monotonic,
        *,
        verbose: bool = False,
    ) -> None:
        super().__init__(stream, counting)
        self._clock = clock
        self._verbose = verbose
        self._last_printed = self._last_printed_preparing = -math.inf

    def preparing(self, done: int, total: int, what: str) -> None:
        if done == total or self._clock() - self._last_printed_preparing >= _SECONDS_BETWEEN_LINES:
            self._last_printed_preparing = self._clock()
            print(f"preparing, once: {what} {done}/{total}", file=self._stream, flush=True)

    def planned(self, plan: Planned[R], folder: Path) -> None:
        self._tally = Tally(plan, self._counting, self._clock)
        self._last_printed = self._clock()
        kept = f", {len(plan.done)} of them done before" if plan.done else ""
        print(f"{counted(plan.total, self._counting.noun)}{kept}, in {folder}", file=self._stream, flush=True)

    def recorded(self, record: R) -> None:
        self._tally.add(record)
        if self._verbose:
            print(self._counting.line(record), file=self._stream, flush=True)
            return
        now = self._clock()
        if now - self._last_printed >= _SECONDS_BETWEEN_LINES:
            self._last_printed = now
            left = self._tally.seconds_left
            reached = f"{self._tally.done}/{self._tally.total} {self._counting.finished}"
            about = "" if left is None else f", about {left:.0f} s left"
            print(f"{reached}, {self._tally.words}{about}", file=self._stream, flush=True)

    def recorded_earlier(self, record: R) -> None:
        self._tally.add_earlier(record)

    def fewer(self, count: int) -> None:
        self._tally.total -= count


class _LeftColumn(ProgressColumn):
    """Column with the time left, `0:01:23`. It counts down between two records."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        tally: Tally[Any] | None = task.fields.get("tally")
        seconds = None if tally is None else tally.seconds_left
        return Text("-:--:--" if seconds is None else str(timedelta(seconds=round(seconds))), "progress.remaining")


class LiveProgress(Generic[R]):
    """Shows a bar with counts and the time left."""

    def __init__(self, stream: TextIO, counting: Counting[R], *, verbose: bool = False) -> None:
        self._counting = counting
        self._verbose = verbose
        self._console = Console(file=stream, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
            _LeftColumn(),
            console=self._console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._preparations: dict[str, TaskID] = {}

    def preparing(self, done: int, total: int, what: str) -> None:
        if what not in self._preparations:
            self._preparations[what] = self._bar.add_task("preparing", total=total, words=what)
            self._bar.start()
        self._bar.update(self._preparations[what], completed=done)
        if done == total:
            self._bar.remove_task(self._preparations.pop(what))

    def planned(self, plan: Planned[R], folder: Path) -> None:
        while self._preparations:
            self._bar.remove_task(self._preparations.popitem()[1])
        self._tally = Tally(plan, self._counting)
        self._task = self._bar.add_task(
            self._counting.doing,
            total=plan.total,
            completed=self._tally.done,
            words=self._tally.words,
            tally=self._tally,
        )
        self._bar.start()

    def recorded(self, record: R) -> None:
        self._tally.add(record)
        if self._verbose:
            self._console.print(self._counting.line(record), markup=False, soft_wrap=True)
        self._show_counts()

    def recorded_earlier(self, record: R) -> None:
        self._tally.add_earlier(record)
        self._show_counts()

    def _show_counts(self) -> None:
        if self._task is not None:
            self._bar.update(self._task, completed=self._tally.done, words=self._tally.words)

    def fewer(self, count: int) -> None:
        self._tally.total -= count
        if self._task is not None:
            self._bar.update(self._task, total=self._tally.total)

    def warned(self, message: str) -> None:
        self._console.print(f"warning: {one_line(message, limit=1000)}", style="yellow", markup=False, soft_wrap=True)

    def stop(self) -> None:
        self._bar.stop()


@contextlib.contextmanager
def watching(stream: TextIO, quiet: bool, verbose: bool = False) -> Iterator[Observer]:
    """Yields the observer for a run of cases: quiet, plain lines, or a live bar if the stream is a terminal."""
    with watching_any(stream, quiet, JUDGED_CASES, verbose) as observer:
        yield observer


@contextlib.contextmanager
def watching_any(
    stream: TextIO, quiet: bool, counting: Counting[R], verbose: bool = False
) -> Iterator[QuietProgress[R] | LiveProgress[R]]:
    """As `watching`, for runs whose records are not cases: pairs, attempts, points."""
    if quiet or not can_redraw(stream):
        yield QuietProgress(stream, counting) if quiet else PlainProgress(stream, counting, verbose=verbose)
        return
    live = LiveProgress(stream, counting, verbose=verbose)
    try:
        yield live
    finally:
        live.stop()


@contextlib.contextmanager
def counting(stream: TextIO, quiet: bool, what: str) -> Iterator[Callable[[int, int], None]]:
    """For other long work: yields a function that takes done and total, and shows them with the time left."""
    if quiet:
        yield lambda done, total: None
    elif not can_redraw(stream):
        yield _PlainCount(stream, what).tell
    else:
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(file=stream),
            transient=True,
        ) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)


class _PlainCount:
    """Prints done and total with the time left every few seconds."""

    def __init__(self, stream: TextIO, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._what, self._clock = stream, what, clock
        self._began = self._last_printed = clock()

    def tell(self, done: int, total: int) -> None:
        now = self._clock()
        if not done or now - self._last_printed < _SECONDS_BETWEEN_LINES:
            return
        self._last_printed = now
        left = (now - self._began) / done * (total - done)
        print(f"{done}/{total} {self._what}, about {left:.0f} s left", file=self._stream, flush=True)
