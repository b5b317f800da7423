"""A long-lived judge: kernels can be submitted at any time, from many threads or tasks.

A `Judge` owns one session of an executor and one thread, which hands every record to the submissions that wait for
it. If the machine fails, every future that waits gets the error, and the next submission opens a new session.
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
from torchstone.api.submission_slots import Places
from torchstone.api.verdict_cache import VerdictCache, cache_key
from torchstone.backends import Backend, Problem
from torchstone.backends.accompanying_files import Files
from torchstone.errors import InfrastructureError, UsageError
from torchstone.executors import Executor, Site, session_of
from torchstone.runs.devices import find_site

QUEUE_SIZE = 256
"""Submissions that may be waiting or under way; one more waits for a place."""
_SESSIONS_TRIED = 3
"""For one submission: a session may end in the moment in which it comes."""
IDLE_SECONDS = 60.0
"""Without work for this long, judge processes end, which frees device memory. They start again on demand."""


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
        self._given_executor = None if isinstance(executor, str) else executor
        factory = executor if self._given_executor is not None else registry.executors.factory(named)
        asked = executor_options(self._settings, self._settings.device, idle_seconds)
        self._site = find_site(factory, asked)
        self._device = self._site.device
        for message in self._site.warnings:
            warnings.warn(message, stacklevel=2)
        self._options = executor_options(self._settings, self._device, idle_seconds)
        self._queue_size = queue_size
        self._places = Places(queue_size)
        self._lock = threading.Lock()
        self._dispatch: ExecutorThread | None = None
        self._closed = False
        self._pid = os.getpid()
        _JUDGES.add(self)

    @property
    def device(self) -> str:
        """Where kernels are judged: ``cpu``, ``cuda`` or ``cuda:N``."""
        return self._device

    @property
    def site(self) -> Site:
        """The machines that judge, as they described themselves when this object was made."""
        return self._site

    @property
    def in_flight(self) -> int:
        """Submissions that are waiting or under way: at most `queue_size`."""
        return self._places.taken

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
        return self._admit(self._prepared(kernel, operator, purpose, entry, files, settings))

    @overload
    def check(self, kernel: Kernel, operator: OperatorName | None = ..., **given: Any) -> Evaluation: ...
    @overload
    def check(
        self, kernel: Sequence[Kernel], operator: OperatorName | None = ..., **given: Any
    ) -> list[Evaluation]: ...
    def check(self, kernel: Any, operator: OperatorName | None = None, **given: Any) -> Any:
        """Is it right? Every case is judged, nothing is timed. A list of candidates gives a list."""
        return self._now(kernel, operator, "check", given)

    @overload
    def measure(self, kernel: Kernel, operator: OperatorName | None = ..., **given: Any) -> Evaluation: ...
    @overload
    def measure(
        self, kernel: Sequence[Kernel], operator: OperatorName | None = ..., **given: Any
    ) -> list[Evaluation]: ...
    def measure(self, kernel: Any, operator: OperatorName | None = None, **given: Any) -> Any:
        """How fast is it? Only cases that are meant for timing. A list of candidates gives a list."""
        return self._now(kernel, operator, "measure", given)

    @overload
    def evaluate(self, kernel: Kernel, operator: OperatorName | None = ..., **given: Any) -> Evaluation: ...
    @overload
    def evaluate(
        self, kernel: Sequence[Kernel], operator: OperatorName | None = ..., **given: Any
    ) -> list[Evaluation]: ...
    def evaluate(self, kernel: Any, operator: OperatorName | None = None, **given: Any) -> Any:
        """Both. A list of candidates gives a list of evaluations in the same order."""
        return self._now(kernel, operator, "evaluate", given)

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
        """A kernel for each operator; the answer has the names as text. The files go with every one."""
        files = files if isinstance(files, (Mapping, str, Path)) else tuple(files)
        chosen = self._changed(settings)
        names = {written_name(each): operator_named(each, chosen, self._device) for each in kernels}
        if len(set(names.values())) < len(kernels):
            raise UsageError(f"two of these names are the same operator: {', '.join(names)}. Give each one once.")
        given = zip(names.values(), kernels.values(), strict=True)
        offered = {name: as_implementation(kernel, name, files=files) for name, kernel in given}
        made = submissions_for(offered, chosen, self._device, purpose)
        futures = {name: self._admit(self._kept(name, each, chosen)) for name, each in made.items() if each.jobs}
        results = dict(zip(futures, _results(list(futures.values())), strict=True))
        return {written: results.get(name, Evaluation(name, ())) for written, name in names.items()}

    def _now(self, kernel: Any, operator: OperatorName | None, purpose: Purpose, given: dict[str, Any]) -> Any:
        self._refuse_own_thread()
        several = isinstance(kernel, Sequence) and not isinstance(kernel, str)
        futures = [self.submit(each, operator, purpose=purpose, **given) for each in (kernel if several else [kernel])]
        results = _results(futures)
        return results if several else results[0]

    def has_cases(self, operator: str, **settings: Any) -> bool:
        """Whether a kernel of this operator could be judged: the suite, or the cases, have some."""
        return has_cases(operator, self._changed(settings), self._device)

    def require_cases(self, *operators: str) -> None:
        """Raise unless each name is that of an operator with cases."""
        require_cases(operators, self._settings, self._device)

    def unused_kernels(self, backend: Backend) -> tuple[Problem, ...]:
        """Kernels that the backend holds and the suite has no case for, each with the reason."""
        return unused_in(backend, self._settings, self._device)

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
        operator: OperatorName | None,
        purpose: Purpose,
        entry: str | None,
        files: Files,
        given: Mapping[str, Any],
    ) -> Submission | Evaluation:
        """The kernel with its jobs, or its evaluation if that is in the verdict cache."""
        self._refuse_if_closed()
        settings = self._changed(given)
        given_name = operator_of(settings.cases) if operator is None else operator
        name = operator_named(given_name, settings, self._device)
        offered = {name: as_implementation(kernel, name, entry, files)}
        return self._kept(name, submissions_for(offered, settings, self._device, purpose)[name], settings)

    def _kept(self, operator: str, submission: Submission, settings: Settings) -> Submission | Evaluation:
        """The evaluation if it is in the verdict cache. Otherwise the submission, which will put it there."""
        if settings.verdict_cache is None:
            return submission
        cache = VerdictCache(settings.verdict_cache)
        key = cache_key(submission.jobs, settings, self._device, self._site.nodes)
        return cache.get(operator, key) or replace(submission, keep=partial(cache.keep, key))

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
                dispatch = self._dispatch_with(submission)
            except BaseException:
                self._places.leave()
                raise
        submission.future.add_done_callback(lambda future: self._settled(dispatch, submission))
        return submission.future

    def _dispatch_with(self, submission: Submission) -> ExecutorThread:
        """The session that has the submission: the one that is open, or another if that has just ended."""
        for _ in range(_SESSIONS_TRIED):
            if self._dispatch is None or self._dispatch.ended:
                self._dispatch = ExecutorThread(session_of(self._executor()))
            if self._dispatch.add(submission):
                return self._dispatch
        raise InfrastructureError("the judges end as soon as they are started. See 'torchstone doctor'.")

    def _settled(self, dispatch: ExecutorThread, submission: Submission) -> None:
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


_JUDGES: weakref.WeakSet[Judge] = weakref.WeakSet()


def close_all() -> None:
    """Close every judge of this process."""
    for judge in tuple(_JUDGES):
        judge.close()


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
