"""Progress of a run on stderr: a live line on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TextIO, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from torchstone.reports.durations import seconds_of
from torchstone.reports.text import counted, one_line
from torchstone.runs import Observer
from torchstone.schema import Agrees, Missing, Record, verdict_name

_PLAIN_SECONDS = 5.0


R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Planned(Protocol[R_co]):
    """What progress must know of a plan."""

    @property
    def total(self) -> int: ...

    @property
    def done(self) -> Sequence[R_co]: ...


class Counting(NamedTuple, Generic[R]):
    """What a run consists of, and how its records are counted and told."""

    noun: str
    """`case`"""
    finished: str
    """`judged`"""
    doing: str
    """`judging`"""
    sort: Callable[[R], str]
    """A record's status."""
    words: Callable[[Mapping[str, int]], str]
    """Counts by status, as words."""
    line: Callable[[R], str]
    """A record on one line, for who wants to see each."""


def _case_words(counts: Mapping[str, int]) -> str:
    missing = counts.get("missing", 0)
    return f"{counts.get('agrees', 0)} agree, {counts.get('fails', 0)} do not" + (
        f", {missing} missing" if missing else ""
    )


def _sort_of_case(record: Record) -> str:
    if isinstance(record.verdict, Agrees):
        return "agrees"
    return "missing" if isinstance(record.verdict, Missing) else "fails"


def _case_line(record: Record) -> str:
    """Verdict, operator, backend, arguments, seconds."""
    backend = one_line(record.implementation.backend)
    operator, label = one_line(record.case.operator), one_line(record.case.label)
    return f"{verdict_name(record.verdict):<11}  {operator} [{backend}]  {label}  {seconds_of(record):.2f} s"


JUDGED_CASES: Counting[Record] = Counting("case", "judged", "judging", _sort_of_case, _case_words, _case_line)


class Tally(Generic[R]):
    """Counts of a run under way."""

    def __init__(self, plan: Planned[R], counting: Counting[R]) -> None:
        self.total = plan.total
        self.done = 0
        self._counting = counting
        self._counts: Counter[str] = Counter()
        for record in plan.done:
            self.add(record)

    def add(self, record: R) -> None:
        self.done += 1
        self._counts[self._counting.sort(record)] += 1

    @property
    def words(self) -> str:
        return self._counting.words(self._counts)


class QuietProgress(Generic[R]):
    """Warnings only."""

    def __init__(self, stream: TextIO, counting: Counting[R]) -> None:
        self._stream, self._counting = stream, counting

    def preparing(self, done: int, total: int, what: str) -> None:
        pass

    def planned(self, plan: Planned[R], folder: Path) -> None:
        pass

    def recorded(self, record: R) -> None:
        pass

    def warned(self, message: str) -> None:
        print(f"warning: {one_line(message, limit=1000)}", file=self._stream, flush=True)


class PlainProgress(QuietProgress[R]):
    """One line every few seconds, for logs."""

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
        self._said = -math.inf

    def preparing(self, done: int, total: int, what: str) -> None:
        if done == total or self._clock() - self._said >= _PLAIN_SECONDS:
            self._said = self._clock()
            print(f"preparing, once: {what} {done}/{total}", file=self._stream, flush=True)

    def planned(self, plan: Planned[R], folder: Path) -> None:
        self._tally = Tally(plan, self._counting)
        self._first = self._tally.done
        self._began = self._said = self._clock()
        kept = f", {len(plan.done)} of them done before" if plan.done else ""
        print(f"{counted(plan.total, self._counting.noun)}{kept}, in {folder}", file=self._stream, flush=True)

    def recorded(self, record: R) -> None:
        self._tally.add(record)
        if self._verbose:
            print(self._counting.line(record), file=self._stream, flush=True)
            return
        now = self._clock()
        if now - self._said >= _PLAIN_SECONDS:
            self._said = now
            pace = (now - self._began) / (self._tally.done - self._first)
            left = pace * (self._tally.total - self._tally.done)
            reached = f"{self._tally.done}/{self._tally.total} {self._counting.finished}"
            line = f"{reached}, {self._tally.words}, about {left:.0f} s left"
            print(line, file=self._stream, flush=True)


class LiveProgress(Generic[R]):
    """A bar with counts and the time left."""

    def __init__(self, stream: TextIO, counting: Counting[R], *, verbose: bool = False) -> None:
        self._counting = counting
        self._verbose = verbose
        self._console = Console(file=stream, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
            TimeRemainingColumn(),
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

    def planned(self, plan: Planned[R], folder: Path) -> None:
        for task in self._preparations.values():
            self._bar.remove_task(task)
        self._tally = Tally(plan, self._counting)
        words = self._tally.words
        self._task = self._bar.add_task(self._counting.doing, total=plan.total, completed=self._tally.done, words=words)
        self._bar.start()

    def recorded(self, record: R) -> None:
        self._tally.add(record)
        if self._verbose:
            self._console.print(self._counting.line(record), markup=False, soft_wrap=True)
        if self._task is not None:
            self._bar.update(self._task, completed=self._tally.done, words=self._tally.words)

    def warned(self, message: str) -> None:
        self._console.print(f"warning: {one_line(message, limit=1000)}", style="yellow", markup=False, soft_wrap=True)

    def stop(self) -> None:
        self._bar.stop()


@contextlib.contextmanager
def watching(stream: TextIO, quiet: bool, verbose: bool = False) -> Iterator[Observer]:
    """The observer of a run of cases that fits the stream, for as long as the run lasts."""
    with watching_any(stream, quiet, JUDGED_CASES, verbose) as observer:
        yield observer


@contextlib.contextmanager
def watching_any(
    stream: TextIO, quiet: bool, counting: Counting[R], verbose: bool = False
) -> Iterator[QuietProgress[R] | LiveProgress[R]]:
    """The same for a run of anything that is counted."""
    if quiet or not stream.isatty():
        yield QuietProgress(stream, counting) if quiet else PlainProgress(stream, counting, verbose=verbose)
        return
    live = LiveProgress(stream, counting, verbose=verbose)
    try:
        yield live
    finally:
        live.stop()


@contextlib.contextmanager
def counting(stream: TextIO, quiet: bool, what: str) -> Iterator[Callable[[int, int], None]]:
    """For other long work: told how much is done, of how much, it says so and how long the rest takes."""
    if quiet:
        yield lambda done, total: None
    elif not stream.isatty():
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
    def __init__(self, stream: TextIO, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._what, self._clock = stream, what, clock
        self._began = self._said = clock()

    def tell(self, done: int, total: int) -> None:
        now = self._clock()
        if now - self._said < _PLAIN_SECONDS:
            return
        self._said = now
        left = (now - self._began) / done * (total - done)
        print(f"{done}/{total} {self._what}, about {left:.0f} s left", file=self._stream, flush=True)
