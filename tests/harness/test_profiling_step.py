"""Sides are profiled after timing, in runs of their own; whatever happens there is a note, never a failed benchmark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from benchmark_texts import QUICK, benchmark_text
from harness.trees import compared
from torchstone.benchmarks import BenchmarkConfig, BenchmarkDefaults
from torchstone.executors.devices import Device
from torchstone.harness import profiling_step
from torchstone.harness.fork_server import ForkServer
from torchstone.harness.local_runner import LocalPairRunner
from torchstone.harness.pair_runner import PairOrder
from torchstone.harness.profiler_metrics import metrics_of
from torchstone.harness.profiling_step import ProfilingStep
from torchstone.harness.results import Comparison
from torchstone.profiling import external_tools
from torchstone.schema import ProfiledKernel, ProfilerResult

Order = Callable[..., PairOrder]


@pytest.fixture(scope="module")
def profiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPairRunner]:
    told: list[str] = []
    lanes = tmp_path_factory.mktemp("lanes")
    with LocalPairRunner("cpu", ProfilingStep(told.append, lanes), lanes) as made:
        yield made
    assert told == [], "on a CPU no tool is missed"


@pytest.fixture
def order_of(tmp_path: Path) -> Order:
    def make(optimized: str, overrides: BenchmarkConfig = QUICK) -> PairOrder:
        chapter = tmp_path / "ch1"
        chapter.mkdir(exist_ok=True)
        (chapter / "baseline_it.py").write_text(benchmark_text())
        (chapter / "optimized_it.py").write_text(optimized)
        return PairOrder(
            name="ch1/it",
            root=tmp_path,
            baseline=chapter / "baseline_it.py",
            optimized=chapter / "optimized_it.py",
            device="cpu",
            seed=7,
            overrides=overrides,
            artifacts=tmp_path / "artifacts",
        )

    return make


def test_a_trace_of_calls_that_are_not_the_timed_ones_is_kept(
    profiler: LocalPairRunner, order_of: Order, tmp_path: Path
) -> None:
    log = tmp_path / "calls"
    text = benchmark_text(
        setup=f"self.log = open({str(log)!r}, 'a', buffering=1)",
        body="print(os.getpid(), file=self.log)\nself.output = self.x @ self.x",
    )
    side = profiler.run(order_of(text)).optimized
    assert side.succeeded, side
    calls = log.read_text().split()
    timed, profiled = calls[:10], calls[10:]
    assert len(set(timed)) == len(set(profiled)) == 1
    assert timed[0] != profiled[0], "a process of its own"
    assert len(profiled) == 4, "one to warm up, three that are watched"
    assert side.timing is not None
    assert side.timing.iterations == 8
    assert side.profiler_metrics is not None
    assert side.profiler_metrics.profilers == {"torch": "profiled"}
    assert side.profiler_metrics.kernel_time_ms is None, "a CPU has no kernels"
    assert side.watchdog["profiling"].status == "completed"
    assert side.watchdog["profiling"].duration > 0
    trace = json.loads(Path(side.artifacts["torch"]).read_bytes())
    names = [event["name"] for event in trace["traceEvents"] if event.get("cat") == "user_annotation"]
    assert [name for name in names if "torchstone" in name] == [f"torchstone: call {number}" for number in range(3)]
    assert sum(event["name"] == "aten::mm" for event in trace["traceEvents"]) == 3


def _in_the_second_process(mark: Path, body: str) -> str:
    """A benchmark that behaves until it is run again."""
    top = f"again = os.path.exists({str(mark)!r}); open({str(mark)!r}, 'w')"
    return benchmark_text(top=top, body=f"if again: {body}\nself.output = self.x @ self.x")


@pytest.mark.parametrize(
    ("body", "status", "note"),
    [
        ("raise ValueError('no')", "failed", "profiling with torch: the benchmark failed: ValueError: no"),
        ("os._exit(3)", "failed", "profiling with torch: its process ended with exit code 3"),
        (
            "time.sleep(60)",
            "timeout",
            "profiling with torch: it did not end within 1 s. Raise profiling_timeout_seconds.",
        ),
    ],
)
def test_a_profile_that_fails_is_a_note(
    profiler: LocalPairRunner, order_of: Order, tmp_path: Path, body: str, status: str, note: str
) -> None:
    short = msgspec.structs.replace(QUICK, profiling_timeout_seconds=10.0, timeout_multiplier=1.0)
    if status == "timeout":
        short = msgspec.structs.replace(short, profiling_timeout_seconds=1.0)
    found = profiler.run(order_of(_in_the_second_process(tmp_path / "mark", body), short))
    assert found.optimized.status == "succeeded"
    assert found.speedup is not None
    assert found.optimized.notes == (note,)
    assert found.optimized.watchdog["profiling"].status == status
    assert found.optimized.profiler_metrics is not None
    assert found.optimized.profiler_metrics.profilers["torch"].startswith("failed: ")
    assert "torch" not in found.optimized.artifacts
    assert found.baseline.watchdog["profiling"].status == "completed"


def test_a_benchmark_may_switch_profiling_off_for_itself(profiler: LocalPairRunner, order_of: Order) -> None:
    text = benchmark_text(more="def get_config(self):\n    return {'enable_profiling': False}")
    found = profiler.run(order_of(text))
    assert found.optimized.profiler_metrics is None
    assert "profiling" not in found.optimized.watchdog
    assert found.baseline.profiler_metrics is not None


def test_a_side_that_failed_is_not_profiled(profiler: LocalPairRunner, order_of: Order) -> None:
    found = profiler.run(order_of(benchmark_text(setup="raise ValueError('no')")))
    assert found.optimized.profiler_metrics is None
    assert found.baseline.profiler_metrics is not None, "what is known of the other side is kept"


def _timed(name: str) -> Comparison:
    """As the runner gives it, on CUDA."""
    config = msgspec.to_builtins(BenchmarkDefaults(profiling_timeout_seconds=20.0))
    found = compared(name)
    side = msgspec.structs.replace(found.baseline, config=config, seeds={"torch": 7})
    return msgspec.structs.replace(found, baseline=side, optimized=side)


def test_a_missing_tool_is_one_notice_and_the_result_stands(
    order_of: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling_step, "find_devices", lambda label: [Device("cuda", "cuda:0", "lane", "GPU-0")])
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(external_tools, "_FOLDERS", {})
    told: list[str] = []
    step = ProfilingStep(told.append, tmp_path)
    with ForkServer(is_cuda=False) as fork_server:
        for name in ("ch1/a", "ch1/b"):
            found = step(order_of(benchmark_text(top="raise ValueError('no device')")), _timed(name), fork_server)
            assert found.status == "succeeded"
            assert found.baseline.profiler_metrics is not None
            assert set(found.baseline.profiler_metrics.profilers) == {"torch"}, "it launches no kernel: nothing to see"
            assert found.optimized.profiler_metrics is not None
            assert found.optimized.profiler_metrics.profilers["ncu"].startswith("absent: not on this machine.")
            assert not any("nsys" in note or "ncu" in note for note in found.optimized.notes)
    assert [line.split(":")[0] for line in told] == ["profiling with nsys", "profiling with ncu"]
    assert told[1].endswith("Install NVIDIA Nsight Compute, or put ncu on the PATH. Timing and other profilers go on.")


def _seen(profiler: str, *kernels: ProfiledKernel) -> ProfilerResult:
    return ProfilerResult(profiler, "profiled", kernels=kernels)


def test_metrics_are_per_call_and_weighted_by_kernel_time() -> None:
    results = {
        "torch": _seen(
            "torch",
            ProfiledKernel("a", "kernel", 3, 3_000_000, occupancy_percent=10.0),
            ProfiledKernel("copy", "copy", 3, 9_000_000),
        ),
        "ncu": _seen(
            "ncu",
            ProfiledKernel("a", "kernel", 1, 3000, sm_percent=40.0, memory_percent=80.0, occupancy_percent=50.0),
            ProfiledKernel("b", "kernel", 1, 1000, sm_percent=80.0, memory_percent=40.0, l2_hit_percent=60.0),
        ),
        "nsys": ProfilerResult("nsys", "failed", "no end within 1 s."),
    }
    found = metrics_of(results, {"torch": 3, "ncu": 1, "nsys": 3})
    assert found.profilers == {"torch": "profiled", "ncu": "profiled", "nsys": "failed: no end within 1 s."}
    assert found.kernel_time_ms == pytest.approx(1.0), "of torch's, copies left out"
    assert found.sm_throughput_pct == pytest.approx(50.0)
    assert found.memory_throughput_pct == pytest.approx(70.0)
    assert (found.occupancy_pct, found.l2_hit_pct) == (50.0, 60.0)


def test_occupancy_is_torch_s_estimate_and_the_time_that_of_nsys_where_nobody_else_tells() -> None:
    torch_only = metrics_of(
        {"torch": _seen("torch", ProfiledKernel("a", "kernel", 1, 5, occupancy_percent=10.0))}, {"torch": 1}
    )
    assert (torch_only.occupancy_pct, torch_only.sm_throughput_pct) == (10.0, None)
    results = {
        "torch": ProfilerResult("torch", "failed", "no"),
        "nsys": _seen("nsys", ProfiledKernel("a", "kernel", 3, 6_000_000)),
        "ncu": _seen("ncu", ProfiledKernel("a", "kernel", 1000, 5)),
    }
    assert metrics_of(results, {"torch": 3, "nsys": 3, "ncu": 1}).kernel_time_ms == pytest.approx(2.0)
    del results["nsys"]
    assert metrics_of(results, {"torch": 3, "ncu": 1}).kernel_time_ms is None, "ncu stopped at its most launches"
