"""Runs several pairs (baseline and optimized benchmark) at once: threads call a runner, one queue collects the answers.

Separate from the run, which journals: the threads never touch a file of the run folder.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torchstone.errors import TorchstoneError
from torchstone.harness.pair_runner import PairOrder, PairRunner
from torchstone.harness.results import Comparison

_JOIN_SECONDS = 5.0
"""Longest wait for threads after the runner was closed. A thread that does not return is left running."""


class Answer(NamedTuple):
    """What came of one order: a comparison, or the exception that the runner raised."""

    place: int
    """Position of the order in the sequence of orders."""
    comparison: Comparison | None
    error: Exception | None
    """The exception that the runner raised. A correct runner never raises."""
    seconds: float


class PairThreads:
    """Carries out orders with several threads. No order begins after `until` (monotonic seconds)."""

    def __init__(self, runner: PairRunner, orders: Sequence[PairOrder], jobs: int, until: float | None) -> None:
        self._runner = runner
        self._waiting = deque(enumerate(orders))
        self._until = until
        self._is_stopping = threading.Event()
        self._answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        # Daemons, so that a runner that does not return cannot keep an interrupted program from ending.
        count = min(jobs, len(orders))
        self._threads = [threading.Thread(target=self._work, name=f"pair-{i}", daemon=True) for i in range(count)]

    def answers(self) -> Iterator[Answer]:
        """Start the threads, and yield the answer to each order (one pair to run) as soon as the pair is finished.

        If the runner raised a `TorchstoneError` for an order, raise it instead of yielding that answer.
        """
        for thread in self._threads:
            thread.start()
        working = len(self._threads)
        while working:
            answer = self._answers.get()
            if answer is None:
                working -= 1
            elif isinstance(answer.error, TorchstoneError):
                raise answer.error
            else:
                yield answer

    def finished_answers(self) -> Iterator[Answer]:
        """Yield comparisons that `answers` has not yielded, for a caller that was interrupted while waiting for one."""
        while True:
            try:
                answer = self._answers.get_nowait()
            except queue.Empty:
                return
            if answer is not None and answer.comparison is not None:
                yield answer

    def stop(self) -> None:
        """Begin no more orders, close the runner, wait for the threads. Later answers are dropped."""
        self._is_stopping.set()
        close = getattr(self._runner, "close", None)
        if close is not None:
            close()
        until = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))

    def _work(self) -> None:
        try:
            while not self._is_stopping.is_set() and (self._until is None or time.monotonic() < self._until):
                try:
                    place, order = self._waiting.popleft()
                except IndexError:
                    return
                self._answers.put(self._answer(place, order))
        finally:
            self._answers.put(None)

    def _answer(self, place: int, order: PairOrder) -> Answer:
        began = time.monotonic()
        comparison, failure = None, None
        try:
            comparison = self._runner.run(order)
        except Exception as error:  # noqa: BLE001 - one pair must not end a suite of hundreds
            failure = error
            if isinstance(error, TorchstoneError):
                self._is_stopping.set()  # an error of the machine or request would fail the next pair, too
        return Answer(place, comparison, failure, round(time.monotonic() - began, 3))
