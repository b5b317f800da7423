"""A judge that stays: kernels can be submitted at any time, from many threads or tasks.

A `Judge` owns one session of an executor and one thread, which hands every record to the submissions that wait for
it. If the machine fails, every future that waits gets the error, and the next submission opens a new session.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

from torchstone import registry
from torchstone.api.evaluation import Evaluation
from torchstone.api.in_flight import InFlight
from torchstone.api.kernels import Kernel, as_implementation
from torchstone.api.places import Places
from torchstone.api.settings import OF_PROCESSES, Settings, changed, executor_options
from torchstone.api.submission import Purpose, Submission, has_cases, operator_of, submissions_for
from torchstone.api.verdict_cache import VerdictCache, cache_key
from torchstone.backends.accompanying_files import Files
from torchstone.errors import InfrastructureError, TorchstoneError, UsageError
from torchstone.executors import Executor, Session
from torchstone.runs.devices import resolve_device
from torchstone.schema import Job

QUEUE_SIZE = 256
"""Submissions that may be waiting or under way; one more waits for a place."""
IDLE_SECONDS = 60.0
"""Without work for this long, judge processes end, which frees device memory. They start again on demand."""


class Judge:
    """Judges kernels for as long as it is open: ``with Judge() as judge: judge.evaluate(kernel, operator)``.

    Settings given here are the defaults of every call. Those of `OF_PROCESSES` cannot differ between calls.
    """

    def __init__(
        self,
        *,
        queue_size: int = QUEUE_SIZE,
        idle_seconds: float = IDLE_SECONDS,
        executor: str | Executor = "local",
        **settings: Any,
    ) -> None:
        if queue_size < 1:
            raise UsageError(f"queue_size is {queue_size}; it must be 1 or more.")
        named = executor if isinstance(executor, str) else "local"
        self._settings = changed(Settings(), {**settings, "executor": named})
        self._device = resolve_device(self._settings.device)
        self._options = executor_options(self._settings, self._device, idle_seconds)
        self._given_executor = None if isinstance(executor, str) else executor
        self._queue_size = queue_size
        self._places = Places(queue_size)
        self._lock = threading.Lock()
        self._dispatch: _Dispatch | None = None
        self._closed = False
        self._pid = os.getpid()
        _JUDGES.add(self)

    # ---- one kernel

    def submit(
        self,
        kernel: Kernel,
        operator: str | None = None,
        *,
        purpose: Purpose = "evaluate",
        entry: str | None = None,
        files: Files = (),
        **settings: Any,
    ) -> Future[Evaluation]:
        """Judge the kernel when its turn comes. Waits while the queue is full. Cancelling the future withdraws it."""
        return self._admit(self._prepared(kernel, operator, purpose, entry, files, settings))

    @overload
    def check(self, kernel: Kernel, operator: str | None = ..., **given: Any) -> Evaluation: ...
    @overload
    def check(self, kernel: Sequence[Kernel], operator: str | None = ..., **given: Any) -> list[Evaluation]: ...
    def check(self, kernel: Any, operator: str | None = None, **given: Any) -> Any:
        """Is it right? Every case is judged, nothing is timed. A list of candidates gives a list."""
        return self._now(kernel, operator, "check", given)

    @overload
    def measure(self, kernel: Kernel, operator: str | None = ..., **given: Any) -> Evaluation: ...
    @overload
    def measure(self, kernel: Sequence[Kernel], operator: str | None = ..., **given: Any) -> list[Evaluation]: ...
    def measure(self, kernel: Any, operator: str | None = None, **given: Any) -> Any:
        """How fast is it? Only cases that are meant for timing. A list of candidates gives a list."""
        return self._now(kernel, operator, "measure", given)

    @overload
    def evaluate(self, kernel: Kernel, operator: str | None = ..., **given: Any) -> Evaluation: ...
    @overload
    def evaluate(self, kernel: Sequence[Kernel], operator: str | None = ..., **given: Any) -> list[Evaluation]: ...
    def evaluate(self, kernel: Any, operator: str | None = None, **given: Any) -> Any:
        """Both. A list of candidates gives a list of evaluations in the same order."""
        return self._now(kernel, operator, "evaluate", given)

    async def aevaluate(
        self,
        kernel: Kernel,
        operator: str | None = None,
        *,
        purpose: Purpose = "evaluate",
        entry: str | None = None,
        files: Files = (),
        **settings: Any,
    ) -> Evaluation:
        """The same for tasks: nothing blocks the event loop. Cancelling the task withdraws the kernel."""
        prepared = await asyncio.to_thread(self._prepared, kernel, operator, purpose, entry, files, settings)
        if isinstance(prepared, Evaluation):
            return prepared
        self._refuse_if_closed()
        asked = self._places.ask()
        try:
            await asyncio.wrap_future(asked)
        except asyncio.CancelledError:
            if not asked.cancel() and asked.exception() is None:
                self._places.leave()  # the place came in the same moment
            raise
        return await asyncio.wrap_future(self._enter(prepared))

    # ---- many kernels

    def stream(
        self, kernels: Iterable[Kernel | tuple[Kernel, str]], operator: str | None = None, **given: Any
    ) -> Iterator[tuple[int, Evaluation]]:
        """Evaluations as they finish, each with the place of its kernel in ``kernels``.

        An item is a kernel, or a kernel and its operator. Items are read in the calling thread, as far ahead as the
        queue has room. Leaving the loop cancels what is left.
        """
        pending: dict[Future[Evaluation], int] = {}
        try:
            for index, item in enumerate(kernels):
                kernel, name = item if isinstance(item, tuple) else (item, operator)
                if len(pending) >= self._queue_size:
                    yield from _finished(pending, block=True)
                pending[self.submit(kernel, name, **given)] = index
                yield from _finished(pending, block=False)
            while pending:
                yield from _finished(pending, block=True)
        finally:
            for future in pending:
                future.cancel()

    def evaluate_many(
        self, kernels: Mapping[str, Kernel], *, files: Files = (), purpose: Purpose = "evaluate", **settings: Any
    ) -> dict[str, Evaluation]:
        """A kernel for each operator. The files go with every one."""
        files = files if isinstance(files, (Mapping, str, Path)) else tuple(files)
        offered = {name: as_implementation(kernel, name, files=files) for name, kernel in kernels.items()}
        made = submissions_for(offered, self._changed(settings), self._device, purpose)
        futures = {name: self._admit(each) for name, each in made.items() if each.jobs}
        results = dict(zip(futures, _results(list(futures.values())), strict=True))
        return {name: results.get(name, Evaluation(name, ())) for name in kernels}

    def _now(self, kernel: Any, operator: str | None, purpose: Purpose, given: dict[str, Any]) -> Any:
        self._refuse_own_thread()
        several = isinstance(kernel, Sequence) and not isinstance(kernel, str)
        futures = [self.submit(each, operator, purpose=purpose, **given) for each in (kernel if several else [kernel])]
        results = _results(futures)
        return results if several else results[0]

    def has_cases(self, operator: str, **settings: Any) -> bool:
        """Whether a kernel of this operator could be judged: the suite, or the cases, have some."""
        return has_cases(operator, self._changed(settings), self._device)

    # ---- from kernel to future

    def _changed(self, given: Mapping[str, Any]) -> Settings:
        settings = changed(self._settings, given) if given else self._settings
        fixed = [name for name in OF_PROCESSES if getattr(settings, name) != getattr(self._settings, name)]
        if fixed:
            raise UsageError(f"{', '.join(fixed)} cannot differ between calls. Make another Judge for it.")
        return settings

    def _prepared(
        self,
        kernel: Kernel,
        operator: str | None,
        purpose: Purpose,
        entry: str | None,
        files: Files,
        given: Mapping[str, Any],
    ) -> Submission | Evaluation:
        """The kernel with its jobs, or its evaluation if that is kept."""
        self._refuse_if_closed()
        settings = self._changed(given)
        name = operator_of(settings.cases) if operator is None else operator
        offered = {name: as_implementation(kernel, name, entry, files)}
        submission = submissions_for(offered, settings, self._device, purpose)[name]
        if settings.verdict_cache is None:
            return submission
        cache, key = VerdictCache(settings.verdict_cache), cache_key(submission.jobs, settings, self._device)
        return cache.get(name, key) or replace(submission, keep=partial(cache.keep, key))

    def _admit(self, prepared: Submission | Evaluation) -> Future[Evaluation]:
        if isinstance(prepared, Evaluation):
            done: Future[Evaluation] = Future()
            done.set_result(prepared)
            return done
        self._refuse_if_closed()
        asked = self._places.ask()
        if not asked.done():
            self._refuse_own_thread()
        try:
            asked.result()
        except BaseException:  # Ctrl-C while waiting
            if not asked.cancel() and asked.exception() is None:
                self._places.leave()
            raise
        return self._enter(prepared)

    def _enter(self, submission: Submission) -> Future[Evaluation]:
        """Begin. The caller has a place, which the end of the future gives back."""
        with self._lock:
            try:
                self._refuse_if_closed()
                if self._dispatch is None or self._dispatch.ended:
                    self._dispatch = _Dispatch(self._executor().open())
                dispatch = self._dispatch
                dispatch.add(submission)
            except BaseException:
                self._places.leave()
                raise
        submission.future.add_done_callback(lambda future: self._settled(dispatch, submission))
        return submission.future

    def _settled(self, dispatch: _Dispatch, submission: Submission) -> None:
        self._places.leave()
        if submission.future.cancelled():
            dispatch.withdraw(submission)

    def _executor(self) -> Executor:
        if self._given_executor is not None:
            return self._given_executor
        made: Executor = registry.executors.factory(self._settings.executor)(self._options)
        return made

    # ---- the end

    def close(self) -> None:
        """End every process. Futures that wait are cancelled. A closed judge takes no more kernels."""
        if self._pid != os.getpid():
            return  # the processes are those of the parent
        with self._lock:
            self._closed = True
            dispatch, self._dispatch = self._dispatch, None
        self._places.fail(UsageError("the judge was closed while this submission waited for a place."))
        if dispatch is not None:
            dispatch.close()

    def _refuse_if_closed(self) -> None:
        if self._pid != os.getpid():
            raise UsageError("this Judge belongs to the process that made it. Make one in the child process.")
        if self._closed:
            raise UsageError("this Judge is closed. Make another.")

    def _refuse_own_thread(self) -> None:
        dispatch = self._dispatch
        if dispatch is not None and threading.current_thread() is dispatch.thread:
            raise UsageError("a callback of a future must not wait for the judge. Submit from another thread.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)


_JUDGES: weakref.WeakSet[Judge] = weakref.WeakSet()


def close_all() -> None:
    """Close every judge of this process."""
    for judge in tuple(_JUDGES):
        judge.close()


class _Dispatch:
    """A session, the thread that iterates it, and who waits for its jobs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._in_flight = InFlight()
        self.ended = False
        self.thread = threading.Thread(target=self._serve, name="torchstone-judge", daemon=True)
        self.thread.start()

    def add(self, submission: Submission) -> None:
        with self._lock:
            if self.ended:
                raise InfrastructureError("the judges ended at this moment. Submit the kernel again.")
            self._session.submit(self._in_flight.add(submission))

    def withdraw(self, submission: Submission) -> None:
        with self._lock:
            unwanted: list[Job] = self._in_flight.remove(submission)
            if unwanted and not self.ended:
                self._session.withdraw(unwanted)

    def close(self) -> None:
        with self._lock:
            self.ended = True
            waiting = self._in_flight.clear()
        self._session.close()
        if threading.current_thread() is not self.thread:
            self.thread.join()
        for submission in waiting:
            submission.future.cancel()

    def _serve(self) -> None:
        failure: TorchstoneError
        try:
            for job, record in self._session:
                with self._lock:
                    complete = self._in_flight.answer(job, record)
                for submission in complete:
                    submission.resolve()
            return
        except TorchstoneError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - futures must not wait for ever because of a fault of ours
            failure = InfrastructureError(f"the judges cannot go on ({type(error).__name__}: {error}).")
        with self._lock:
            self.ended = True
            waiting = self._in_flight.clear()
        self._session.close()
        for submission in waiting:
            if submission.future.set_running_or_notify_cancel():
                submission.future.set_exception(failure)


def _finished(pending: dict[Future[Evaluation], int], block: bool) -> Iterator[tuple[int, Evaluation]]:
    """Those that are done, taken out of ``pending``; waits for the first if asked to."""
    done = wait(pending, return_when=FIRST_COMPLETED, timeout=None if block else 0).done
    for future in sorted(done, key=lambda each: pending[each]):
        yield pending.pop(future), future.result()


def _results(futures: list[Future[Evaluation]]) -> list[Evaluation]:
    """All results in order. Whatever interrupts the wait cancels the rest."""
    try:
        return [future.result() for future in futures]
    except BaseException:
        for future in futures:
            future.cancel()
        raise
