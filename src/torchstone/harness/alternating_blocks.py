"""Times a baseline and an optimized benchmark in short blocks that alternate in random order: drift affects both."""

from __future__ import annotations

import math
import os
import random
import statistics
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from torchstone.benchmarks import BenchmarkMode
from torchstone.harness.benchmark_process_messages import Block, EndMeasurement, MeasurementReply, TakeBlock, TakeTurn
from torchstone.harness.side_run import SideRun
from torchstone.harness.timing_stats import block_means
from torchstone.measuring.block_ratio import CPU_QUANTILE, CUDA_QUANTILE, block_ratio

WANTED_ROUNDS = 60
"""Rounds (blocks per side) that suffice to estimate a low quantile and its interval."""
LEAST_EXPLICIT_ROUNDS = 20
"""Least rounds if the number of calls is given; blocks may then be shorter than `BLOCK_MS`."""
BLOCK_MS = {"cpu": 1.0, "cuda": 2.0}
"""Target time of a block, by device type: long compared with a context switch of a core or a device."""
LEAST_CALLS = 100
MOST_CALLS = 10_000
"""Bounds for the calls of a side (baseline or optimized) if no number is given. Every sample is stored."""
BUDGET_SHARE = 0.7
"""Share of the measurement's time limit that is used if the number of calls is not given."""
CERTAIN_ENOUGH = 1.03
"""No more blocks are taken once the upper end of the speedup's interval is less than this many times the lower end."""
FURTHER_SECONDS = 4.0
"""Measuring time of a side after which no more blocks are taken, however wide the interval is."""
FURTHER_CALLS = 10_000
"""Calls of a side after which no more blocks are taken, since every sample is stored."""
SHORT_MS = 5.0
"""Calls shorter than this are preceded by an untimed call in each CUDA block. For longer calls an idle device at the
start makes no difference."""
TURNS = 8
"""Turns of each side if triton's or torch's own timer is used. One turn takes many samples."""
_IGNORED_WARMUP_SHARE = 0.5
"""Share of the warm-up calls, the first ones, that is left out when the time of a call is estimated."""

T = TypeVar("T")


class Wanted(msgspec.Struct, frozen=True):
    """The requested calls of one side, and how long one call takes."""

    iterations: int | None
    """None: as many as needed."""
    min_run_time_ms: float
    budget_ms: float
    call_ms: float
    block_ms: float


def plan_blocks(sides: Sequence[Wanted]) -> list[list[int]]:
    """Number of calls of each block, for each side. If the number of calls is given, the blocks add up to it."""
    calls_per_block = [max(1, math.ceil(side.block_ms / side.call_ms)) for side in sides]
    rounds = min(_rounds(side, calls) for side, calls in zip(sides, calls_per_block, strict=True))
    return [_blocks(side, calls, rounds) for side, calls in zip(sides, calls_per_block, strict=True)]


def _rounds(side: Wanted, calls_per_block: int) -> int:
    if side.iterations is not None:
        by_length = math.ceil(side.iterations * side.call_ms / side.block_ms)
        return min(side.iterations, max(LEAST_EXPLICIT_ROUNDS, min(by_length, WANTED_ROUNDS)))
    needed = max(LEAST_CALLS, math.ceil(side.min_run_time_ms / side.call_ms))
    wanted = max(WANTED_ROUNDS, math.ceil(min(needed, MOST_CALLS) / calls_per_block))
    return max(1, min(wanted, int(side.budget_ms / side.call_ms)))


def _blocks(side: Wanted, calls_per_block: int, rounds: int) -> list[int]:
    if side.iterations is not None:
        most = min(rounds, side.iterations)
        whole, rest = divmod(side.iterations, most)
        return [whole + (number < rest) for number in range(most)]
    needed = max(LEAST_CALLS, math.ceil(side.min_run_time_ms / side.call_ms), rounds * calls_per_block)
    affordable = int(side.budget_ms / side.call_ms / rounds)
    return [max(1, min(math.ceil(min(needed, MOST_CALLS) / rounds), affordable))] * rounds


def take_turns(sides: Sequence[SideRun], order: random.Random) -> None:
    """Time every side that is alive, then request its memory statistics, metrics and outputs."""
    present = [side for side in sides if side.is_alive and not side.has_failed]
    modes = {side.settings.mode for side in present}
    if modes and modes != {BenchmarkMode.CUSTOM}:
        _take_turns_of_timers(present, order)
    else:
        _take_blocks(present, order)
    for side in present:
        if not side.has_failed:
            side.measured = side.ask("measurement", EndMeasurement(), MeasurementReply) or side.measured


def _take_turns_of_timers(sides: Sequence[SideRun], order: random.Random) -> None:
    for _ in range(TURNS):
        for side in _shuffled(sides, order):
            if not side.has_failed:
                share_ms = side.settings.min_run_time_ms / TURNS
                block = side.ask("measurement", TakeTurn(side.settings.mode.value, share_ms), Block)
                side.blocks += [] if block is None else [block]


def _take_blocks(sides: Sequence[SideRun], order: random.Random) -> None:
    taken = {id(side): 0 for side in sides}
    if any(not side.warm_ms for side in sides):  # the time of a call is not known yet
        for side in _shuffled(sides, order):
            taken[id(side)] += _take(side, 1)
    left = [side for side in sides if not side.has_failed]
    wanted = [_wanted_calls(side, taken[id(side)]) for side in left]
    todo = [(side, want) for side, want in zip(left, wanted, strict=True) if want.iterations != 0]
    plans = plan_blocks([want for _, want in todo]) if todo else []
    planned = [(side, plan) for (side, _), plan in zip(todo, plans, strict=True)]
    _take_rounds(planned, order)
    while _needs_more_rounds(planned):
        _take_rounds(planned, order)


def _take_rounds(planned: Sequence[tuple[SideRun, list[int]]], order: random.Random) -> None:
    for number in range(max((len(plan) for _, plan in planned), default=0)):
        for side, plan in _shuffled(planned, order):
            if number < len(plan) and not side.has_failed and not _has_used_time_budget(side):
                _take(side, plan[number])


def _needs_more_rounds(planned: Sequence[tuple[SideRun, list[int]]]) -> bool:
    """Whether the ratio is still too uncertain, and there is time to take as many blocks again."""
    sides = [side for side, _ in planned]
    if len(sides) < 2 or any(
        side.has_failed or side.sets("iterations") or _has_used_time_budget(side) for side in sides
    ):
        return False
    spent = max(side.spent_seconds("measurement") for side in sides)
    most = max(sum(len(block.times_ms) for block in side.blocks) for side in sides)
    if spent >= FURTHER_SECONDS or most >= FURTHER_CALLS:
        return False
    baseline, optimized = (block_means(side.blocks) for side in sides)
    found = block_ratio(baseline, optimized, CPU_QUANTILE if sides[0].device == "cpu" else CUDA_QUANTILE)
    return found.low is None or found.high is None or found.high / found.low > CERTAIN_ENOUGH


def _take(side: SideRun, calls: int) -> int:
    is_short = side.uses_events and _call_ms(side) < SHORT_MS
    # Two cores of one machine issue the same calls at speeds that differ by half. So short calls of both sides are
    # issued from one core. Long calls keep all cores, since they may start processes and threads.
    cores = (max(os.sched_getaffinity(0)),) if is_short else ()
    block = side.ask("measurement", TakeBlock(calls, side.uses_events, is_short, cores), Block)
    if block is None:
        return 0
    side.blocks.append(block)
    return len(block.times_ms)


def _wanted_calls(side: SideRun, taken: int) -> Wanted:
    settings = side.settings
    limit_ms = side.limit_seconds("measurement") * 1e3
    return Wanted(
        iterations=settings.iterations - taken if side.sets("iterations") else None,
        min_run_time_ms=settings.min_run_time_ms,
        budget_ms=max(0.0, BUDGET_SHARE * limit_ms - side.spent_seconds("measurement") * 1e3),
        call_ms=max(1e-4, _call_ms(side)),
        block_ms=BLOCK_MS["cpu" if side.device == "cpu" else "cuda"],
    )


def _call_ms(side: SideRun) -> float:
    known = side.warm_ms or tuple(sample for block in side.blocks for sample in block.times_ms)
    return statistics.median(known[int(len(known) * _IGNORED_WARMUP_SHARE) :])


def _has_used_time_budget(side: SideRun) -> bool:
    """Whether a side whose number of calls is not given has used its share of the time."""
    if side.sets("iterations") or not side.blocks:
        return False
    return side.spent_seconds("measurement") >= BUDGET_SHARE * side.limit_seconds("measurement")


def _shuffled(items: Sequence[T], order: random.Random) -> list[T]:
    return order.sample(list(items), len(items))
