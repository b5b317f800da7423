"""Runs one candidate for one job: its worker, its inputs, its calls, and the comparison of its results.

The results of every call that counts are verified: here, or in ``measured_parties.py`` for CUDA graphs. A failure of
the candidate leaves as one of :data:`candidate_failures.FAILURES` or as a :class:`VerdictError`. A failure of the judge
is another exception, and the job is tried again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import msgspec
import torch

from torchstone import schema
from torchstone.chain import Chain
from torchstone.judge_process import verdict_wording
from torchstone.judge_process.block_guards import BLOCK_GUARDS
from torchstone.judge_process.block_results import BlockResults
from torchstone.judge_process.bound_worker import BoundWorker
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judge_process.candidate_builds import keep_build
from torchstone.judge_process.candidate_failures import (
    CandidateFailedError,
    DeviceLostError,
    VerdictError,
    verdict_for_failure,
)
from torchstone.judge_process.overlapped_work import OverlappedWork
from torchstone.judge_process.randomness_across_retries import RepeatableRandomness
from torchstone.judge_process.resources import JobOutcome, JudgeResources
from torchstone.judge_process.stage_clock import HOUSEKEEPING_SECONDS, StageClock
from torchstone.judging import (
    Agreement,
    DrawnCall,
    Expected,
    Mismatch,
    Planting,
    Reference,
    ReferenceFailure,
    Series,
    agrees_on_contiguous_memory,
    agrees_on_empty_arguments,
    agrees_with_itself,
    arithmetic_device_of,
    compare_many,
    declares_nondeterminism,
    draw_calls,
    is_hidden,
    planted_calls,
    worst_of,
)
from torchstone.protocol.commands import PASSES_APART, Load
from torchstone.protocol.replies import Failed
from torchstone.supervisor.pausable_worker import PausableWorker
from torchstone.supervisor.worker_failures import WorkerTimeoutError
from torchstone.supervisor.worker_pool import DeviceNotOpenedError

_MOST_CALLS_OF_UNCHECKED_BLOCK = 8
"""Most calls in a block of :meth:`CandidateSession.make_unchecked_calls`, whose results are not compared."""
_MOST_SEPARATE_PASSES_BYTES = 256 << 20
"""Most bytes of arguments and results of a block with separate forward and backward passes. Each of them then exists
twice, besides what the forward passes save."""
_SLIGHT_ERROR_OVER_BOUND = 4.0
"""Factor of the bound up to which another order of additions may explain an error."""

T = TypeVar("T")


class CandidateSession:
    """The candidate of one job."""

    def __init__(
        self, job: schema.Job, resources: JudgeResources, randomness: RepeatableRandomness | None = None
    ) -> None:
        self.job = job
        self.resources = resources
        self.randomness = randomness or RepeatableRandomness()
        self.outcome = JobOutcome()
        self.errors = schema.ErrorStatistics()
        self.verified = 0
        self.clock = StageClock(resources, self.outcome.stage_seconds)
        self._worker: PausableWorker | None = None
        self.is_preparing = False
        """Whether the candidate is being loaded or built: a failure then applies to all its cases."""
        self._separates_passes = self._has_separated_passes = False
        """Whether the last block, and any block, made its backward passes after all forward passes."""
        self._calls_in_progress: Callable[[], Sequence[DrawnCall]] = _no_calls
        self.block: BlockResults | None = None
        """Results of the last block. Kept only for a job that saves its call."""

    @property
    def worker(self) -> PausableWorker:
        assert self._worker is not None, "a worker is taken before it is asked"
        return self._worker

    @property
    def has_worker(self) -> bool:
        return self._worker is not None

    def take_worker(self) -> None:
        """Take the worker that has the candidate loaded, or take a new one and load the candidate."""
        with self.clock.in_stage("start", HOUSEKEEPING_SECONDS):
            worker, fresh = self.resources.worker_for(self.job.implementation)
        self._worker = worker
        self.outcome.layers, self.outcome.held = worker.layers, worker.holding
        worker.clear_log()
        if worker.candidate_key == self.job.implementation.key:
            return
        worker.candidate_key = None
        with self.clock.in_stage("load", self.job.deadlines.load_seconds), self.preparing():
            built = self.resources.builds.of(self.job.implementation.key)
            command = Load(secrets.token_hex(8), self.job.implementation, built.size_bytes if built else 0)
            descriptor = built.descriptor if built else None
            reply = self.allow(lambda deadline: worker.ask(command, deadline, descriptor))
            worker.freeze()  # until it is bound: threads that loading has started must not run on
            if isinstance(reply, Failed):
                raise CandidateFailedError(reply)
            keep_build(self, knows_values=False)
        if fresh:
            with self.clock.in_stage("start", HOUSEKEEPING_SECONDS):
                self._open_device(worker)
        worker.candidate_key, worker.package = self.job.implementation.key, self.job.implementation.package
        worker.loads += 1

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Loading or building happens inside: a failure does not depend on the case."""
        self.is_preparing = True
        yield
        self.is_preparing = False

    def _open_device(self, worker: PausableWorker) -> None:
        """Open the device after loading: a candidate that does not load needs none. Raises DeviceLostError."""
        try:
            self.resources.pool.open_device(worker)
        except (DeviceNotOpenedError, WorkerTimeoutError) as error:
            raise DeviceLostError(f"a worker could not open the device: {error}") from error
        worker.freeze()

    @contextmanager
    def bound_to(self, case: schema.Case, layout: CallLayout, sets: int) -> Iterator[BoundWorker]:
        """Bind the candidate to a case. After an exception inside, its worker is ended."""
        device = self.resources.device
        bound = BoundWorker(self.worker, case, layout, sets, device, arithmetic_device_of(case, device))
        bound.has_stated_shapes_only = self.job.shapes == "stated"
        self.outcome.results = self.worker.results
        try:
            self.allow(bound.bind_ahead)
            yield bound
        except BaseException as error:
            self.resources.shortage.update_if_out_of_memory(error)
            self.dismiss()  # a worker that may still see the buffers must be gone before they are freed
            raise
        finally:
            bound.close()

    def draw(
        self, reference: Reference, count: int, calibrate: bool = True, again: bool = True
    ) -> tuple[list[DrawnCall], list[Expected]]:
        """Draw new calls, and compute their expected results. Some calls of random operators come twice.

        ``calibrate``: with bounds. ``again``: a retry of the job, after its worker was lost, draws the same calls.
        """
        calls = _fresh_calls(reference, self.randomness.draw() if again else secrets.randbits(63), count)
        return calls, reference.expect_many(calls, with_bounds=calibrate)

    def draw_with_planted(
        self,
        reference: Reference,
        count: int,
        like: Expected,
        *,
        non_finite: bool = False,
        bounded: bool = False,
        most_planted: int = 1,
    ) -> list[Expected]:
        """Draw new calls, the first to be compared in full, and calls with planted values. All are evaluated together.

        ``like``: an evaluated call of this case, or of the stated case if this is a variant. ``non_finite``: plant NaN
        and infinities in a call, if the operator is pointwise. ``bounded``, for large cases: calls are compared in full
        only after a mismatch, and there are at most ``most_planted`` planted ones.
        """
        calls = _fresh_calls(reference, self.randomness.draw(), count)
        seed = self.randomness.draw()
        if reference.random_results is not None:  # a random operator: what can be planted depends on its results
            expected = reference.expect_many(calls, with_bounds=True)
            planted = planted_calls(expected[0], seed, non_finite=non_finite)
        else:
            most = most_planted if bounded else None
            planting = Planting(reference, like, seed, non_finite=non_finite, most=most)
            reference.precompute([*calls, *planting.calls])
            expected = reference.expect_many(calls, with_bounds=True)
            planted = planting.expected_results()
        in_full = [] if bounded else expected[:1]
        return [*in_full, *(replace(other, with_bounds=False) for other in expected[len(in_full) :]), *planted]

    def call_and_verify(
        self,
        bound: BoundWorker,
        calls: list[DrawnCall],
        expected: list[Expected],
        meanwhile: OverlappedWork | None = None,
    ) -> tuple[int, int]:
        """Make a block of calls and compare its results. Returns its time by the judge's clock and by the worker's.

        For calls that are neither chained nor captured. ``meanwhile`` is done while the candidate works.
        """
        block = self.call_and_keep(bound, calls, expected, meanwhile)
        self.verify(bound, block, expected)
        return block.elapsed_ns, block.claimed_ns

    def call_and_keep(
        self,
        bound: BoundWorker,
        calls: list[DrawnCall],
        expected: list[Expected],
        meanwhile: OverlappedWork | None = None,
    ) -> BlockResults:
        """Make a block of calls and copy its results, which the caller must pass to :meth:`verify`."""
        return self._checked_block(bound, calls, lambda index: expected[index], meanwhile=meanwhile)

    def verify(self, bound: BoundWorker, block: BlockResults, expected: list[Expected]) -> None:
        """Compare a block's results. Raises VerdictError at a mismatch, unless torch has no answer for that call."""
        outputs = [block.outputs(index) for index in range(block.count)]
        inputs_after = [block.inputs_after(index) for index in range(block.count)]
        uncompared = list(range(block.count))
        while uncompared:
            found = compare_many(
                [expected[index] for index in uncompared],
                [outputs[index] for index in uncompared],
                [inputs_after[index] for index in uncompared],
            )
            if isinstance(found, Agreement):
                self.errors = worst_of(self.errors, found.errors)
                self.verified += len(uncompared)
                break
            index = uncompared.pop(found.call)
            if self._has_answer(bound, expected[index], found.errors):
                raise VerdictError(self._disagreement(found, expected[index]))

    def _disagreement(self, found: Mismatch, expected: Expected) -> schema.Disagrees:
        replay = verdict_wording.replay_of(expected.call, self.job.case)
        message = found.message + verdict_wording.about_inputs(replay, self.job.case)
        message += f" ({PASSES_APART})" if self._separates_passes else ""
        return schema.Disagrees(self.clock.stage, found.reason, message, found.errors, replay, found.wrong)

    def call_and_verify_chained(self, bound: BoundWorker, series: Series, chain: Chain) -> tuple[int, int]:
        """Like :meth:`call_and_verify`, for chained calls. The values of the series must have been drawn."""
        calls = series.calls()
        block = self._checked_block(bound, calls, lambda index: series.reference.expect_many([calls[index]])[0], chain)
        rows = range(len(calls))
        outputs = [torch.stack(leaves) for leaves in zip(*map(block.outputs, rows), strict=True)]
        inputs_after = [torch.stack(storages) for storages in zip(*map(block.inputs_after, rows), strict=True)]
        series.follow(chain, outputs)  # recomputes the calls' arguments from the results, and evaluates torch on them
        match series.compare(outputs, inputs_after):
            case Mismatch(reason=reason, message=message, errors=errors, wrong=wrong):
                # No replay: the arguments of a chained call do not follow from its seed alone.
                raise VerdictError(schema.Disagrees(self.clock.stage, reason, message, errors, wrong=wrong))
        self.verified += len(calls)
        return block.elapsed_ns, block.claimed_ns

    def _checked_block(
        self,
        bound: BoundWorker,
        calls: list[DrawnCall],
        expected: Callable[[int], Expected],
        chain: Chain | None = None,
        meanwhile: OverlappedWork | None = None,
    ) -> BlockResults:
        """Make a block of calls, copy its results and run the block guards, which may raise VerdictError."""
        bound.present(calls)
        backward = self._backward_order(bound, calls)
        self._separates_passes = bool(backward)
        with self.noting_calls(lambda: () if chain is not None else calls):
            block = self.allow(lambda deadline: bound.call(len(calls), deadline, chain, backward, meanwhile))
        self.clock.give_back(0.0 if meanwhile is None else meanwhile.seconds)
        done = block.done
        if done.odd_call is not None:
            raise VerdictError(verdict_wording.odd_structure(self.clock.stage, expected(done.odd_call), done))
        self.block = block if self.job.save_to is not None else None
        for guard in BLOCK_GUARDS:
            objection = guard.examine(block)
            if objection is not None:
                replay = None if objection.call is None else verdict_wording.replay_of(calls[objection.call])
                raise VerdictError(verdict_wording.wrong_place(self.clock.stage, objection, replay))
        return block

    def _backward_order(self, bound: BoundWorker, calls: Sequence[DrawnCall]) -> tuple[int, ...]:
        """For gradients: the random order of backward passes that follow all forward passes. Empty: call by call.

        The first block of several calls is made so, and each later one with probability 1/2. Timed blocks never are,
        nor very large ones: they would hold more memory than in use.
        """
        if self.clock.stage == "measure" or len(calls) < 2 or not schema.is_gradient(calls[0].case.operator):
            return ()
        if len(calls) * bound.layout.footprint_bytes > _MOST_SEPARATE_PASSES_BYTES:
            return ()
        if self._has_separated_passes and secrets.randbits(1):
            return ()
        self._has_separated_passes = True
        return tuple(secrets.SystemRandom().sample(range(len(calls)), len(calls)))

    def keeps_results(self) -> bool:
        """Whether results of earlier blocks are kept, and checked after later calls. Always true of timed cases."""
        randomness, job = self.randomness, self.job
        if randomness.keeps_results is None:
            timed = job.measured and job.case.timed
            randomness.keeps_results = timed or self.resources.keeps_results_in_job(job.implementation.key)
        return randomness.keeps_results

    def make_unchecked_calls(self, bound: BoundWorker, budget_ns: int, meanwhile: OverlappedWork | None = None) -> None:
        """Make calls whose results are not compared, while the worker keeps results of earlier ones."""
        if bound.keeps_results and bound.can_make_unchecked_calls(budget_ns):
            count = min(_MOST_CALLS_OF_UNCHECKED_BLOCK, bound.sets)
            calls = draw_calls(self.job.case, secrets.randbits(63), count, bound.arithmetic_device)
            self.allow(lambda deadline: bound.make_unchecked_calls(calls, budget_ns, deadline, meanwhile))
            self.clock.give_back(0.0 if meanwhile is None else meanwhile.seconds)

    def _has_answer(self, bound: BoundWorker, failed: Expected, errors: schema.ErrorStatistics) -> bool:
        """Whether torch agrees with itself on a call that the candidate failed, within these errors.

        If not, a hidden variant is skipped, because no user asked for it; a stated case raises ReferenceFailure.
        """
        case, places = failed.call.case, (bound.device, bound.arithmetic_device)
        repeats = not bound.on_device or (
            agrees_with_itself(failed, *places)
            and not (_is_slight(errors) and declares_nondeterminism(failed, *places))
        )
        if is_hidden(case):
            return repeats and agrees_on_empty_arguments(failed) and agrees_on_contiguous_memory(failed, *places)
        if not repeats:
            raise ReferenceFailure(f"{case.operator} in torch: returns different results for the same arguments")
        return True

    def allow(self, action: Callable[[float], T]) -> T:
        """Run an action of the worker, within the time that is left of the stage."""
        return self.clock.allow(self.worker, action)

    def dismiss(self) -> bool:
        """End the candidate's worker, after keeping its log. False: its processes have not ended yet."""
        self.take_log()
        if self._worker is None:
            return True
        self.resources.dismiss_candidate()
        return self._worker.is_gone

    def take_log(self) -> None:
        if self._worker is not None:
            self.outcome.log_tail = self._worker.log_tail

    @contextmanager
    def noting_calls(self, calls: Callable[[], Sequence[DrawnCall]]) -> Iterator[None]:
        """Remember the calls that the candidate makes inside, for the replay of a crash. Empty: they are unknown.

        ``calls`` is a function because it is evaluated only after a crash.
        """
        self._calls_in_progress = calls
        yield
        self._calls_in_progress = _no_calls

    def crash_replay(self, failure: Exception | None = None) -> schema.Replay | None:
        """Replay of the call that crashed; of all calls in progress, if the worker did not report which one it was."""
        calls = self._calls_in_progress()
        if not calls:
            return None
        reported = failure.failure if isinstance(failure, CandidateFailedError) else None
        # An error of the device may come from an earlier call.
        call = None if reported is None or reported.kind == "device" else reported.call
        if call is not None and 0 <= call < len(calls):
            return verdict_wording.replay_of(calls[call], self.job.case)
        return verdict_wording.replay_of_block(calls)

    def verdict_for(self, failure: Exception) -> schema.Verdict:
        """The verdict for a failure of the candidate, with a replay if it crashed."""
        verdict = verdict_for_failure(failure, self.clock.stage, self.clock.limit_seconds, self.clock.used_seconds)
        if isinstance(verdict, schema.Crashed):
            return msgspec.structs.replace(verdict, replay=self.crash_replay(failure))
        return verdict


def _no_calls() -> Sequence[DrawnCall]:
    return ()


def _fresh_calls(reference: Reference, seed: int, count: int) -> list[DrawnCall]:
    calls = draw_calls(reference.case, seed, count, reference.device)
    return calls if reference.random_results is None else reference.random_results.with_inserted_repeats(calls)


def _is_slight(errors: schema.ErrorStatistics) -> bool:
    """Whether another order of additions may explain the errors."""
    known = (errors.worst_over_bound, errors.rms_over_bound, errors.bias_over_bound)
    return errors.worst_over_bound is not None and all(
        each is None or float(each) <= _SLIGHT_ERROR_OVER_BOUND for each in known
    )
