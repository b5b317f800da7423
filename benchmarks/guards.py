"""What the guards cost: judging a case with them against judging it without, alternately in one process.

    python benchmarks/guards.py [--device cpu|cuda] [--repeats 5]

Without guards the judge draws values, calls, compares and measures. It leaves out:

- stopping the worker around each block;
- the bands between buffers, and kept results;
- planted values and inspected blocks;
- confirmation by chained calls and by the reference alone;
- guards over the measurement, hidden variants, attribution.

Hidden variants are also shown apart, because they are further cases. Both sides take as many rounds as this kernel
usually needs: the number in a single judgement is chance, and would be most of the difference.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from unittest import mock

import msgspec
import torch

from torchstone.judge_process import candidate_session, cuda_graph_calls, interleaved_timing, staged_job
from torchstone.judge_process.candidate_session import CandidateSession
from torchstone.judge_process.job_retries import judge
from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.judge_process.reference_timed_without_candidate import Beforehand
from torchstone.judge_process.resources import JudgeResources
from torchstone.judge_process.staged_job import StagedJob
from torchstone.measuring import long_block_experiment
from torchstone.measuring.ceilings import DeviceCeilings
from torchstone.measuring.device_state import DeviceProbe
from torchstone.measuring.kept_ceilings import KeptCeilings
from torchstone.measuring.long_block_experiment import Inspections
from torchstone.schema import (
    Agrees,
    Block,
    Case,
    Implementation,
    ImportPath,
    Job,
    Normal,
    Record,
    Scalar,
    Sequence,
    Tensor,
)
from torchstone.supervisor.worker_handle import Worker
from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool

WANTED = 0.5
ALL = "all of it"
LOOKS = 5
"""At a case, to see how many rounds it usually takes."""


def cases(device: str) -> list[Case]:
    """Kernels that take more than ten microseconds."""
    side = 1024 if device == "cpu" else 4096
    square = Tensor((side // 2, side // 2), "float32", Normal())
    wide = Tensor((side, side), "float32", Normal())
    table: list[tuple[str, tuple[Any, ...]]] = [
        ("aten.relu.default", (wide,)),
        ("aten.add.Tensor", (wide, wide)),
        ("aten.sum.dim_IntList", (wide, Sequence((Scalar(1),)))),
        ("aten._softmax.default", (wide, Scalar(-1), Scalar(False))),
        ("aten.mm.default", (square, square)),
    ]
    return [Case("guards", operator, args, timed=True) for operator, args in table]


@contextlib.contextmanager
def no_guards() -> Iterator[None]:
    """The judge as it would be without them."""

    def nothing(*parts: object, **named: object) -> None: ...

    switched_off: list[tuple[Any, str, Any]] = [
        (Worker, "freeze", nothing),
        (candidate_session, "BLOCK_GUARDS", ()),
        (cuda_graph_calls, "PLACE_GUARDS", ()),
        (interleaved_timing, "_examine", nothing),
        (interleaved_timing._InterleavedTiming, "_confirm_by_chains", nothing),
        (Inspections, "due", lambda self, lengths: []),
        (CandidateSession, "make_unchecked_calls", nothing),
        (
            CandidateSession,
            "draw_with_planted",
            lambda self, reference, count, *_, **__: self.draw(reference, count)[1],
        ),
        (StagedJob, "_attribute", nothing),
        (staged_job, "HiddenVariants", mock.MagicMock()),
        (staged_job, "reference_beforehand", lambda *parts: Beforehand()),
        (staged_job, "with_reference_alone", lambda session, bound, reference, measurement, before: measurement),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, replacement in switched_off:
            stack.enter_context(mock.patch.object(owner, name, replacement))
        yield


@contextlib.contextmanager
def no_hidden_variants() -> Iterator[None]:
    with mock.patch.object(staged_job, "HiddenVariants"):
        yield


Way = Callable[[], contextlib.AbstractContextManager[None]]
WAYS: dict[str, Way] = {"without": no_guards, "guards": no_hidden_variants, "all": contextlib.nullcontext}


def judged(resources: JudgeResources, case: Case, device: str) -> Record:
    native = Implementation("aten", case.operator, ImportPath("torch", f"ops.{case.operator}"), "aten")
    record = judge(Job(case, native), resources, device, "benchmark", "best")
    assert isinstance(record.verdict, Agrees), (record.verdict, case.operator)
    return record


def usual_rounds(resources: JudgeResources, case: Case, device: str) -> int:
    """Of long blocks, until the plan finds its interval narrow enough."""
    found = []
    for _ in range(LOOKS):
        measurement = judged(resources, case, device).measurement
        assert measurement is not None
        found.append(rounds_of([block for block in measurement.blocks if block.calls == measurement.distinct_inputs]))
    return statistics.median_low(found)


def rounds_of(blocks: Iterable[Block]) -> int:
    return len({block.round for block in blocks})


def stages(resources: JudgeResources, case: Case, device: str, rounds: int) -> dict[str, float]:
    """How many seconds each stage took, and all of it."""
    as_many = msgspec.structs.replace(long_block_experiment.TIMING_PLANS["normal"], most_rounds=rounds)
    with (
        mock.patch.dict(long_block_experiment.TIMING_PLANS, normal=as_many),
        mock.patch.object(interleaved_timing, "is_precise_enough", return_value=False),
        mock.patch.object(Worker, "check_silence"),  # who does not stand still answers at once what was sent ahead
    ):
        began = time.perf_counter()
        record = judged(resources, case, device)
        return {ALL: time.perf_counter() - began, **record.stage_seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    pool = WorkerPool(WorkerOptions(device_type=options.device))
    pool.start()
    device = torch.device("cpu") if options.device == "cpu" else torch.device("cuda", 0)
    ceilings = DeviceCeilings(device, 1, (), KeptCeilings(None))
    resources = JudgeResources(pool, MeasuringLane(options.device), device, 1, DeviceProbe(options.device), ceilings)
    total = {name: Counter[str]() for name in WAYS}
    try:
        for case in cases(options.device):
            rounds = usual_rounds(resources, case, options.device)
            found: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
            for _ in range(options.repeats):
                for name, way in WAYS.items():
                    with way():
                        found[name].append(stages(resources, case, options.device, rounds))
            usual = {name: medians(times) for name, times in found.items()}
            for name, times in usual.items():
                total[name].update(times)
            print(f"{case.operator:24s} {rounds:3d} rounds, {told(usual)}", flush=True)
    finally:
        resources.close()
    print(f"{'all':36s} {told(total)} (wanted: under {WANTED:.0%})")
    for name in ("guards", "all"):
        more = {stage: total[name][stage] - total["without"][stage] for stage in total[name] if stage != ALL}
        print(f"{name:7s} more in", ", ".join(f"{stage} {each * 1e3:.0f} ms" for stage, each in more.items()))


def medians(found: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for times in found for name in times)
    return {name: statistics.median(times.get(name, 0.0) for times in found) for name in names}


def told(times: Mapping[str, Mapping[str, float]]) -> str:
    bare = times["without"][ALL]
    share = {name: each[ALL] / bare - 1 for name, each in times.items()}
    return f"without {bare * 1e3:7.1f} ms, guards add {share['guards']:6.1%}, with hidden variants {share['all']:6.1%}"


if __name__ == "__main__":
    main()
