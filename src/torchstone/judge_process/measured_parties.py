"""The parties of a measurement (candidate, reference, empty call or *shim*), and how each makes its blocks of calls.

There are three ways to make a block. Calls made one after another include the cost of starting each call (call time).
Calls recorded as a graph of the device and started together do not (device time). Chained calls, recorded or not, get
arguments that are made from the result of the call before.

The candidate gets new values, and every result is verified. The reference and the shim, which have nothing to gain,
get the candidate's last values again, because drawing costs more than calling.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import torch

from torchstone import schema
from torchstone.calls.torch_errors import operator_errors
from torchstone.chain import Chain
from torchstone.judge_process import verdict_wording
from torchstone.judge_process.block_guards import BandGuard, GuardFinding
from torchstone.judge_process.bound_worker import BoundWorker
from torchstone.judge_process.candidate_failures import FAILURES, CandidateFailedError, VerdictError
from torchstone.judge_process.candidate_session import CandidateSession
from torchstone.judge_process.cuda_graph_calls import Captured
from torchstone.judge_process.stage_clock import HOUSEKEEPING_SECONDS
from torchstone.judging import (
    DrawnCall,
    Expected,
    Mismatch,
    Plan,
    Reference,
    ReferenceFailure,
    Series,
    UncapturableError,
    draw_calls,
    plans_among_timed,
    plant_some,
)
from torchstone.measuring.long_block_experiment import Times, Turn

Sweep = Callable[[], None]


class ReferenceLostError(Exception):
    """The worker of the reference or of the shim failed. The candidate is not to blame."""


def own_worker_failure(error: Exception, party: str = "reference") -> str:
    """Message on the failure of one of the judge's own workers, with the end of its traceback if it sent one.

    On a GPU a lack of memory raises torch.OutOfMemoryError instead: a candidate may hold the memory.
    """
    if isinstance(error, CandidateFailedError) and error.failure.kind == "memory" and _uses_cuda():
        raise torch.OutOfMemoryError(f"the {party}'s worker: {error.failure.message}") from error
    trace = error.failure.traceback.strip().splitlines()[-12:] if isinstance(error, CandidateFailedError) else []
    return f"the {party}'s worker failed: {error!r}" + "".join(f"\n{line}" for line in trace)


def _uses_cuda() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


class FreshCalls:
    """Draws the calls for all parties of one measurement."""

    def __init__(self, session: CandidateSession, reference: Reference) -> None:
        self._session, self._reference = session, reference
        self._last_calls: dict[int, list[DrawnCall]] = {}
        self._series: dict[tuple[int, schema.Way], Series] = {}
        self._seed = secrets.randbits(62)
        self.plans: list[Plan] = []
        """Plans of the values to plant. Set by :meth:`plan`."""

    def fresh(self, calls: int) -> tuple[list[DrawnCall], list[Expected]]:
        """New calls with expected results. A retry draws others, because the candidate may have stored these."""
        drawn, expected = self._session.draw(self._reference, calls, calibrate=False, again=False)
        self._last_calls[calls] = drawn
        return drawn, expected

    def planted(self, calls: int) -> tuple[list[DrawnCall], list[Expected]] | None:
        """New calls with planted values in some. Only the candidate gets them, and it is not timed on them.

        None: there is nothing to plant, or torch refuses these values.
        """
        if not self.plans:
            return None
        case, device = self._reference.case, self._reference.device
        drawn = plant_some(draw_calls(case, secrets.randbits(63), calls, device), self.plans)
        try:
            return drawn, self._reference.expect_many(drawn)
        except ReferenceFailure:
            return None

    def plan(self) -> None:
        """Choose which values are planted in the inspected blocks, which look like timed ones."""
        _, usual = self._session.draw(self._reference, 1, calibrate=False, again=False)
        self.plans = plans_among_timed(usual[0], secrets.randbits(63))

    def again(self, calls: int) -> list[DrawnCall]:
        """The candidate's last calls, or some that it never gets. Their results are not compared."""
        if calls not in self._last_calls:
            case, device = self._reference.case, self._reference.device
            self._last_calls[calls] = draw_calls(case, secrets.randbits(63), calls, device)
        return self._last_calls[calls]

    def series(self, calls: int, way: schema.Way) -> Series:
        """The series of this number of calls, captured or chained. Its values are drawn again for each block."""
        if (calls, way) not in self._series:
            self._series[calls, way] = Series(self._reference, calls)
        return self._series[calls, way]

    def can_be_chained(self) -> bool:
        return self.series(1, "captured").chain(self._seed) is not None

    def chain(self, calls: int) -> Chain | None:
        """How this many calls are chained; None: no argument can be made from a result."""
        return self.series(calls, "chained").chain(self._seed)


def can_be_chained(bound: BoundWorker, draws: FreshCalls) -> bool:
    """Whether calls that are not captured can be chained: all results are tensors, and an argument depends on them."""
    if not all(output.dtype is not None for output in bound.layout.outputs):
        return False
    try:
        return draws.can_be_chained()
    except UncapturableError:  # of random results, for example: they are not known beforehand
        return False


class CandidateCalls:
    """The candidate, called one call after another."""

    way: schema.Way = "called"

    def __init__(self, session: CandidateSession, bound: BoundWorker, draws: FreshCalls) -> None:
        self._session, self._bound, self._draws = session, bound, draws
        self.latencies_ns: list[int] = []
        self._prepared: dict[int, tuple[list[DrawnCall], list[Expected]]] = {}

    def prepare(self, lengths: tuple[int, ...]) -> None:
        self._prepared = {calls: self._draws.fresh(calls) for calls in lengths}

    def run(self, calls: int) -> Times:
        drawn, expected = self._prepared.pop(calls) if calls in self._prepared else self._draws.fresh(calls)
        if self._bound.on_device:
            self.latencies_ns.append(self._bound.device_latency_ns())
        return Times(*self._session.call_and_verify(self._bound, drawn, expected))

    def inspection(self, calls: int) -> Turn | None:
        """A block of calls of which some have planted values: its results are verified, its time is not used."""
        ready = self._draws.planted(calls)
        return None if ready is None else lambda: self._inspect(*ready)

    def _inspect(self, drawn: list[DrawnCall], expected: list[Expected]) -> None:
        if self._bound.on_device:
            self.latencies_ns.append(self._bound.device_latency_ns())
        self._session.call_and_verify(self._bound, drawn, expected)


class ReferenceCalls:
    """The reference or (``pretend``) the shim, called one call after another."""

    way: schema.Way = "called"

    def __init__(self, bound: BoundWorker, draws: FreshCalls, pretend: bool) -> None:
        self._bound, self._draws, self._pretend = bound, draws, pretend

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """Do nothing: the candidate's values are used."""

    def run(self, calls: int) -> Times:
        self._bound.present(self._draws.again(calls))
        try:
            block = self._bound.time(calls, time.monotonic() + HOUSEKEEPING_SECONDS, self._pretend)
        except FAILURES as error:
            raise ReferenceLostError(own_worker_failure(error)) from error
        return Times(block.elapsed_ns, block.claimed_ns)


class CandidateChain:
    """The candidate, its calls chained but not captured: each call's arguments are made from the last call's result.

    So calls cannot be made together. The cost of chaining itself is also in the shim's time.
    """

    way: schema.Way = "chained"

    def __init__(self, session: CandidateSession, bound: BoundWorker, draws: FreshCalls) -> None:
        self._session, self._bound, self._draws = session, bound, draws

    def prepare(self, lengths: tuple[int, ...]) -> None:
        for calls in lengths:
            self._draws.series(calls, self.way).draw_unevaluated(secrets.randbits(63))

    def run(self, calls: int) -> Times:
        series, chain = self._draws.series(calls, self.way), self._draws.chain(calls)
        if chain is None:
            raise UncapturableError("no argument can be made from a result")
        return Times(*self._session.call_and_verify_chained(self._bound, series, chain))


class ReferenceChain:
    """The reference or (``pretend``) the shim, its calls chained but not captured."""

    way: schema.Way = "chained"

    def __init__(self, bound: BoundWorker, draws: FreshCalls, pretend: bool) -> None:
        self._bound, self._draws, self._pretend = bound, draws, pretend

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """Do nothing: the candidate's values are used."""

    def run(self, calls: int) -> Times:
        self._bound.present(self._draws.series(calls, self.way).calls())
        chain, deadline = self._draws.chain(calls), time.monotonic() + HOUSEKEEPING_SECONDS
        try:
            block = self._bound.time(calls, deadline, self._pretend, chain)
        except FAILURES as error:
            raise ReferenceLostError(own_worker_failure(error)) from error
        return Times(block.elapsed_ns, block.claimed_ns)


class Graphs:
    """Captured calls of one party, chained or not: one CUDA graph for each number of calls."""

    def __init__(
        self, bound: BoundWorker, draws: FreshCalls, sweep: Sweep | None, chained: bool, pretend: bool = False
    ) -> None:
        self.way: schema.Way = "chained" if chained else "captured"
        self._bound, self._draws, self._sweep, self._pretend = bound, draws, sweep, pretend
        self._captured: dict[int, Captured] = {}

    def series(self, calls: int) -> Series:
        return self._draws.series(calls, self.way)

    def chain(self, calls: int) -> Chain | None:
        return self._draws.chain(calls) if self.way == "chained" else None

    def capture(self, calls: int, deadline: float) -> Captured:
        """The graph of this many calls, which is recorded at the first use."""
        if calls not in self._captured:
            chain = self.chain(calls)
            self._captured[calls] = Captured(self._bound, calls, deadline, self._pretend, self._sweep, chain)
        return self._captured[calls]


class CandidateGraphs(Graphs):
    """The candidate, its calls captured."""

    def __init__(
        self, session: CandidateSession, bound: BoundWorker, draws: FreshCalls, sweep: Sweep | None, chained: bool
    ) -> None:
        super().__init__(bound, draws, sweep, chained)
        self._session = session
        self.latencies_ns: list[int] = []
        self._drawn: set[int] = set()

    def prepare(self, lengths: tuple[int, ...]) -> None:
        for calls in lengths:
            self._draw(calls)
        self._drawn = set(lengths)

    def _draw(self, calls: int) -> None:
        draw = self.series(calls).draw if self.way == "captured" else self.series(calls).draw_unevaluated
        draw(secrets.randbits(63))

    def run(self, calls: int) -> Times:
        captured = self.record(calls)
        if calls not in self._drawn:
            self._draw(calls)
        self._drawn.discard(calls)
        return self._play(captured, calls)

    def inspection(self, calls: int) -> Turn | None:
        """Inspect a block now and not as a turn: a series holds one block's values, and the round's come later."""
        captured = self._captured.get(calls)
        if captured is not None and self._draws.plans:
            self.series(calls).draw_planted(secrets.randbits(63), self._draws.plans)
            self._play(captured, calls)
        return None

    def _play(self, captured: Captured, calls: int) -> Times:
        self._bound.finish_device_work()
        self.latencies_ns.append(self._bound.device_latency_ns())
        values = self.series(calls).storages
        # The arguments of chained calls do not follow from the seed alone.
        with self._session.noting_calls(self.series(calls).calls if self.way == "captured" else tuple):
            times = self._session.allow(lambda deadline: captured.play(values, deadline))
        self._verify(captured, self.series(calls))
        return times

    def record(self, calls: int) -> Captured:
        if calls in self._captured:
            return self._captured[calls]
        captured = self._session.allow(lambda deadline: self.capture(calls, deadline))
        self._raise_objection(captured.objection())
        return captured

    def _verify(self, captured: Captured, series: Series) -> None:
        outputs = captured.collect()
        stage = self._session.clock.stage
        if not captured.was_finished():
            message = "results changed after the calls were reported done: work continued after the reply"
            raise VerdictError(schema.Cheated(stage, "late-work", message))
        self._raise_objection(BandGuard().examine(captured.block))
        chain = self.chain(series.count)
        if chain is not None:
            series.follow(chain, outputs)
        match series.compare(outputs, captured.arguments_after()):
            case Mismatch(reason=reason, message=message, errors=errors, call=index, wrong=wrong):
                # The arguments of chained calls do not follow from the seed alone.
                replay = verdict_wording.replay_of(series.calls()[index]) if chain is None else None
                message += verdict_wording.about_inputs(replay, self._session.job.case) if replay is not None else ""
                raise VerdictError(schema.Disagrees(stage, reason, message, errors, replay, wrong))
        self._session.verified += series.count

    def _raise_objection(self, objection: GuardFinding | None) -> None:
        if objection is not None:
            raise VerdictError(verdict_wording.wrong_place(self._session.clock.stage, objection))


class ReferenceGraphs(Graphs):
    """The reference or (``pretend``) the shim, its calls captured."""

    def prepare(self, lengths: tuple[int, ...]) -> None:
        """Do nothing: the candidate's values are used."""

    def run(self, calls: int) -> Times:
        captured = self.record(calls)
        try:
            return captured.play(self.series(calls).storages, time.monotonic() + HOUSEKEEPING_SECONDS)
        except FAILURES as error:
            raise ReferenceLostError(own_worker_failure(error)) from error

    def record(self, calls: int) -> Captured:
        """Record the calls. A lack of memory makes them uncapturable only if the candidate cannot have caused it: the
        candidate must not choose how a case is measured.
        """
        try:
            return self.capture(calls, time.monotonic() + HOUSEKEEPING_SECONDS)
        except FAILURES as error:
            raise ReferenceLostError(own_worker_failure(error)) from error
        except UncapturableError as error:
            if isinstance(error.__cause__, CandidateFailedError):
                _raise_lack_unless_excused(error.__cause__)
            raise


def _raise_lack_unless_excused(failed: CandidateFailedError) -> None:
    """Raise torch.OutOfMemoryError for a lack of memory that a candidate may have caused; else do nothing."""
    try:
        own_worker_failure(failed)
    except operator_errors():
        return
