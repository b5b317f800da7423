"""What the guards cost: judging a case with them against judging it without, alternately in one process.

    python benchmarks/guards.py [--device cpu|cuda] [--repeats 5]

Without guards the judge still checks and times: it draws values, calls, compares and measures. It does not stop and
start the worker around each block, does not look at the bands between buffers or at kept results, plants no values,
inspects no blocks, has no speed confirmed by chained calls or by the reference alone, asks no guard about the
measurement, judges no hidden variants and has nothing attributed. Both take as many rounds as the effort has at least:
how many more there are until an interval is narrow is chance, and would be the most of the difference.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

from torchstone.court import captured, contest, hearing, trial
from torchstone.court.alone import Beforehand
from torchstone.court.courtroom import Courtroom
from torchstone.court.hearing import Hearing
from torchstone.court.lane import Lane
from torchstone.court.trial import Trial, judge
from torchstone.measuring.ceilings import DeviceCeilings
from torchstone.measuring.device import DeviceProbe
from torchstone.measuring.kept_ceilings import KeptCeilings
from torchstone.measuring.procedure import Inspections
from torchstone.schema import Agrees, Case, Implementation, ImportPath, Job, Normal, Scalar, Sequence, Tensor
from torchstone.workers.handle import Worker
from torchstone.workers.pool import WorkerOptions, WorkerPool

WANTED = 0.5


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
        (hearing, "BLOCK_GUARDS", ()),
        (captured, "PLACE_GUARDS", ()),
        (contest, "_examine", nothing),
        (contest._Contest, "_confirm_by_chains", nothing),
        (Inspections, "due", lambda self, lengths: []),
        (Hearing, "wear", nothing),
        (Hearing, "draw_with_planted", lambda self, reference, count, like: self.draw(reference, count)[1]),
        (Trial, "_attribute", nothing),
        (trial, "check_hidden", nothing),
        (trial, "reference_beforehand", lambda *parts: Beforehand()),
        (trial, "with_reference_alone", lambda hearing, stand, reference, measurement, before: measurement),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, replacement in switched_off:
            stack.enter_context(mock.patch.object(owner, name, replacement))
        yield


def seconds(room: Courtroom, case: Case, device: str) -> float:
    native = Implementation("aten", case.operator, ImportPath("torch", f"ops.{case.operator}"), "aten")
    began = time.perf_counter()
    with mock.patch.object(contest, "is_precise_enough", return_value=True):
        record = judge(Job(case, native), room, device, "benchmark", "best")
    elapsed = time.perf_counter() - began
    assert isinstance(record.verdict, Agrees), record.verdict
    return elapsed


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
    room = Courtroom(pool, Lane(options.device), device, 1, DeviceProbe(options.device), ceilings)
    total = {"with": 0.0, "without": 0.0}
    try:
        for case in cases(options.device):
            seconds(room, case, options.device)
            found: dict[str, list[float]] = {"with": [], "without": []}
            for _ in range(options.repeats):
                found["with"].append(seconds(room, case, options.device))
                with no_guards():
                    found["without"].append(seconds(room, case, options.device))
            usual = {name: statistics.median(values) for name, values in found.items()}
            for name, value in usual.items():
                total[name] += value
            share = usual["with"] / usual["without"] - 1
            print(f"{case.operator:28s} without {usual['without'] * 1e3:8.1f} ms, guards add {share:6.1%}")
    finally:
        room.close()
    share = total["with"] / total["without"] - 1
    print(f"{'all':28s} without {total['without'] * 1e3:8.1f} ms, guards add {share:6.1%} (wanted: under {WANTED:.0%})")


if __name__ == "__main__":
    main()
