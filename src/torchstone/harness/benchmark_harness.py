"""Python API of the harness: `BenchmarkHarness` times one benchmark; two functions compare baseline and optimized.

`compare_benchmarks` takes two objects, `compare_baseline_optimized` two files.
"""

from __future__ import annotations

import datetime
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from torchstone.benchmarks import BenchmarkConfig, BenchmarkDefaults, BenchmarkMode
from torchstone.benchmarks.loading import missing_methods
from torchstone.benchmarks.parse_get_config import ConfigError, read_config
from torchstone.errors import UsageError
from torchstone.harness.benchmark_process_messages import FileSource
from torchstone.harness.fork_server import shared_fork_server
from torchstone.harness.object_transfer import CannotCrossError, source_of
from torchstone.harness.pair_session import Circumstances, Session, SideOrder
from torchstone.harness.results import BenchmarkResult, BenchmarkRun, Comparison, Side
from torchstone.harness.side_transports import ProcessTransport, ThreadTransport


class BenchmarkHarness:
    """Runs benchmark objects one by one, each in a process of its own with a deadline for every stage.

    An object that cannot be transferred to another process runs in a thread of this one, which cannot be killed.
    """

    def __init__(self, mode: BenchmarkMode | str | None = None, config: Any = None, device: str | None = None) -> None:
        """The benchmark's `get_config()` overrides `config`. `device`: `cuda:N` or `cpu`; by default a GPU, if any."""
        self._config = _caller_layer(config, mode)
        self._device = device or _default_device()

    def benchmark(self, benchmark: Any) -> BenchmarkResult:
        """Run the benchmark and return its result. A failure of the benchmark is a result, never an exception."""
        session = _session([("baseline", benchmark)], self._config, self._device)
        session.run()
        return session.sides[0].result()

    def benchmark_with_manifest(self, benchmark: Any, run_id: str | None = None) -> BenchmarkRun:
        """The result together with hardware, software, git, environment, seeds and settings."""
        from torchstone.runs.manifest import collect

        now = datetime.datetime.now(datetime.UTC)
        result = self.benchmark(benchmark)
        manifest = msgspec.structs.replace(
            collect(result.config), seeds={name: str(seed) for name, seed in result.seeds.items()}
        )
        return BenchmarkRun(
            run_id=run_id or now.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(2),
            timestamp=now.isoformat(timespec="seconds"),
            manifest=manifest,
            result=result,
        )


def compare_benchmarks(
    baseline: Any,
    optimized: Any,
    name: str = "",
    regression_threshold_pct: float = 5.0,
    *,
    config: Any = None,
    device: str | None = None,
) -> Comparison:
    """Time two benchmark objects in turn and compare their outputs. Call it before their `setup`."""
    where = device or _default_device()
    session = _session([("baseline", baseline), ("optimized", optimized)], _caller_layer(config), where)
    session.run()
    return session.comparison(name or type(optimized).__name__, regression_threshold_pct)


def compare_baseline_optimized(
    baseline: str | Path,
    optimized: str | Path,
    name: str = "",
    regression_threshold_pct: float = 5.0,
    *,
    root: str | Path | None = None,
    config: Any = None,
    device: str | None = None,
) -> Comparison:
    """Time the benchmarks of two files in turn and compare their outputs.

    `root` is the folder that holds the chapters, by default the one above the baseline's own.
    """
    where = device or _default_device()
    files: list[tuple[Side, Path]] = [("baseline", Path(baseline).resolve()), ("optimized", Path(optimized).resolve())]
    for _, path in files:
        if not path.is_file():
            raise UsageError(f"benchmark '{path}' is not a file.")
    top = Path(root).resolve() if root is not None else files[0][1].parent.parent
    fork_server = shared_fork_server(where != "cpu")
    sides = [
        SideOrder(side, FileSource(str(path), str(top)), lambda: ProcessTransport(fork_server, None))
        for side, path in files
    ]
    session = Session(sides, _circumstances(_caller_layer(config), where))
    session.run()
    return session.comparison(name or files[1][1].stem, regression_threshold_pct)


def _session(benchmarks: list[tuple[Side, Any]], config: BenchmarkConfig, device: str) -> Session:
    sides = [_side_order(side, benchmark, device) for side, benchmark in benchmarks]
    if any(order.source is None for order in sides):  # one in a thread and one in a process could not be compared
        sides = [SideOrder(side, None, _in_a_thread(benchmark)) for side, benchmark in benchmarks]
    return Session(sides, _circumstances(config, device))


def _side_order(side: Side, benchmark: Any, device: str) -> SideOrder:
    missing = missing_methods(benchmark)
    if missing:
        raise UsageError(f"{type(benchmark).__name__} is not a benchmark: it has no {', '.join(missing)}.")
    try:
        source = source_of(benchmark)
    except CannotCrossError:
        return SideOrder(side, None, _in_a_thread(benchmark))
    fork_server = shared_fork_server(device != "cpu")
    return SideOrder(side, source, lambda: ProcessTransport(fork_server, None))


def _in_a_thread(benchmark: Any) -> Callable[[], ThreadTransport]:
    return lambda: ThreadTransport(benchmark)


def _circumstances(config: BenchmarkConfig, device: str) -> Circumstances:
    return Circumstances(device=device, seed=secrets.randbelow(2**31), config=config)


def _caller_layer(config: Any, mode: BenchmarkMode | str | None = None) -> BenchmarkConfig:
    if isinstance(config, BenchmarkDefaults):  # a whole set of settings: each of them is meant
        config = msgspec.structs.asdict(config)
    try:
        layer, ignored = read_config(config)
        chosen = read_config({"mode": mode})[0].mode
    except ConfigError as error:
        raise UsageError(f"{error}.") from error
    if ignored:
        raise UsageError(
            f"unknown settings: {', '.join(ignored)}. Known: {', '.join(BenchmarkConfig.__struct_fields__)}."
        )
    return layer if chosen is None else msgspec.structs.replace(layer, mode=chosen)


def _default_device() -> str:
    from torchstone.executors.devices import visible_uuids

    return "cuda:0" if visible_uuids(os.environ) else "cpu"
