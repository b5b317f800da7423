"""Takes one job through its stages (load, compile, check, measure), each with its own deadline.

A failure of the candidate is caught once, in :meth:`StagedJob.conduct`, and becomes the verdict. A failure of the judge
is raised as an exception, and the job is tried again.
"""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import torch

from torchstone import schema
from torchstone.calls.torch_errors import excusing_shortage_if
from torchstone.errors import UsageError
from torchstone.judge_process import verdict_wording
from torchstone.judge_process.bound_worker import BoundWorker
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judge_process.candidate_builds import build_source, keep_build
from torchstone.judge_process.candidate_failures import (
    FAILURES,
    CandidateFailedError,
    VerdictError,
)
from torchstone.judge_process.candidate_session import CandidateSession
from torchstone.judge_process.interleaved_timing import measure
from torchstone.judge_process.large_cases import (
    bytes_for_arguments,
    bytes_for_call,
    bytes_for_job,
    is_bounded,
    is_small,
    require_memory,
    require_memory_for_arguments,
)
from torchstone.judge_process.overlapped_work import OverlappedWork
from torchstone.judge_process.randomness_across_retries import RepeatableRandomness
from torchstone.judge_process.reference_timed_without_candidate import (
    Beforehand,
    reference_beforehand,
    with_reference_alone,
)
from torchstone.judge_process.resources import JudgeResources
from torchstone.judge_process.save_replayed_call import save_call
from torchstone.judge_process.short_block_timing import WARM_BYTES
from torchstone.judge_process.stage_clock import HOUSEKEEPING_SECONDS
from torchstone.judge_process.variant_checks import HiddenVariants
from torchstone.judging import (
    BUDGETS,
    DrawnCall,
    Expected,
    Reference,
    ReferenceFailure,
    arithmetic_device_of,
    draw_calls,
    plant,
)
from torchstone.protocol.replies import Failed

_CALLS_BESIDE_CHECKS = 6
"""Further calls of the same block, if their buffers are small: one that is compared in full, and planted ones."""
_MOST_SETS = {"cpu": 256, "cuda": 1024}
"""Most calls in a block, each with a set of arguments, by device type."""
_LARGE_ARGUMENT_SETS = 6
"""Calls in a block of very large arguments. With fewer, the cost of the block itself would dominate."""
_MOST_RESULTS = 2048
"""Most results of a block. The reply has the address of each, and its size is limited."""
_MOST_RANDOM_SETS = 32
"""Most calls of a random operator in a block on the CPU: to judge one takes a thousand times as long as to draw it."""
_MOST_WEIGHTS = 4096
"""Most weights of a model's instances in a block: each set of arguments has its own, and to make them takes time."""
_MOST_MODEL_SETS = 32
"""Most calls of a problem's model in a block on a device: each call of the reference, in another process, takes
milliseconds."""
_ONE_BY_ONE_BYTES = 64 << 20
"""Bytes of a call's arguments and results above which untimed calls are made one by one on the CPU. A block would save
hardly any time. On a device the limit is the size of an arena."""
_UNCHECKED_CALLS_OF_TIMED_CASE_NS = {"cpu": 200_000_000, "cuda": 60_000_000}
"""Time of a timed case's further calls, which must not change kept results, by device type. How many calls fit follows
from the time of a block, which costs more than its calls: quick calls take less than this."""


class FurtherCalls:
    """The calls after the first one of a case. Small ones are evaluated while the candidate makes the first."""

    def __init__(self, session: CandidateSession, reference: Reference, checks: int, first: Expected) -> None:
        self._session, self._reference, self._first = session, reference, first
        self._is_bounded = is_bounded(session.job, first)
        self._count = 1 if self._is_bounded else 1 + checks
        self._found: list[Expected] | None = None
        self.is_small = is_small(first)

    def ahead(self) -> OverlappedWork | None:
        """Work to do while the candidate makes its first call. None: the calls are large, or memory is watched."""
        return (
            OverlappedWork(self._evaluate)
            if self.is_small and not self._session.resources.shortage.is_watched
            else None
        )

    def expected_results(self) -> list[Expected]:
        """The calls with their expected results."""
        if self._found is None:
            self._evaluate()
        return self._found or []

    def _evaluate(self) -> None:
        non_finite = self._session.job.non_finite == "check"
        self._found = self._session.draw_with_planted(
            self._reference, self._count, self._first, non_finite=non_finite, bounded=self._is_bounded
        )


class StagedJob:
    """One job."""

    def __init__(
        self, job: schema.Job, resources: JudgeResources, randomness: RepeatableRandomness, waited_seconds: float
    ) -> None:
        """``waited_seconds``: how long the judge had waited for the lane and for memory before the job."""
        self._job, self._waited_seconds = job, waited_seconds
        self._resources = resources
        self._session = CandidateSession(job, resources, randomness)

    @property
    def session(self) -> CandidateSession:
        """The session, with all that is known so far."""
        return self._session

    def conduct(self) -> schema.Verdict:
        """Run the job. Returns the verdict; raises only for failures that are not the candidate's."""
        session = self._session
        seconds = session.outcome.stage_seconds
        try:
            with excusing_shortage_if(self._resources.shortage.is_excused):
                self._run_stages()
            verdict: schema.Verdict = schema.Agrees(session.errors, session.verified)
        except VerdictError as early:
            verdict = early.verdict
            if isinstance(verdict, schema.Cheated | schema.Crashed | schema.TimedOut | schema.Unsupported):
                session.dismiss()
        except (ReferenceFailure, UsageError) as failure:  # torch lacks the operator, or cannot do this case here
            verdict = schema.Unsupported("reference", str(failure))
        except FAILURES as failure:
            session.dismiss()
            verdict = session.verdict_for(failure)
            if session.is_preparing and session.has_worker:
                self._resources.failed_loads.remember(self._job, verdict, session.outcome)
        except BaseException as error:
            self._resources.shortage.update_if_out_of_memory(error)
            session.dismiss()
            raise
        finally:
            session.take_log()
            seconds["wait"] = round(self._resources.waited_seconds - self._waited_seconds, 6)
        if not isinstance(verdict, schema.Agrees):
            session.outcome.measurement = None
        return verdict

    def _run_stages(self) -> None:
        """Run all stages of the job. A failure of the candidate is raised."""
        job, session = self._job, self._session
        known = self._resources.failed_loads.verdict_on(job)
        if known is not None:
            verdict, session.outcome = known
            raise VerdictError(verdict)
        if job.replay is not None:
            self._replay(job.replay)
            return
        timed, kind = job.measured and job.case.timed, self._resources.device.type
        self._resources.models.call_seconds = job.deadlines.check_seconds
        self._resources.memory.hold(job.key, bytes_for_arguments(job.case))
        with self._resources.place_in_lane(), ExitStack() as stack:  # measuring leaves the place and takes it again
            self._resources.without_candidate_if_needed(lambda: require_memory_for_arguments(job.case, kind))
            arithmetic_device = arithmetic_device_of(job.case, self._resources.device)
            reference = Reference(job.case, self._resources.device, arithmetic_device, effort=job.effort)
            calls, expected = session.draw(reference, 1)
            work = self._resources.work_of(expected[0]) if timed else None
            if work is not None:
                self._resources.know_ceilings(work)
            layout = CallLayout(job.case, expected[0])
            first = expected[0]
            self._resources.memory.require(job.key, bytes_for_call(job.case, first))
            self._resources.without_candidate_if_needed(lambda: require_memory(job.case, first, layout, kind))
            checks = max(BUDGETS[job.effort].checked_calls, self._resources.calls_needed_against_guessing(expected[0]))
            sets = self._calls_in_block(layout, checks, timed, draws=reference.random_results is not None)
            self._resources.memory.require(job.key, bytes_for_job(job.case, first, layout, sets))
            self._resources.plan_memory(job.case, sets * layout.footprint_bytes)
            before = reference_beforehand(session, layout, sets, reference) if work is not None else Beforehand()
            session.take_worker()
            with session.clock.in_stage("compile", job.deadlines.compile_seconds):
                build_source(session)
                bound = stack.enter_context(session.bound_to(job.case, layout, sets))
                bound.keeps_results = session.keeps_results()
                further = FurtherCalls(session, reference, checks, expected[0])
                self._call_first(bound, calls, expected, further.ahead())
            variants = HiddenVariants(session, layout, expected[0])
            self._check(bound, further, variants, makes_unchecked_calls=work is None)
            if work is None:
                self._attribute(bound, has_arguments=bound.keeps_arguments and not reference.contract.mutated)
                variants.check(bound, comes_back=False)
            else:
                variants.check(bound, comes_back=True)
                session.outcome.measurement = measure(session, bound, reference, work)
                session.make_unchecked_calls(bound, _UNCHECKED_CALLS_OF_TIMED_CASE_NS[self._resources.device.type])
                self._attribute(bound, has_arguments=False)
            session.worker.check_silence()
            if bound.is_bound:
                bound.release(time.monotonic() + HOUSEKEEPING_SECONDS)
            if session.outcome.measurement is not None:
                found = with_reference_alone(session, bound, reference, session.outcome.measurement, before)
                session.outcome.measurement = found

    def _call_first(
        self, bound: BoundWorker, calls: list[DrawnCall], expected: list[Expected], meanwhile: OverlappedWork | None
    ) -> None:
        """Make the first call, which may compile. Keep what it has built, also if the result is wrong."""
        session = self._session
        try:
            session.call_and_verify(bound, calls, expected, meanwhile)
        except (VerdictError, CandidateFailedError):
            with suppress(*FAILURES):
                keep_build(session, knows_values=True)
            raise
        keep_build(session, knows_values=True)

    def _calls_in_block(self, layout: CallLayout, checks: int, timed: bool, draws: bool) -> int:
        """How many calls a block has at most. ``draws``: the operator is random."""
        kind = self._resources.device.type
        is_large = layout.footprint_bytes > (_ONE_BY_ONE_BYTES if kind == "cpu" else self._resources.arena_bytes)
        if not timed:
            if is_large:
                return 1
            return max(
                checks, min(checks + _CALLS_BESIDE_CHECKS, self._resources.cache_bytes // layout.footprint_bytes)
            )
        checks = 1 if is_large and kind == "cuda" else checks  # the other checks follow in further blocks
        warm_bytes = WARM_BYTES if kind == "cpu" else self._resources.cache_bytes // 2
        room_bytes = self._resources.arena_bytes if self._job.cache == "cold" else warm_bytes
        fitting = room_bytes // layout.footprint_bytes
        most_by_results = min(_MOST_RESULTS // max(1, len(layout.outputs)), _most_model_instances(self._job.case))
        most_by_results = min(most_by_results, _MOST_RANDOM_SETS) if draws and kind == "cpu" else most_by_results
        most_by_results = (
            min(most_by_results, _MOST_MODEL_SETS) if self._job.case.model and kind == "cuda" else most_by_results
        )
        large_sets = min(_LARGE_ARGUMENT_SETS, self._resources.ample_bytes // layout.footprint_bytes)
        return max(checks, min(_MOST_SETS[kind], fitting, most_by_results), large_sets, 2)

    def _check(
        self, bound: BoundWorker, further: FurtherCalls, variants: HiddenVariants, *, makes_unchecked_calls: bool
    ) -> None:
        """Make the further calls, some with planted values, and compare their results.

        ``makes_unchecked_calls``: also make calls that must not change kept results. Timed cases make these after
        the timing.
        """
        session = self._session
        choosing = OverlappedWork(variants.choose)
        with session.clock.in_stage("check", self._job.deadlines.check_seconds):
            wanted = further.expected_results()
            for begin in range(0, len(wanted), bound.sets):  # few blocks: each waits for the worker and the device
                some = wanted[begin : begin + bound.sets]
                session.call_and_verify(bound, [expected.call for expected in some], some, choosing)
            choosing.do()
            if makes_unchecked_calls:
                unchecked_calls_ns = BUDGETS[self._job.effort].unchecked_calls_ns
                beside = further.is_small and not self._resources.shortage.is_watched
                session.make_unchecked_calls(
                    bound, unchecked_calls_ns, OverlappedWork(variants.prepare_next) if beside else None
                )

    def _replay(self, replay: schema.Replay) -> None:
        """Make the call of an earlier trial again, on the same values, and compare it in full."""
        session, device = self._session, self._resources.device
        self._resources.memory.hold(self._job.key, bytes_for_arguments(replay.case))
        with self._resources.place_in_lane():
            arithmetic_device = arithmetic_device_of(replay.case, device)
            reference = Reference(replay.case, device, arithmetic_device)
            made: list[schema.Replay | schema.BlockCall] = [replay, *replay.others]
            calls = [_redrawn_call(replay.case, each, arithmetic_device) for each in made]
            expected = reference.expect_many(calls, with_bounds=len(calls) == 1)
            layout = CallLayout(replay.case, expected[0])
            session.take_worker()
            with (
                session.clock.in_stage("compile", self._job.deadlines.compile_seconds),
                session.bound_to(replay.case, layout, 1) as bound,
            ):
                for wanted in expected:
                    self._repeat_call(bound, wanted)
                session.allow(bound.release)

    def _repeat_call(self, bound: BoundWorker, wanted: Expected) -> None:
        """Make the call and compare it. However it ends, its values are saved if the job requests that."""
        session, save_to = self._session, self._job.save_to
        session.block = None
        try:
            session.call_and_verify(bound, [wanted.call], [wanted])
        finally:
            if save_to is not None:
                save_call(Path(save_to), wanted, session.block)

    def _attribute(self, bound: BoundWorker, has_arguments: bool) -> None:
        """Make an untimed call that shows which operators and kernels do the work.

        Raises VerdictError if torch or a library does work and the job requires authored kernels.

        ``has_arguments``: the arguments of the last block's first call are unchanged, and are used again.
        """
        session = self._session
        with session.clock.in_stage("attribute", self._job.deadlines.check_seconds):
            if not has_arguments:
                bound.present(draw_calls(self._job.case, secrets.randbits(63), 1, bound.arithmetic_device))
            with_kernels = self._wants_kernels()
            found = session.allow(lambda deadline: bound.attribute(deadline, with_kernels))
            reference_bytes = self._resources.reference_peak_bytes(self._job.case)
        if isinstance(found, Failed):
            found = schema.Attribution({}, note=f"the kernel failed while it was profiled: {found.message}"[:500])
        found = msgspec.structs.replace(found, reference_peak_memory_bytes=reference_bytes)
        session.outcome.attribution = found
        delegated = verdict_wording.delegated(found)
        if self._job.require_authored and delegated:
            raise VerdictError(schema.Delegated(delegated))

    def _wants_kernels(self) -> bool:
        """Whether to profile device kernels: once per candidate, or if the verdict needs it. Takes most of a second."""
        implementation = self._job.implementation
        first = implementation.key not in self._resources.profiled and implementation.language != "aten"
        self._resources.profiled.add(implementation.key)
        return self._job.require_authored or first


def _most_model_instances(case: schema.Case) -> int:
    """Most sets of arguments in a block, by the number of the model's weights."""
    if case.model is None:
        return max(_MOST_SETS.values())
    weights = case.args[0]
    return max(1, _MOST_WEIGHTS // (1 + (len(weights.items) if isinstance(weights, schema.Sequence) else 0)))


def _redrawn_call(case: schema.Case, replay: schema.Replay | schema.BlockCall, device: torch.device) -> DrawnCall:
    """Draw the call of a replay again. Raises UsageError for impossible numbers: users can edit records."""
    if not 0 <= replay.index < replay.count <= max(_MOST_SETS.values()):
        raise UsageError(
            f"the record names call {replay.index} of {replay.count}, which does not exist. Restore the record."
        )
    call = draw_calls(case, replay.seed, replay.count, device)[replay.index]
    return plant(call, replay.planted) if replay.planted else call
