"""A long-lived judge: kernels can be submitted at any time, from many threads or tasks.

A `Judge` owns one session of an executor and one thread, which passes every record to the submissions that wait for
it. If the session fails, every waiting future gets the error, and the next submission opens a new session.
"""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, overload

from torchstone import registry
from torchstone.api.context_manager_base import ContextManagerBase
from torchstone.api.evaluation import Evaluation
from torchstone.api.executor_thread import ExecutorThread
from torchstone.api.jobs_for_kernels import (
    Purpose,
    Submission,
    has_cases,
    operator_named,
    operator_of,
    require_cases,
    submissions_for,
    unused_in,
)
from torchstone.api.kernel_argument import Kernel, as_implementation
from torchstone.api.operator_argument import OperatorName, written_name
from torchstone.api.settings import OF_PROCESSES, Settings, changed, executor_options
from torchstone.api.submission_slots import SubmissionSlots
from torchstone.api.verdict_cache import VerdictCache, cache_key
from torchstone.backends import Backend, Problem
from torchstone.backends.accompanying_files import Files
from torchstone.errors import InfrastructureError, UsageError
from torchstone.executors import Executor, Site, session_of
from torchstone.runs.devices import find_site

QUEUE_SIZE = 256
"""Most submissions that are queued or being judged. A further one waits until one of them ends."""
_MOST_SESSIONS_TRIED = 3
"""Most sessions to which a submission is given: a session may end at the moment at which the submission comes."""
IDLE_SECONDS = 60.0
"""Judge processes end after so long without work, which frees device memory. They start again on demand."""


class Judge(ContextManagerBase):
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
        if not isinstance(queue_size, int) or queue_size < 1:
            raise UsageError(f"queue_size is {queue_size!r}; it must be a number, 1 or more.")
        named = executor if isinstance(executor, str) else "local"
        self._settings = changed(Settings(), {**settings, "executor": named})
        self._executor_object = None if isinstance(executor, str) else executor
        factory = executor if self._executor_object is not None else registry.executors.factory(named)
        asked = executor_options(self._settings, self._settings.device, idle_seconds)
        self._site = find_site(factory, asked)
        self._device = self._site.device
        for message in self._site.warnings:
            warnings.warn(message, stacklevel=2)
        self._options = executor_options(self._settings, self._device, idle_seconds)
        self._queue_size = queue_size
        self._slots = SubmissionSlots(queue_size)
        self._lock = threading.Lock()
        self._session_thread: ExecutorThread | None = None
        self._closed = False
        self._pid = os.getpid()
        _JUDGES.add(self)

    @property
    def device(self) -> str:
        """The device on which kernels are judged: ``cpu``, ``cuda`` or ``cuda:N``."""
        return self._device

    @property
    def site(self) -> Site:
        """The machines that judge, as they described themselves when this object was made."""
        return self._site

    @property
    def in_flight(self) -> int:
        """Number of submissions that are queued or being judged: at most `queue_size`."""
        return self._slots.taken

    # ---- one kernel

    def submit(
        self,
        kernel: Kernel,
        operator: OperatorName | None = None,
        *,
        purpose: Purpose = "evaluate",
        entry: str | None = None,
        files: Files = (),
        **settings: Any,
    ) -> Future[Evaluation]:
        """Judge the kernel when its turn comes. Waits while the queue is full. Cancelling the future withdraws it."""
        return self._begin_when_slot_is_free(
            self._submission_or_evaluation(kernel, operator, purpose, entry, files, settings)
        )

    @overload
    def check(self, kernel: Kernel, operator: OperatorName | None = ..., **given: Any) -> Evaluation: ...
    @overload
    def check(
        self, kernel: Sequence[Kernel], operator: OperatorName | None = ..., **given: Any
    ) -> list[Evaluation]: ...
    def check(self, kernel: Any, operator: OperatorName | None = None, **given: Any) -> Any:
        """Is it right? Every case is judged, nothing is timed. A list of candidates gives a list."""
        return self._submit_and_wait(kernel, operator, "check", given)

    @overload
    def measure(self, kernel: Kernel, operator: OperatorName | None = ..., **given: Any) -> Evaluation: ...
    @overload
    def measure(
        self, kernel: Sequence[Kernel], operator: OperatorName | None = ..., **given: Any
    ) -> list[Evaluation]: ...
    def measure(self, kernel: Any, operator: OperatorName | None = None, **given: Any) -> Any:
        """How fast is it? Only cases that are meant for timing. A list of candidates gives a list."""
        return self._submit_and_wait(kernel, operator, "measure", given)

    @overload
    def evaluate(self, kernel: Kernel, operator: OperatorName | None = ..., **given: Any) -> Evaluation: ...
    @overload
    def evaluate(
        self, kernel: Sequence[Kernel], operator: OperatorName | None = ..., **given: Any
    ) -> list[Evaluation]: ...
    def evaluate(self, kernel: Any, operator: OperatorName | None = None, **given: Any) -> Any:
        """Both. A list of candidates gives a list of evaluations in the same order."""
        return self._submit_and_wait(kernel, operator, "evaluate", given)

    async def aevaluate(
        self,
        kernel: Kernel,
        operator: OperatorName | None = None,
        *,
        purpose: Purpose = "evaluate",
        entry: str | None = None,
        files: Files = (),
        **settings: Any,
    ) -> Evaluation:
        """`evaluate` for asyncio: nothing blocks the event loop. Cancelling the task withdraws the kernel."""
        prepared = await asyncio.to_thread(
            self._submission_or_evaluation, kernel, operator, purpose, entry, files, settings
        )
        if isinstance(prepared, Evaluation):
            return prepared
        self._require_open()
        asked = self._slots.request()
        try:
            await asyncio.wrap_future(asked)
        except asyncio.CancelledError:
            if not asked.cancel() and asked.exception() is None:
                self._slots.release()  # the slot was assigned at the same moment
            raise
        return await asyncio.wrap_future(self._begin(prepared))

    # ---- many kernels

    def stream(
        self,
        kernels: Iterable[Kernel | tuple[Kernel, OperatorName]],
        operator: OperatorName | None = None,
        **given: Any,
    ) -> Iterator[tuple[int, Evaluation]]:
        """Evaluations as they finish, each with the index of its kernel in ``kernels``.

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
        self,
        kernels: Mapping[OperatorName, Kernel],
        *,
        files: Files = (),
        purpose: Purpose = "evaluate",
        **settings: Any,
    ) -> dict[str, Evaluation]:
        """Evaluate a kernel for each operator. Returns evaluations by name. ``files`` are sent with every kernel."""
        files = files if isinstance(files, (Mapping, str, Path)) else tuple(files)
        chosen = self._settings_of_call(settings)
        names = {written_name(each): operator_named(each, chosen, self._device) for each in kernels}
        if len(set(names.values())) < len(kernels):
            raise UsageError(f"two of these names are the same operator: {', '.join(names)}. Give each one once.")
        given = zip(names.values(), kernels.values(), strict=True)
        offered = {name: as_implementation(kernel, name, files=files) for name, kernel in given}
        made = submissions_for(offered, chosen, self._device, purpose)
        futures = {
            name: self._begin_when_slot_is_free(self._cached_or_submission(name, each, chosen))
            for name, each in made.items()
            if each.jobs
        }
        results = dict(zip(futures, _results(list(futures.values())), strict=True))
        return {written: results.get(name, Evaluation(name, ())) for written, name in names.items()}

    def _submit_and_wait(
        self, kernel: Any, operator: OperatorName | None, purpose: Purpose, given: dict[str, Any]
    ) -> Any:
        self._require_other_thread()
        several = isinstance(kernel, Sequence) and not isinstance(kernel, str)
        futures = [self.submit(each, operator, purpose=purpose, **given) for each in (kernel if several else [kernel])]
        results = _results(futures)
        return results if several else results[0]

    def has_cases(self, operator: str, **settings: Any) -> bool:
        """Whether there are cases for this operator, so that a kernel of it could be judged."""
        return has_cases(operator, self._settings_of_call(settings), self._device)

    def require_cases(self, *operators: str) -> None:
        """Raise unless each name is that of an operator with cases."""
        require_cases(operators, self._settings, self._device)

    def unused_kernels(self, backend: Backend) -> tuple[Problem, ...]:
        """Kernels of the backend for which the suite has no case, each with the reason."""
        return unused_in(backend, self._settings, self._device)

    # ---- from kernel to future

    def _settings_of_call(self, given: Mapping[str, Any]) -> Settings:
        """The judge's settings with those of a call. Raises UsageError for one that is fixed for all calls."""
        settings = changed(self._settings, given) if given else self._settings
        fixed = [name for name in OF_PROCESSES if getattr(settings, name) != getattr(self._settings, name)]
        if fixed:
            raise UsageError(f"{', '.join(fixed)} cannot differ between calls. Make another Judge for it.")
        return settings

    def _submission_or_evaluation(
        self,
        kernel: Kernel,
        operator: OperatorName | None,
        purpose: Purpose,
        entry: str | None,
        files: Files,
        given: Mapping[str, Any],
    ) -> Submission | Evaluation:
        """The kernel's submission, or its evaluation if that is in the verdict cache."""
        self._require_open()
        settings = self._settings_of_call(given)
        given_name = operator_of(settings.cases) if operator is None else operator
        name = operator_named(given_name, settings, self._device)
        offered = {name: as_implementation(kernel, name, entry, files)}
        return self._cached_or_submission(
            name, submissions_for(offered, settings, self._device, purpose)[name], settings
        )

    def _cached_or_submission(
        self, operator: str, submission: Submission, settings: Settings
    ) -> Submission | Evaluation:
        """The evaluation if the verdict cache has it, else the submission, which will store its evaluation there."""
        if settings.verdict_cache is None:
            return submission
        cache = VerdictCache(settings.verdict_cache)
        key = cache_key(submission.jobs, settings, self._device, self._site.nodes)
        return cache.get(operator, key) or replace(submission, keep=partial(cache.keep, key))

    def _begin_when_slot_is_free(self, prepared: Submission | Evaluation) -> Future[Evaluation]:
        """Wait for a free slot and begin. An evaluation from the cache needs no slot."""
        if isinstance(prepared, Evaluation):
            done: Future[Evaluation] = Future()
            done.set_result(prepared)
            return done
        self._require_open()
        asked = self._slots.request()
        if not asked.done():
            self._require_other_thread()
        try:
            asked.result()
        except BaseException:  # Ctrl-C while waiting
            if not asked.cancel() and asked.exception() is None:
                self._slots.release()
            raise
        return self._begin(prepared)

    def _begin(self, submission: Submission) -> Future[Evaluation]:
        """Give the submission to a session. The caller holds a slot, which is released when the future is done."""
        with self._lock:
            try:
                self._require_open()
                session_thread = self._session_thread_for(submission)
            except BaseException:
                self._slots.release()
                raise
        submission.future.add_done_callback(lambda future: self._release_slot(session_thread, submission))
        return submission.future

    def _session_thread_for(self, submission: Submission) -> ExecutorThread:
        """Give the submission to the open session, or to a new one if that has just ended. Returns its thread."""
        for _ in range(_MOST_SESSIONS_TRIED):
            if self._session_thread is None or self._session_thread.ended:
                self._session_thread = ExecutorThread(session_of(self._executor()))
            if self._session_thread.add(submission):
                return self._session_thread
        raise InfrastructureError("the judges end as soon as they are started. See 'torchstone doctor'.")

    def _release_slot(self, session_thread: ExecutorThread, submission: Submission) -> None:
        self._slots.release()
        if submission.future.cancelled():
            session_thread.withdraw(submission)

    def _executor(self) -> Executor:
        if self._executor_object is not None:
            return self._executor_object
        made: Executor = registry.executors.factory(self._settings.executor)(self._options)
        return made

    # ---- the end

    def close(self) -> None:
        """End every process. Futures that wait are cancelled. A closed judge takes no more kernels."""
        if self._pid != os.getpid():
            return  # after a fork, the processes belong to the parent
        with self._lock:
            self._closed = True
            session_thread, self._session_thread = self._session_thread, None
        self._slots.fail(UsageError("the judge was closed while this submission waited for a place."))
        if session_thread is not None:
            session_thread.close()

    def _require_open(self) -> None:
        if self._pid != os.getpid():
            raise UsageError("this Judge belongs to the process that made it. Make one in the child process.")
        if self._closed:
            raise UsageError("this Judge is closed. Make another.")

    def _require_other_thread(self) -> None:
        """Raise UsageError in the thread that completes futures: it would wait for itself for ever."""
        session_thread = self._session_thread
        if session_thread is not None and threading.current_thread() is session_thread.thread:
            raise UsageError("a callback of a future must not wait for the judge. Submit from another thread.")


_JUDGES: weakref.WeakSet[Judge] = weakref.WeakSet()


def close_all() -> None:
    """Close every judge of this process."""
    for judge in tuple(_JUDGES):
        judge.close()


def _finished(pending: dict[Future[Evaluation], int], block: bool) -> Iterator[tuple[int, Evaluation]]:
    """Yield the finished evaluations and remove them from ``pending``. With ``block``, wait for at least one."""
    done = wait(pending, return_when=FIRST_COMPLETED, timeout=None if block else 0).done
    for future in sorted(done, key=lambda each: pending[each]):
        yield pending.pop(future), future.result()


def _results(futures: list[Future[Evaluation]]) -> list[Evaluation]:
    """All results in order. An exception during the wait cancels the other futures."""
    try:
        return [future.result() for future in futures]
    except BaseException:
        for future in futures:
            future.cancel()
        raise
