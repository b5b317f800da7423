"""Runs an executor's session (local, Ray or Modal judges) in its own thread, and completes the callers' futures."""

from __future__ import annotations

import threading

from torchstone.api.jobs_for_kernels import Submission
from torchstone.api.jobs_in_progress import JobsInProgress
from torchstone.errors import InfrastructureError, TorchstoneError
from torchstone.executors import Session
from torchstone.schema import Job


class ExecutorThread:
    """Owns a session, the thread that reads its records, and the submissions that wait for its jobs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._in_progress = JobsInProgress()
        self.ended = False
        self.thread = threading.Thread(target=self._serve, name="torchstone-judge", daemon=True)
        self.thread.start()

    def add(self, submission: Submission) -> bool:
        """Submit the submission's jobs. Returns False if the session has ended: the submission then needs another."""
        with self._lock:
            if not self.ended:
                self._session.submit(self._in_progress.add(submission))
            return not self.ended

    def withdraw(self, submission: Submission) -> None:
        """Withdraw the jobs of a cancelled submission, except those for which others wait."""
        with self._lock:
            unwanted: list[Job] = self._in_progress.remove(submission)
            if unwanted and not self.ended:
                self._session.withdraw(unwanted)

    def close(self) -> None:
        """End the session and cancel the futures that wait."""
        with self._lock:
            self.ended = True
            waiting = self._in_progress.clear()
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
                    complete = self._in_progress.answer(job, record)
                for submission in complete:
                    submission.resolve()
            return
        except TorchstoneError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - futures must not wait for ever because of an error in Torchstone
            failure = InfrastructureError(f"the judges cannot go on ({type(error).__name__}: {error}).")
        with self._lock:
            self.ended = True
            waiting = self._in_progress.clear()
        self._session.close()
        for submission in waiting:
            if submission.future.set_running_or_notify_cancel():
                submission.future.set_exception(failure)
