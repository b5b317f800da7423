"""Runs one pair on this machine: a baseline and an optimized file, in Python (then profiled, if wanted) or `.cu`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from torchstone.benchmarks.config import merge
from torchstone.harness.benchmark_process_messages import FileSource
from torchstone.harness.cuda_files import compare_cuda_files
from torchstone.harness.fork_server import ForkServer
from torchstone.harness.pair_runner import PairOrder
from torchstone.harness.pair_session import Circumstances, Session, SideOrder
from torchstone.harness.results import BenchmarkResult, Comparison, Side
from torchstone.harness.side_transports import ProcessTransport

Profile = Callable[[PairOrder, Comparison, ForkServer], Comparison]
"""Profiles the sides of a timed pair and returns the comparison with the metrics. The fork server starts processes."""


class LocalPairRunner:
    """Runs pairs on this machine, from several threads. Device work waits for the lane, a lock across processes."""

    def __init__(
        self, device_type: str = "cpu", profile: Profile | None = None, lane_folder: Path | None = None
    ) -> None:
        """`profile` is called after timing. `lane_folder` is for tests: otherwise all runs of a machine share one."""
        self._fork_server = ForkServer(is_cuda=device_type != "cpu", profiles=profile is not None)
        self._profile = profile
        self._lane_folder = lane_folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process from which sides are forked."""
        self._fork_server.stop()

    def run(self, order: PairOrder) -> Comparison:
        """Run the pair and compare its sides. A failure of a benchmark is a result, never an exception."""
        suffixes = {order.baseline.suffix, order.optimized.suffix}
        if suffixes == {".cu"}:
            return compare_cuda_files(order, self._lane_folder)
        if ".cu" in suffixes:
            return _different_languages(order)
        sides = [self._side(order, "baseline", order.baseline), self._side(order, "optimized", order.optimized)]
        session = Session(sides, circumstances(order, self._lane_folder))
        session.run()
        found = session.comparison(order.name, order.regression_threshold_pct)
        return found if self._profile is None else self._profile(order, found, self._fork_server)

    def _side(self, order: PairOrder, side: Side, path: Path) -> SideOrder:
        log = order.artifacts / f"{side}.log"
        source = FileSource(str(path.resolve()), str(order.root.resolve()))
        deterministic = merge(order.config, order.overrides).deterministic
        return SideOrder(side, source, lambda: ProcessTransport(self._fork_server, log, deterministic))


def circumstances(order: PairOrder, lane_folder: Path | None = None) -> Circumstances:
    """Device, seed and settings that both sides of the order share."""
    return Circumstances(
        device=order.device,
        seed=order.seed,
        config=order.config,
        overrides=order.overrides,
        lane_folder=lane_folder,
    )


def _different_languages(order: PairOrder) -> Comparison:
    message = "a .cu file can only be compared with another .cu file"
    failed = BenchmarkResult(status="failed", stage="load", errors=(message,))
    return Comparison(name=order.name, baseline=failed, optimized=failed)
