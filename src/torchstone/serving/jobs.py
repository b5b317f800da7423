"""Background jobs of the service: judge kernels case by case, while the client may ask for progress or cancel."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from torchstone.api import Evaluation, Judge
from torchstone.api.jobs_for_kernels import Purpose
from torchstone.errors import TorchstoneError, UsageError
from torchstone.feedback import feedback_of
from torchstone.reports.safe_text import one_line
from torchstone.schema import Agrees, Case, Implementation, Record, SourceFiles
from torchstone.serving.answers import JobAnswer, JobState, KernelAnswer, RecordName

MOST_JOBS = 64
"""Most jobs of a server. To make room for a new one, the oldest that have ended are removed."""
_KEY_BYTES = 4
"""Random bytes of a job's key."""
_ERROR_CHARACTERS = 600
"""Most characters of a job's error."""


class KernelOnCases:
    """One kernel, the cases on which it is judged, and the records so far."""

    def __init__(self, implementation: Implementation, cases: tuple[Case, ...], where: str) -> None:
        self.implementation, self.cases, self.where = implementation, cases, where
        self.records: list[Record] = []

    @property
    def source(self) -> SourceFiles | None:
        origin = self.implementation.origin
        return origin if isinstance(origin, SourceFiles) else None

    def answer(self) -> KernelAnswer:
        records = tuple(self.records)
        names = tuple(
            RecordName(each.job_key, each.case.operator, each.case.label, isinstance(each.verdict, Agrees))
            for each in records
        )
        feedback = feedback_of(records, source=self.source)
        return KernelAnswer(self.implementation.operator, self.where, feedback, names)


class JudgingJob:
    """Judges kernels case by case. Its methods may be called from any thread."""

    def __init__(self, kernels: Sequence[KernelOnCases], purpose: Purpose, settings: dict[str, Any]) -> None:
        self.key = secrets.token_hex(_KEY_BYTES)
        self._kernels, self._purpose, self._settings = tuple(kernels), purpose, settings
        self._lock = threading.Lock()
        self._futures: list[Future[Evaluation]] = []
        self._cases_left = sum(len(kernel.cases) for kernel in kernels)
        self._total = self._cases_left
        self._state: JobState = "running"
        self._error = ""
        self._began = time.monotonic()
        self._ended: float | None = None

    def start(self, judge: Judge) -> None:
        """Submit every case to the judge, in a thread of its own: submitting waits while the judge's queue is full."""
        threading.Thread(target=self._submit, args=(judge,), name=f"torchstone-job-{self.key}", daemon=True).start()

    def _submit(self, judge: Judge) -> None:
        try:
            for kernel in self._kernels:
                for case in kernel.cases:
                    self._submit_case(judge, kernel, case)
        except TorchstoneError as error:
            self._end("failed", str(error))
        except Exception as error:  # noqa: BLE001 - a job must not run for ever because of an error in Torchstone
            self._end("failed", f"the kernels cannot be handed to the judge ({type(error).__name__}: {error}).")

    def _submit_case(self, judge: Judge, kernel: KernelOnCases, case: Case) -> None:
        if self._state != "running":
            return
        purpose = self._purpose if case.timed else "check"
        implementation = kernel.implementation
        future = judge.submit(implementation, implementation.operator, purpose=purpose, cases=(case,), **self._settings)
        with self._lock:
            self._futures.append(future)
        future.add_done_callback(lambda done: self._add_result(kernel, done))
        if self._state != "running":  # cancelled at this moment
            future.cancel()

    def _add_result(self, kernel: KernelOnCases, future: Future[Evaluation]) -> None:
        if future.cancelled():  # by `_end`, after which this changes nothing, or by the judge
            self._end("failed", "the judge was closed before it had judged every case.")
            return
        error = future.exception()
        if error is not None:
            self._end("failed", str(error))
            return
        with self._lock:
            kernel.records += future.result().records
            self._cases_left -= 1
            ended = self._cases_left == 0
        if ended:
            self._end("finished")

    def _end(self, state: JobState, error: str = "") -> None:
        with self._lock:
            if self._state != "running":
                return
            self._state, self._error = state, one_line(error, limit=_ERROR_CHARACTERS)
            self._ended = time.monotonic()
            waiting = list(self._futures)
        for future in waiting:
            future.cancel()

    def cancel(self) -> None:
        """Withdraw the cases that are not judged yet. The records so far are kept."""
        self._end("cancelled")

    @property
    def is_over(self) -> bool:
        return self._state != "running"

    @property
    def records(self) -> tuple[tuple[Record, SourceFiles | None], ...]:
        """The records so far, each with the source of its kernel."""
        with self._lock:
            return tuple((record, kernel.source) for kernel in self._kernels for record in kernel.records)

    def answer(self) -> JobAnswer:
        """The progress of the job; with its results if it has ended."""
        known = [record for record, _ in self.records]
        elapsed = (self._ended or time.monotonic()) - self._began
        running = self._state == "running"
        left = elapsed / len(known) * self._cases_left if running and known else None
        return JobAnswer(
            job=self.key,
            state=self._state,
            done_cases=len(known),
            total_cases=self._total,
            elapsed_seconds=round(elapsed, 3),
            seconds_left=None if left is None else round(left, 1),
            wrong_cases=sum(not isinstance(record.verdict, Agrees) for record in known),
            error=self._error,
            kernels=() if running else tuple(kernel.answer() for kernel in self._kernels if kernel.records),
        )


class Jobs:
    """The jobs of a server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, JudgingJob] = {}

    def add(self, job: JudgingJob) -> None:
        with self._lock:
            self._make_room()
            self._jobs[job.key] = job

    def _make_room(self) -> None:
        over = [key for key, job in self._jobs.items() if job.is_over]
        for key in over[: max(0, len(self._jobs) - MOST_JOBS + 1)]:
            del self._jobs[key]
        if len(self._jobs) >= MOST_JOBS:
            raise UsageError(f"{len(self._jobs)} jobs are running, and no more fit. Wait for one, or cancel one.")

    def named(self, key: str) -> JudgingJob:
        with self._lock:
            job = self._jobs.get(key)
            known = list(self._jobs)
        if job is None:
            raise UsageError(f"there is no job '{key}'. Known: {', '.join(known[-8:]) or 'none'}.")
        return job

    def all(self) -> Iterable[JudgingJob]:
        """The jobs of the server, the newest first."""
        with self._lock:
            return list(self._jobs.values())[::-1]
