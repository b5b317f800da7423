"""One candidate before the judge: its worker, the stage it is in and the time left, and the one way to call it.

Everything that is ever asked of a candidate goes through :meth:`Hearing.call_and_verify`. What goes wrong on the
candidate's side leaves as one of :data:`FAILURES` or as a :class:`VerdictError`; what goes wrong on ours as another
exception, and the job is tried again.
"""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from torchstone import schema
from torchstone.court import wording
from torchstone.court.courtroom import Courtroom, Outcome
from torchstone.court.evidence import BLOCK_GUARDS
from torchstone.court.layout import Layout
from torchstone.court.stand import CandidateFailedError, Stand
from torchstone.judging import Agreement, DrawnCall, Expected, Mismatch, Reference, compare_many, draw_calls, worst_of
from torchstone.workers.handle import BadReplyError, OverLimitError, OverranError, Worker, WorkerEndedError
from torchstone.workers.protocol import Failed, Load

HOUSEKEEPING_SECONDS = 30.0
"""For what the judge asks of a worker besides the candidate's own work."""
FAILURES = (OverranError, WorkerEndedError, BadReplyError, OverLimitError, CandidateFailedError)
"""Every way in which asking a worker can end without an answer."""

T = TypeVar("T")


class WorkerLostError(Exception):
    """The candidate's worker ended as if it or its warden had been killed from outside."""


class VerdictError(Exception):
    """The verdict is clear before the end of the trial."""

    def __init__(self, verdict: schema.Verdict) -> None:
        self.verdict = verdict


class Hearing:
    """The candidate of one job."""

    def __init__(self, job: schema.Job, room: Courtroom) -> None:
        self.job = job
        self.room = room
        self.stage: schema.Stage = "start"
        self.outcome = Outcome()
        self.errors = schema.ErrorStatistics()
        self.verified = 0
        self._limit_seconds = self._left_seconds = HOUSEKEEPING_SECONDS
        self._worker: Worker | None = None

    @property
    def worker(self) -> Worker:
        assert self._worker is not None, "a worker is taken before it is asked"
        return self._worker

    @property
    def has_worker(self) -> bool:
        return self._worker is not None

    def take_worker(self) -> None:
        """The worker that has the candidate loaded, or a fresh one that loads it now."""
        worker, fresh = self.room.worker_for(self.job.implementation)
        self._worker = worker
        self.outcome.layers = worker.layers
        worker.clear_log()
        if not fresh:
            return
        with self.in_stage("load", self.job.deadlines.load_seconds):
            command = Load(secrets.token_hex(8), self.job.implementation)
            reply = self.allow(lambda deadline: worker.ask(command, deadline))
            worker.freeze()  # until it is bound: what it starts while it loads must not run on
            if isinstance(reply, Failed):
                raise CandidateFailedError(reply)
        worker.candidate_key = self.job.implementation.key

    @contextmanager
    def standing(self, case: schema.Case, layout: Layout, sets: int) -> Iterator[Stand]:
        """The candidate bound to a case. If anything goes wrong inside, its worker is not used again."""
        stand = Stand(self.worker, case, layout, sets, self.room.device)
        try:
            self.allow(stand.bind)
            yield stand
        except BaseException:
            self.dismiss()  # a worker that may still see the buffers must be gone before they are freed
            raise
        finally:
            stand.close()

    def draw(self, reference: Reference, count: int, calibrate: bool = True) -> tuple[list[DrawnCall], list[Expected]]:
        """Fresh calls from the system's randomness, and what they must give."""
        calls = draw_calls(reference.case, secrets.randbits(63), count, self.room.device)
        return calls, reference.expect_many(calls, with_bounds=calibrate)

    def call_and_verify(self, stand: Stand, calls: list[DrawnCall], expected: list[Expected]) -> tuple[int, int]:
        """Present, call, copy, compare. Every call that is ever made of a candidate goes through here."""
        stand.present(calls)
        testimony = self.allow(lambda deadline: stand.call(len(calls), deadline))
        done = testimony.done
        if done.odd_call is not None:
            raise VerdictError(wording.odd_structure(self.stage, expected[done.odd_call], done))
        for guard in BLOCK_GUARDS:
            objection = guard.examine(testimony)
            if objection is not None:
                replay = None if objection.call is None else wording.replay_of(calls[objection.call])
                raise VerdictError(schema.Disagrees(self.stage, objection.reason, objection.message, replay=replay))
        outputs = [testimony.outputs(index) for index in range(len(calls))]
        inputs_after = [testimony.inputs_after(index) for index in range(len(calls))]
        match compare_many(expected, outputs, inputs_after):
            case Mismatch(reason=reason, message=message, errors=errors, call=index):
                replay = wording.replay_of(expected[index].call)
                raise VerdictError(schema.Disagrees(self.stage, reason, message, errors, replay))
            case Agreement(errors=errors):
                self.errors = worst_of(self.errors, errors)
                self.verified += len(calls)
        return testimony.elapsed_ns, done.claimed_ns

    @contextmanager
    def in_stage(self, stage: schema.Stage, limit_seconds: float) -> Iterator[None]:
        """What is asked of the worker inside has this much time, all together."""
        self.stage, began = stage, time.monotonic()
        self._limit_seconds = self._left_seconds = limit_seconds
        try:
            yield
        finally:
            before = self.outcome.stage_seconds.get(stage, 0.0)
            self.outcome.stage_seconds[stage] = round(before + time.monotonic() - began, 6)

    def allow(self, action: Callable[[float], T]) -> T:
        """Let the worker act, on what is left of the stage's time. The judge's own work is not charged to it."""
        self.room.signs_of_life += 1
        began = time.monotonic()
        try:
            return action(began + self._left_seconds)
        finally:
            self._left_seconds -= time.monotonic() - began

    def dismiss(self) -> None:
        """The candidate's worker is not used again; its log is kept first."""
        self.take_log()
        if self._worker is not None:
            self.room.dismiss_candidate()

    def take_log(self) -> None:
        if self._worker is not None:
            self.outcome.log_tail = self._worker.log_tail

    def verdict_for(self, failure: Exception) -> schema.Verdict:
        """What a failure of the candidate's side means."""
        stage = self.stage
        match failure:
            case OverranError():
                elapsed = self._limit_seconds - self._left_seconds
                return schema.TimedOut(stage, self._limit_seconds, round(elapsed, 3))
            case BadReplyError():
                return schema.Cheated(stage, "reply", str(failure))
            case OverLimitError(kind="processes"):
                return schema.Crashed(stage, "processes", f"stopped: {failure}")
            case OverLimitError():
                return schema.Crashed(stage, "memory", f"stopped: {failure}")
            case CandidateFailedError(failure=reply):
                return wording.verdict_for_reply(stage, reply)
            case WorkerEndedError(ending=ending):
                if ending is None or ending.signal_number == signal.SIGKILL:
                    raise WorkerLostError("the worker was killed from outside") from failure
                return wording.verdict_for_ending(stage, ending.exit_code, ending.signal_number)
        raise AssertionError(f"no verdict for {failure!r}")
