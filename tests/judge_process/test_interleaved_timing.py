"""The end of a measurement: what is timed for it has the lane, and its limit is that of the calls that count."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchstone import schema
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judge_process.interleaved_timing import _run_and_examine
from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.judging import Reference, draw_call
from torchstone.measuring import short_blocks
from torchstone.measuring.device_state import DeviceProbe

CPU = torch.device("cpu")
CASE = schema.Case("tests", "aten.relu.default", (schema.Tensor((33, 65), "float32", schema.Normal()),))
CALLS, PAIRS = 8, 12
NS: dict[schema.Party, int] = {"candidate": 400_000, "reference": 500_000, "shim": 20_000}
IN_BLOCKS = [schema.Block(number, party, CALLS, ns, ns) for number in range(PAIRS) for party, ns in NS.items()]
REPEATED = [
    schema.Block(number, "reference", calls, 50_000 + 10_000 * calls, 0, "repeated")
    for number in range(PAIRS, 2 * PAIRS)
    for calls in (1, 100)
]


class Resources:
    """What the end of a measurement asks of a judge."""

    threads, device = 1, CPU

    def __init__(self, folder: Path) -> None:
        self.lane, self.probe = MeasuringLane("cpu", folder), DeviceProbe("cpu")
        self.had_the_lane: list[bool] = []
        self.calls_in_a_row: list[int] = []

    @property
    def peak_bytes_per_second(self) -> float:
        self.had_the_lane.append(self.lane.is_exclusive)
        return 1e15

    def speed_of_light(self, work: Any, calls: int, cache: schema.Cache) -> None:
        self.calls_in_a_row.append(calls)

    def preparable_share(self, reference: Any) -> float:
        return 0.0

    def discard_exceeded_ceilings(self, measurement: schema.Measurement) -> None: ...


def held(resources: Resources, blocks: list[schema.Block]) -> schema.Measurement:
    """A measurement that ends with these blocks."""
    layout = CallLayout(CASE, Reference(CASE, CPU).expect(draw_call(CASE, 1, CPU)))
    stand = SimpleNamespace(layout=layout, result_strides=set())
    watch = SimpleNamespace(finish=lambda: None, slowed=(), disturbances=(), energy_millijoules=None)
    contest: Any = SimpleNamespace(
        method=short_blocks.METHOD,
        uncaptured="",
        latencies_ns=(),
        watch=watch,
        bound=stand,
        reference_worker=stand,
        reference=None,
    )
    contest.run_blocks = lambda: (blocks, CALLS)
    source = schema.SourceFiles((schema.SourceFile("k.py", "kernel = abs"),), "kernel")
    job = schema.Job(CASE, schema.Implementation("tests", CASE.operator, source), cache="warm")
    session: Any = SimpleNamespace(resources=resources, job=job, clock=SimpleNamespace(stage="measure"))
    work: Any = None
    with resources.lane.shared():
        return _run_and_examine(session, contest, work)


def test_the_bandwidth_for_the_guard_is_measured_with_the_lane(tmp_path: Path) -> None:
    resources = Resources(tmp_path)
    held(resources, IN_BLOCKS)
    assert resources.had_the_lane == [True]


@pytest.mark.parametrize(("blocks", "calls"), [(IN_BLOCKS, CALLS), ([*IN_BLOCKS, *REPEATED], 1)])
def test_the_limit_of_a_repeated_call_is_that_of_one_calls_memory(
    blocks: list[schema.Block], calls: int, tmp_path: Path
) -> None:
    resources = Resources(tmp_path)
    held(resources, blocks)
    assert resources.calls_in_a_row == [calls]
