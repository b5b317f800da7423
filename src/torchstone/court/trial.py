"""One job from start to verdict: load, compile, check, measure, each with its own deadline.

Reads as the order of events. What goes wrong on the candidate's side is caught once, in :meth:`Trial.conduct`,
and becomes the verdict; what goes wrong on ours leaves as an exception, and the job is tried again.
"""

from __future__ import annotations

import random
import secrets
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

import msgspec
import torch

from torchstone import operators, schema
from torchstone.court.guards import ClockGuard, FloorGuard, Guard, peak_bandwidth
from torchstone.court.lane import Lane
from torchstone.court.stand import CandidateFailedError, Layout, Stand
from torchstone.errors import UsageError
from torchstone.judging import (
    Agreement,
    DrawnCall,
    Expected,
    Mismatch,
    Reference,
    ReferenceFailure,
    compare_many,
    draw_calls,
    hidden_cases,
    worst_of,
)
from torchstone.measuring import needs_confirmation, procedure
from torchstone.measuring.device import DeviceProbe
from torchstone.workers.handle import BadReplyError, OverLimitError, OverranError, Worker, WorkerEndedError
from torchstone.workers.pool import WorkerPool
from torchstone.workers.protocol import Done, Failed, Load, OtherLeaf, PlainLeaf, TensorLeaf

_CHECKED_CALLS: dict[schema.Effort, int] = {"quick": 1, "normal": 3, "thorough": 16}
"""Beside the first call and one more, which are compared against float64; these are as far as need be."""
_HIDDEN_CASES: dict[schema.Effort, int] = {"quick": 1, "normal": 3, "thorough": 10}
"""Variants of a case with other sizes and layouts, each called twice: compared in full, and as far as need be."""
_MOST_SETS = 256
_MOST_RESULTS = 2048
"""In a block: a reply says where each lies, and replies are short."""
_ARENA_BYTES = {"cpu": 64 << 20, "cuda": 1 << 30}
_LOST_WORKERS = 5
"""A worker that was killed from outside is our loss; one that dies so every time is the candidate's doing."""
_HOUSEKEEPING_SECONDS = 30.0
_BUSY_DEVICE_NS = 500_000
"""A quiet device answers in some tens of microseconds; one that another process keeps busy, after a time slice."""
_FAILURES = (OverranError, WorkerEndedError, BadReplyError, OverLimitError, CandidateFailedError)
"""Every way in which asking a worker can end without an answer."""


T = TypeVar("T")


class WorkerLostError(Exception):
    """The candidate's worker ended as if it or its warden had been killed from outside."""


class ReferenceLostError(Exception):
    """The reference's worker failed: nothing that a candidate could have done."""


class DeviceBusyError(Exception):
    """Somebody else uses the device: a time taken now would mean nothing."""


class _VerdictError(Exception):
    """The verdict is clear before the end of the trial."""

    def __init__(self, verdict: schema.Verdict) -> None:
        self.verdict = verdict


class Outcome:
    """What a trial brought to light besides the verdict."""

    def __init__(self) -> None:
        self.measurement: schema.Measurement | None = None
        self.stage_seconds: dict[str, float] = {}
        self.attribution: schema.Attribution | None = None
        self.layers: tuple[schema.Layer, ...] = ()
        self.log_tail = ""


class Courtroom:
    """What all trials of a judge share: workers, the lane, the device."""

    def __init__(self, pool: WorkerPool, lane: Lane, device: torch.device, threads: int, probe: DeviceProbe) -> None:
        self.pool = pool
        self.lane = lane
        self.device = device
        self.threads = threads
        self.probe = probe
        self._candidate_worker: Worker | None = None
        self._reference_worker: Worker | None = None
        self.profiled: set[str] = set()
        """Candidates whose device kernels have been looked at."""
        self._failed_loads: dict[str, tuple[schema.Verdict, Outcome]] = {}

    @cached_property
    def peak_bytes_per_second(self) -> float:
        """Measured once per session, when it is first asked for."""
        return peak_bandwidth(self.device)

    def worker_for(self, implementation: schema.Implementation) -> tuple[Worker, bool]:
        """The worker that has this candidate loaded, or a fresh one; and whether it is fresh."""
        current = self._candidate_worker
        if current is not None and current.candidate_key == implementation.key:
            return current, False
        self.dismiss_candidate()
        worker = self.pool.take()
        self._candidate_worker = worker
        self.pool.refill()
        return worker, True

    def dismiss_candidate(self) -> None:
        """End the candidate's worker: nothing of it may reach another candidate, or the next case after a crash."""
        if self._candidate_worker is not None:
            self._candidate_worker.kill()
            self._candidate_worker = None

    def reference_worker(self) -> Worker:
        """The worker in which references are timed, through the same shim and the same sandbox."""
        if self._reference_worker is None:
            self._reference_worker = self.pool.take()
        return self._reference_worker

    def dismiss_reference(self) -> None:
        if self._reference_worker is not None:
            self._reference_worker.kill()
            self._reference_worker = None

    def remember_failed_load(self, key: str, verdict: schema.Verdict, outcome: Outcome) -> None:
        """A candidate that does not load does not load for its other cases either."""
        self._failed_loads[key] = verdict, outcome

    def failed_load(self, key: str) -> tuple[schema.Verdict, Outcome] | None:
        return self._failed_loads.get(key)

    def close(self) -> None:
        self.dismiss_candidate()
        self.dismiss_reference()
        self.pool.close()
        self.lane.close()


class Trial:
    """One job."""

    def __init__(self, job: schema.Job, room: Courtroom) -> None:
        self._job = job
        self._room = room
        self.stage: schema.Stage = "start"
        self._limit_seconds = self._left_seconds = _HOUSEKEEPING_SECONDS
        self._errors = schema.ErrorStatistics()
        self._verified = 0
        self._worker: Worker | None = None
        self.outcome = Outcome()

    def conduct(self) -> schema.Verdict:
        """The verdict. Raises only for what is not the candidate's doing."""
        try:
            self._hear()
            verdict: schema.Verdict = schema.Agrees(self._errors, self._verified)
        except _VerdictError as early:
            verdict = early.verdict
            if isinstance(verdict, schema.Cheated | schema.Crashed | schema.TimedOut | schema.Unsupported):
                self._dismiss()
        except (ReferenceFailure, UsageError) as failure:  # torch lacks the operator, or cannot do this case here
            verdict = schema.Unsupported("reference", str(failure))
        except _FAILURES as failure:
            self._dismiss()
            verdict = self._verdict_for(failure)
            if self.stage == "load" and self._worker is not None:
                self._room.remember_failed_load(self._job.implementation.key, verdict, self.outcome)
        except BaseException:
            self._dismiss()
            raise
        finally:
            self._take_log()
        if not isinstance(verdict, schema.Agrees):
            self.outcome.measurement = None
        return verdict

    def _hear(self) -> None:
        job = self._job
        known = self._room.failed_load(job.implementation.key)
        if known is not None:
            verdict, self.outcome = known
            raise _VerdictError(verdict)
        self._refuse_unfixed_shapes()
        if job.replay is not None:
            self._replay(job.replay)
            return
        with self._room.lane.shared():
            reference = Reference(job.case, self._room.device)
            calls, expected = self.draw(reference, 1)
            layout = Layout(job.case, expected[0])
            self._take_worker()
            timed = job.measured and job.case.timed
            checks = _CHECKED_CALLS[job.effort]
            stand = Stand(self._expect_worker(), job.case, layout, self._sets(layout, checks, timed), self._room.device)
            try:
                self._compile_and_check(stand, reference, calls, expected, checks)
                self._check_hidden(stand)
            except BaseException:
                self._dismiss()
                stand.close()
                raise
        try:
            if timed:
                self._measure(stand, reference, layout)
            self._attribute(stand)
            self._expect_worker().check_silence()
            stand.release(time.monotonic() + _HOUSEKEEPING_SECONDS)
        except BaseException:
            self._dismiss()
            raise
        finally:
            stand.close()

    def _refuse_unfixed_shapes(self) -> None:
        """The buffers of all calls are laid out from the first: results whose shape depends on values do not fit."""
        if torch.Tag.dynamic_output_shape in operators.resolve(self._job.case.operator).tags:
            raise ReferenceFailure("the shape of this operator's result depends on values, which is not judged yet.")

    def _take_worker(self) -> None:
        worker, fresh = self._room.worker_for(self._job.implementation)
        self._worker = worker
        self.outcome.layers = worker.layers
        worker.clear_log()
        if not fresh:
            return
        with self._in_stage("load", self._job.deadlines.load_seconds):
            command = Load(secrets.token_hex(8), self._job.implementation)
            reply = self._allow(lambda deadline: worker.ask(command, deadline))
            if isinstance(reply, Failed):
                raise CandidateFailedError(reply)
        worker.candidate_key = self._job.implementation.key

    def _sets(self, layout: Layout, checks: int, timed: bool) -> int:
        if not timed:
            return checks
        fitting = _ARENA_BYTES[self._room.device.type] // layout.footprint_bytes
        telling = _MOST_RESULTS // max(1, len(layout.outputs))
        return max(checks, min(_MOST_SETS, fitting, telling), 2)

    def _compile_and_check(
        self, stand: Stand, reference: Reference, calls: list[DrawnCall], expected: list[Expected], checks: int
    ) -> None:
        """First call (it may compile), then further ones on values drawn after it."""
        with self._in_stage("compile", self._job.deadlines.compile_seconds):
            self._allow(stand.bind)
            self.call_and_verify(stand, calls, expected)
        with self._in_stage("check", self._job.deadlines.check_seconds):
            self.call_and_verify(stand, *self.draw(reference, 1))
            self.call_and_verify(stand, *self.draw(reference, checks, calibrate=False))

    def _check_hidden(self, stand: Stand) -> None:
        """Other sizes and layouts, drawn now. The worker leaves the stated case for them and comes back to it.

        A first call may compile again, so each variant may take as long as a first call and a check.
        """
        found = hidden_cases(self._job.case, _HIDDEN_CASES[self._job.effort], random.Random(secrets.randbits(64)))
        if not found:
            return
        deadlines = self._job.deadlines
        with self._in_stage("check", deadlines.check_seconds + deadlines.compile_seconds):
            self._allow(stand.release)
            for case in found:
                self._check_variant(case)
            self._allow(stand.bind)

    def _check_variant(self, case: schema.Case) -> None:
        try:
            reference = Reference(case, self._room.device)
            drawn = [self.draw(reference, 1, calibrate=in_full) for in_full in (True, False)]
        except (ReferenceFailure, UsageError):  # the CPU takes it, this device does not
            return
        layout = Layout(case, drawn[0][1][0])
        stand = Stand(self._expect_worker(), case, layout, 1, self._room.device)
        try:
            with self._naming(case):
                self._allow(stand.bind)
                for calls, expected in drawn:
                    self.call_and_verify(stand, calls, expected)
                self._allow(stand.release)
        except BaseException:
            self._dismiss()
            raise
        finally:
            stand.close()

    @contextmanager
    def _naming(self, case: schema.Case) -> Iterator[None]:
        """Whatever goes wrong inside did so on a variant that the reader has not seen."""
        try:
            yield
        except _VerdictError as early:
            raise _VerdictError(_on_variant(early.verdict, case)) from early
        except _FAILURES as failure:
            raise _VerdictError(_on_variant(self._verdict_for(failure), case)) from failure

    def _replay(self, replay: schema.Replay) -> None:
        """One call of an earlier trial again, with the values it had, compared in full."""
        device = self._room.device
        with self._room.lane.shared():
            reference = Reference(replay.case, device)
            calls = [_drawn_again(replay, device)]
            expected = reference.expect_many(calls, with_bounds=True)
            layout = Layout(replay.case, expected[0])
            self._take_worker()
            stand = Stand(self._expect_worker(), replay.case, layout, 1, device)
            try:
                with self._in_stage("compile", self._job.deadlines.compile_seconds):
                    self._allow(stand.bind)
                    self.call_and_verify(stand, calls, expected)
                    self._allow(stand.release)
            except BaseException:
                self._dismiss()
                raise
            finally:
                stand.close()

    def draw(self, reference: Reference, count: int, calibrate: bool = True) -> tuple[list[DrawnCall], list[Expected]]:
        """Fresh calls from the system's randomness, and what they must give."""
        calls = draw_calls(reference.case, secrets.randbits(63), count, self._room.device)
        return calls, reference.expect_many(calls, with_bounds=calibrate)

    def call_and_verify(self, stand: Stand, calls: list[DrawnCall], expected: list[Expected]) -> tuple[int, int]:
        """Present, call, copy, compare. Every call that is ever made of a candidate goes through here."""
        stand.present(calls)
        testimony = self._allow(lambda deadline: stand.call(len(calls), deadline))
        done = testimony.done
        if done.odd_call is not None:
            raise _VerdictError(self._odd_structure(expected[done.odd_call], done))
        overrun = stand.overrun(testimony)
        if overrun is not None:
            raise _VerdictError(schema.Disagrees(self.stage, "bounds", overrun))
        alias = testimony.alias()
        if alias is not None:
            index, message = alias
            raise _VerdictError(schema.Disagrees(self.stage, "aliasing", message, replay=_replay_of(calls[index])))
        outputs = [testimony.outputs(index) for index in range(len(calls))]
        inputs_after = [testimony.inputs_after(index) for index in range(len(calls))]
        match compare_many(expected, outputs, inputs_after):
            case Mismatch(reason=reason, message=message, errors=errors, call=index):
                replay = _replay_of(expected[index].call)
                raise _VerdictError(schema.Disagrees(self.stage, reason, message, errors, replay))
            case Agreement(errors=errors):
                self._errors = worst_of(self._errors, errors)
                self._verified += len(calls)
        return testimony.elapsed_ns, done.claimed_ns

    def _odd_structure(self, wanted: Expected, done: Done) -> schema.Verdict:
        got = ", ".join(_leaf_text(leaf) for leaf in done.odd_leaves) or "nothing"
        should = ", ".join(_expected_text(output) for output in wanted.outputs) or "nothing"
        reason = "structure"
        if len(done.odd_leaves) == len(wanted.outputs):
            for leaf, output in zip(done.odd_leaves, wanted.outputs, strict=True):
                if isinstance(leaf, TensorLeaf) and isinstance(output.native, torch.Tensor):
                    if leaf.dtype != str(output.native.dtype).removeprefix("torch."):
                        reason = "dtype"
                    elif leaf.shape != tuple(output.native.shape):
                        reason = "shape"
        message = f"returned {got}; expected {should}"
        return schema.Disagrees(self.stage, reason, message, replay=_replay_of(wanted.call))  # type: ignore[arg-type]

    def _measure(self, stand: Stand, reference: Reference, layout: Layout) -> None:
        room, plan = self._room, procedure.PLANS[self._job.effort]
        other = self._reference_stand(layout, stand.sets)
        try:
            room.pool.settle()
            with room.lane.exclusive(), self._in_stage("measure", self._job.deadlines.measure_seconds):
                measurement = self._measure_rounds(stand, other, reference, plan)
                self._examine(measurement, layout)
                self.outcome.measurement = measurement
            other.release(time.monotonic() + _HOUSEKEEPING_SECONDS)
        except BaseException:
            room.dismiss_reference()
            raise
        finally:
            other.close()

    def _attribute(self, stand: Stand) -> None:
        """A last, unscored call tells what did the work; under a policy, work that torch did is not the candidate's."""
        with self._in_stage("attribute", self._job.deadlines.check_seconds):
            stand.present(draw_calls(self._job.case, secrets.randbits(63), 1, self._room.device))
            with_kernels = self._wants_kernels()
            found = self._allow(lambda deadline: stand.attribute(deadline, with_kernels))
        if isinstance(found, Failed):
            found = schema.Attribution({}, note=f"the kernel failed while it was watched: {found.message}"[:500])
        self.outcome.attribution = found
        delegated = _delegated(found)
        if self._job.require_authored and delegated:
            raise _VerdictError(schema.Delegated(delegated))

    def _wants_kernels(self) -> bool:
        """A profiler costs most of a second: once per candidate is enough, unless the verdict hangs on it."""
        implementation = self._job.implementation
        first = implementation.key not in self._room.profiled and implementation.language != "aten"
        self._room.profiled.add(implementation.key)
        return self._job.require_authored or first

    def _reference_stand(self, layout: Layout, sets: int) -> Stand:
        """The reference on its own stand. Its failures are ours, not the candidate's."""
        room, case = self._room, self._job.case
        deadline = time.monotonic() + _HOUSEKEEPING_SECONDS
        native = schema.Implementation(
            "aten", case.operator, schema.ImportPath("torch", f"ops.{case.operator}"), "aten"
        )
        worker = room.reference_worker()
        stand = Stand(worker, case, layout, sets, room.device)
        try:
            worker.ask(Load(secrets.token_hex(8), native), deadline)
            stand.bind(deadline)
        except _FAILURES as error:
            room.dismiss_reference()
            stand.close()
            raise ReferenceLostError(f"the reference's worker failed: {error!r}") from error
        return stand

    def _measure_rounds(
        self, stand: Stand, other: Stand, reference: Reference, plan: procedure.Plan
    ) -> schema.Measurement:
        draws = _Draws(self, reference)
        candidate = _CandidateRuns(self, stand, draws)
        contestants: dict[schema.Party, procedure.Contestant] = {
            "candidate": candidate,
            "reference": _ReferenceRuns(other, draws, pretend=False),
            "shim": _ReferenceRuns(other, draws, pretend=True),
        }
        began, before = time.time_ns(), self._room.probe.state()
        lengths = procedure.block_lengths(contestants, stand.sets, plan)
        order = random.Random(secrets.randbits(64))
        blocks = list(procedure.rounds(contestants, lengths, plan, order))
        procedure.confirmations(contestants, blocks, plan, order, needs_confirmation)
        self._check_quiet(other, candidate.latencies_ns)
        return schema.Measurement(
            method=procedure.METHOD,
            blocks=tuple(blocks),
            began_unix_ns=began,
            ended_unix_ns=time.time_ns(),
            threads=self._room.threads,
            distinct_inputs=lengths[1],
            bytes_per_call=stand.layout.bytes_per_call,
            before=before,
            after=self._room.probe.state(),
        )

    def _check_quiet(self, other: Stand, latencies_ns: list[int]) -> None:
        """Whether the candidate keeps the device busy between its calls: work that began before the clock did.

        Proven only by taking the candidate away: if the device is then quiet, it was the candidate; if not, somebody
        else is using it, which is no fault of the candidate's.
        """
        if self._room.device.type == "cpu" or not latencies_ns:
            return  # on the CPU it stood still
        before = statistics.median(latencies_ns)
        if before < _BUSY_DEVICE_NS:
            return
        self._dismiss()
        after = statistics.median(other.device_latency_ns() for _ in range(9))
        if after < before / 4:
            turns = f"{before / 1e3:.0f} µs to get a turn, {after / 1e3:.0f} µs without it"
            raise _VerdictError(schema.Cheated("measure", "quiescence", f"the device was busy between calls: {turns}"))
        raise DeviceBusyError("another process keeps the device busy; nothing can be measured on it")

    def _examine(self, measurement: schema.Measurement, layout: Layout) -> None:
        """Ask every guard; the first that proves something decides."""
        written = layout.written_bytes
        guards: list[Guard] = [ClockGuard(), FloorGuard(written, self._room.peak_bytes_per_second)]
        for guard in guards:
            proof = guard.examine(measurement)
            if proof is not None:
                raise _VerdictError(proof)

    @contextmanager
    def _in_stage(self, stage: schema.Stage, limit_seconds: float) -> Iterator[None]:
        self.stage, began = stage, time.monotonic()
        self._limit_seconds = self._left_seconds = limit_seconds
        try:
            yield
        finally:
            before = self.outcome.stage_seconds.get(stage, 0.0)
            self.outcome.stage_seconds[stage] = round(before + time.monotonic() - began, 6)

    def _allow(self, action: Callable[[float], T]) -> T:
        """Let the worker act, on what is left of the stage's time. The judge's own work is not charged to it."""
        began = time.monotonic()
        try:
            return action(began + self._left_seconds)
        finally:
            self._left_seconds -= time.monotonic() - began

    def _expect_worker(self) -> Worker:
        assert self._worker is not None
        return self._worker

    def _dismiss(self) -> None:
        """The candidate's worker is not used again; its log is kept first."""
        self._take_log()
        if self._worker is not None:
            self._room.dismiss_candidate()

    def _take_log(self) -> None:
        if self._worker is not None:
            self.outcome.log_tail = self._worker.log_tail

    def _verdict_for(self, failure: Exception) -> schema.Verdict:
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
                return _verdict_for_reply(stage, reply)
            case WorkerEndedError(ending=ending):
                if ending is None or ending.signal_number == signal.SIGKILL:
                    raise WorkerLostError("the worker was killed from outside") from failure
                return _verdict_for_ending(stage, ending.exit_code, ending.signal_number)
        raise AssertionError(f"no verdict for {failure!r}")


class _Draws:
    """Calls for the parties of one measurement.

    The candidate gets values that nobody has seen; the reference and the shim, which have nothing to gain, get the
    candidate's last ones again: drawing costs more than calling.
    """

    def __init__(self, trial: Trial, reference: Reference) -> None:
        self._trial, self._reference = trial, reference
        self._last: dict[int, list[DrawnCall]] = {}

    def fresh(self, calls: int) -> tuple[list[DrawnCall], list[Expected]]:
        drawn, expected = self._trial.draw(self._reference, calls, calibrate=False)
        self._last[calls] = drawn
        return drawn, expected

    def again(self, calls: int) -> list[DrawnCall]:
        if calls not in self._last:
            self.fresh(calls)
        return self._last[calls]


class _CandidateRuns:
    """The candidate as a contestant: every timed call has fresh values and a verified result."""

    def __init__(self, trial: Trial, stand: Stand, draws: _Draws) -> None:
        self._trial, self._stand, self._draws = trial, stand, draws
        self.latencies_ns: list[int] = []
        self._ready: dict[int, tuple[list[DrawnCall], list[Expected]]] = {}

    def prepare(self, lengths: tuple[int, ...]) -> None:
        self._ready = {calls: self._draws.fresh(calls) for calls in lengths}

    def run(self, calls: int) -> tuple[int, int]:
        drawn, expected = self._ready.pop(calls) if calls in self._ready else self._draws.fresh(calls)
        self.latencies_ns.append(self._stand.device_latency_ns())
        return self._trial.call_and_verify(self._stand, drawn, expected)


class _ReferenceRuns:
    """The reference, or the shim alone, on values of the same kind."""

    def __init__(self, stand: Stand, draws: _Draws, pretend: bool) -> None:
        self._stand, self._draws, self._pretend = stand, draws, pretend

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """The candidate's draws serve."""

    def run(self, calls: int) -> tuple[int, int]:
        self._stand.present(self._draws.again(calls))
        try:
            testimony = self._stand.call(calls, time.monotonic() + _HOUSEKEEPING_SECONDS, self._pretend)
        except _FAILURES as error:
            raise ReferenceLostError(f"the reference's worker failed: {error!r}") from error
        return testimony.elapsed_ns, testimony.done.claimed_ns


def judge(
    job: schema.Job, room: Courtroom, device_label: str, manifest_key: str, isolation: schema.IsolationLevel
) -> schema.Record:
    """The record of a job; repeats it when a worker was lost through no fault of the candidate."""
    attempts = 0
    while attempts < _LOST_WORKERS:
        attempts += 1
        trial = Trial(job, room)
        try:
            verdict = trial.conduct()
            break
        except (ReferenceLostError, DeviceBusyError) as lost:
            verdict = schema.Unjudged(str(lost))
        except WorkerLostError:
            # If it happens every time, something that the candidate does makes the system kill it.
            verdict = schema.Crashed(trial.stage, "signal", "killed each time it ran", signal="SIGKILL")
            if trial.stage == "measure":
                attempts = max(attempts, _LOST_WORKERS - 2)  # dying until the clock is kind must not pay
    return schema.Record(
        job_key=job.key,
        case=job.case,
        implementation=job.implementation.reference,
        verdict=verdict,
        manifest_key=manifest_key,
        device=device_label,
        isolation=schema.Isolation(isolation, trial.outcome.layers),
        measurement=trial.outcome.measurement,
        attribution=trial.outcome.attribution,
        log_tail=trial.outcome.log_tail,
        stage_seconds=trial.outcome.stage_seconds,
        attempts=attempts,
        finished_unix_ns=time.time_ns(),
    )


def _replay_of(call: DrawnCall) -> schema.Replay:
    return schema.Replay(call.case, call.seed, call.count, call.index)


def _drawn_again(replay: schema.Replay, device: torch.device) -> DrawnCall:
    """The call that a record tells of. Records can be edited; what makes no sense is the user's mistake."""
    if not 0 <= replay.index < replay.count <= _MOST_SETS:
        raise UsageError(f"there is no call {replay.index} of {replay.count} to make again.")
    return draw_calls(replay.case, replay.seed, replay.count, device)[replay.index]


def _on_variant(verdict: schema.Verdict, case: schema.Case) -> schema.Verdict:
    """The verdict with the variant's arguments in its message. Refusing a variant is a failure like any other."""
    where = f"hidden variant ({case.label}): "
    match verdict:
        case schema.Disagrees() | schema.Crashed() | schema.Cheated():
            return msgspec.structs.replace(verdict, message=where + verdict.message)
        case schema.Unsupported():
            return msgspec.structs.replace(verdict, reason=where + verdict.reason)
        case _:
            return verdict


def _verdict_for_reply(stage: schema.Stage, reply: Failed) -> schema.Verdict:
    if reply.kind == "unsupported":
        return schema.Unsupported("candidate", reply.message)
    return schema.Crashed(stage, reply.kind, reply.message, reply.traceback)


def _verdict_for_ending(stage: schema.Stage, exit_code: int | None, signal_number: int | None) -> schema.Verdict:
    if signal_number is not None:
        name = signal.Signals(signal_number).name
        return schema.Crashed(stage, "signal", f"died of {name}", signal=name)
    return schema.Crashed(stage, "exit", f"ended its process with exit code {exit_code}", exit_code=exit_code)


def _delegated(found: schema.Attribution) -> str:
    """What torch or a library did of the work, in words; empty if nothing."""
    if found.note:
        return f"what did the work could not be seen ({found.note})"
    share = found.library_share
    if share:
        names = ", ".join(kernel.name[:60] for kernel in found.kernels if kernel.kind == "library")
        return f"{share:.0%} of the device time went to library kernels: {names}"
    if found.operators:
        names = ", ".join(f"{name} ({count}x)" for name, count in found.operators.items())
        return f"torch's own operators did work: {names}"
    return ""


def _leaf_text(leaf: TensorLeaf | PlainLeaf | OtherLeaf) -> str:
    match leaf:
        case TensorLeaf(dtype=dtype, shape=shape, device=device):
            return f"tensor {list(shape)} {dtype} on {device}"
        case PlainLeaf(value=value):
            return repr(value)
        case OtherLeaf(type_name=name):
            return f"a {name}"


def _expected_text(output: object) -> str:
    native = getattr(output, "native", None)
    argument = getattr(output, "is_argument", None)
    if argument is not None:
        return f"tensor argument {argument} itself"
    if isinstance(native, torch.Tensor):
        new = "a new " if getattr(output, "fresh", False) else ""
        return f"{new}tensor {list(native.shape)} {str(native.dtype).removeprefix('torch.')}"
    return f"a plain {type(native).__name__}"


__all__ = ["Courtroom", "Trial", "WorkerLostError", "judge"]
