"""How a run is watched: a live line on a terminal, a plain one now and then elsewhere. All of it on stderr."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from torchstone.reports.durations import seconds_of
from torchstone.reports.text import counted, one_line
from torchstone.runs import Observer, Plan
from torchstone.schema import Agrees, Missing, Record, verdict_name

_PLAIN_SECONDS = 5.0


class Tally:
    """Counts of a run under way."""

    def __init__(self, plan: Plan) -> None:
        self.total = plan.total
        self.done = self.agrees = self.missing = 0
        for record in plan.done:
            self.add(record)

    def add(self, record: Record) -> None:
        self.done += 1
        self.agrees += isinstance(record.verdict, Agrees)
        self.missing += isinstance(record.verdict, Missing)

    @property
    def words(self) -> str:
        failed = self.done - self.agrees - self.missing
        return f"{self.agrees} agree, {failed} do not" + (f", {self.missing} missing" if self.missing else "")


class CaseLines:
    """One line for each case as it is judged: verdict, operator, arguments, seconds."""

    def __init__(self, plan: Plan) -> None:
        records = (*plan.done, *plan.missing)
        backends = {record.implementation.backend for record in records} | {
            job.implementation.backend for job in plan.jobs
        }
        self._names_backends = len(backends) > 1

    def line(self, record: Record) -> str:
        backend = f" [{record.implementation.backend}]" if self._names_backends else ""
        operator, label = one_line(record.case.operator), one_line(record.case.label)
        return f"{verdict_name(record.verdict):<11}  {operator}{backend}  {label}  {seconds_of(record):.2f} s"


class QuietProgress:
    """Warnings only."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def preparing(self, done: int, total: int, what: str) -> None:
        pass

    def planned(self, plan: Plan, folder: Path) -> None:
        pass

    def recorded(self, record: Record) -> None:
        pass

    def warned(self, message: str) -> None:
        print(f"warning: {one_line(message, limit=1000)}", file=self._stream, flush=True)


class PlainProgress(QuietProgress):
    """One line every few seconds, for logs."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic, *, verbose: bool = False) -> None:
        super().__init__(stream)
        self._clock = clock
        self._verbose = verbose
        self._said = -math.inf

    def preparing(self, done: int, total: int, what: str) -> None:
        if done == total or self._clock() - self._said >= _PLAIN_SECONDS:
            self._said = self._clock()
            print(f"preparing, once: {what} {done}/{total}", file=self._stream, flush=True)

    def planned(self, plan: Plan, folder: Path) -> None:
        self._tally = Tally(plan)
        self._first = self._tally.done
        self._began = self._said = self._clock()
        kept = f", {len(plan.done)} of them done before" if plan.done else ""
        print(f"{counted(plan.total, 'case')}{kept}, in {folder}", file=self._stream, flush=True)
        self._lines = CaseLines(plan)

    def recorded(self, record: Record) -> None:
        self._tally.add(record)
        if self._verbose:
            print(self._lines.line(record), file=self._stream, flush=True)
            return
        now = self._clock()
        if now - self._said >= _PLAIN_SECONDS:
            self._said = now
            pace = (now - self._began) / (self._tally.done - self._first)
            left = pace * (self._tally.total - self._tally.done)
            line = f"{self._tally.done}/{self._tally.total} judged, {self._tally.words}, about {left:.0f} s left"
            print(line, file=self._stream, flush=True)


class LiveProgress:
    """A bar with counts and the time left."""

    def __init__(self, stream: TextIO, *, verbose: bool = False) -> None:
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

    def planned(self, plan: Plan, folder: Path) -> None:
        for task in self._preparations.values():
            self._bar.remove_task(task)
        self._tally, self._lines = Tally(plan), CaseLines(plan)
        words = self._tally.words
        self._task = self._bar.add_task("judging", total=plan.total, completed=self._tally.done, words=words)
        self._bar.start()

    def recorded(self, record: Record) -> None:
        self._tally.add(record)
        if self._verbose:
            self._console.print(self._lines.line(record), markup=False, soft_wrap=True)
        if self._task is not None:
            self._bar.update(self._task, completed=self._tally.done, words=self._tally.words)

    def warned(self, message: str) -> None:
        self._console.print(f"warning: {one_line(message, limit=1000)}", style="yellow", markup=False, soft_wrap=True)

    def stop(self) -> None:
        self._bar.stop()


@contextlib.contextmanager
def watching(stream: TextIO, quiet: bool, verbose: bool = False) -> Iterator[Observer]:
    """The observer that fits the stream, for as long as the run lasts."""
    if quiet or not stream.isatty():
        yield QuietProgress(stream) if quiet else PlainProgress(stream, verbose=verbose)
        return
    live = LiveProgress(stream, verbose=verbose)
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
