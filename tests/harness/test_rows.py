"""One test for each promise of the harness, H1 to H16, by its public names. Most look at one run of one small tree."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

from benchmark_texts import benchmark_text
from torchstone import harness
from torchstone.benchmarks.protocol import memory_scale
from torchstone.harness import (
    BaseBenchmark,
    Benchmark,
    BenchmarkConfig,
    BenchmarkDefaults,
    BenchmarkHarness,
    BenchmarkMode,
    BenchmarkResult,
    Comparison,
)
from torchstone.harness.run import read_pairs
from torchstone.runs.folder import read_manifest
from torchstone.schema import Manifest, difference

DUCK = """
import os, random
import numpy, torch

class TheirConfig:
    def __init__(self, iterations=50, warmup=5, percentiles=None, unknown=0):
        self.iterations, self.warmup, self.percentiles, self.unknown = iterations, warmup, percentiles, unknown

class Duck:
    def setup(self):
        self.drawn = {"random": random.random(), "numpy": numpy.random.rand(), "torch": torch.rand(1).item()}
        self.x = torch.rand(48, 48)
    def benchmark_fn(self):
        self.output = self.x @ self.x
        return {"ttft_times_ms": [1.0, 3.0], "tpot_times_ms": [0.5]}
    def teardown(self):
        self.x = None
    def get_config(self):
        return TheirConfig(iterations=33, warmup=3, percentiles=[99.9])
    def validate_result(self):
        return None
    def get_custom_metrics(self):
        return {"pid": os.getpid(), "deterministic": int(torch.are_deterministic_algorithms_enabled()), **self.drawn}
"""


def _with_method(name: str, body: str) -> str:
    return benchmark_text(more=f"def {name}(self):\n    {body}")


GOOD = benchmark_text()
TREE = {
    "ch1/baseline_duck.py": DUCK,
    "ch1/optimized_duck.py": DUCK,
    "ch1/baseline_duck_long.py": DUCK,
    "ch1/optimized_duck_long_fast.py": DUCK,
    "ch2/baseline_invalid.py": GOOD,
    "ch2/optimized_invalid.py": _with_method("validate_result", "return 'it is wrong'"),
    "ch2/baseline_crash.py": GOOD,
    "ch2/optimized_crash.py": benchmark_text(setup="import ctypes; ctypes.string_at(0)"),
    "ch2/baseline_hang.py": GOOD,
    "ch2/optimized_hang.py": benchmark_text(
        setup="time.sleep(60)", more="def get_config(self):\n    return {'setup_timeout_seconds': 1.0}"
    ),
    "ch3/baseline_slower.py": GOOD,
    "ch3/optimized_slower.py": benchmark_text(body="for _ in range(20): self.output = self.x @ self.x"),
    "ch3/baseline_hardware.py": GOOD,
    "ch3/optimized_hardware.py": _with_method("get_config", "return BenchmarkConfig(min_capability='99.0')"),
    "ch3/baseline_timer.py": _with_method("get_config", "return {'mode': 'pytorch'}"),
    "ch3/optimized_timer.py": _with_method("get_config", "return {'mode': 'pytorch'}"),
    "ch9/baseline_other.py": GOOD,
    "ch9/optimized_other.py": GOOD,
}
ITERATIONS = 12
WHERE = ("--device", "cpu", "--run-id", "rows")


class Ran(NamedTuple):
    """What the command left behind."""

    exit_code: int
    stderr: str
    root: Path
    folder: Path
    pairs: dict[str, Comparison]

    def side(self, name: str) -> BenchmarkResult:
        return self.pairs[name].optimized


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One real command, with profiling on."""
    root = tmp_path_factory.mktemp("rows") / "tree"
    for name, text in TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    targets = ("--targets", "ch1,ch2", "--targets", "ch3")
    options = ("--reproducible", "--cold-start", "--timeout-multiplier", "2.0", "--iterations", str(ITERATIONS))
    done = subprocess.run(
        [sys.executable, "-m", "torchstone", "pairs", "run", str(root), *targets, *options, *WHERE],
        cwd=root.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    folder = root.parent / "artifacts" / "rows"
    pairs = {record.name: record.comparison for record in read_pairs(folder).report.pairs}
    return Ran(done.returncode, done.stderr, root, folder, pairs)


@pytest.fixture(autouse=True)
def _own_search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a benchmark makes its folders importable for good."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_h1_a_class_with_three_methods_is_a_benchmark_and_two_more_are_optional(ran: Ran) -> None:
    duck = harness.load_benchmark(ran.root / "ch1" / "baseline_duck.py", ran.root)
    assert isinstance(duck, Benchmark)
    assert not isinstance(duck, BaseBenchmark), "found by its methods alone"
    assert ran.pairs["ch1/duck"].status == "succeeded"
    assert ran.side("ch1/duck").config["percentiles"] == [99.9], "get_config is asked"
    invalid = ran.side("ch2/invalid")
    assert (invalid.status, invalid.errors) == ("failed", ("validate_result: it is wrong",))


def test_h2_pairs_are_found_by_name_and_the_most_specific_baseline_wins(ran: Ran) -> None:
    found = {example: [path.name for path in paths] for _, paths, example in harness.discover_benchmarks(ran.root)}
    assert found["duck"] == ["optimized_duck.py"]
    assert found["duck_long"] == ["optimized_duck_long_fast.py"]
    assert len(found) == 9
    assert set(ran.pairs) == {
        *("ch1/duck", "ch1/duck_long_fast", "ch2/crash", "ch2/hang", "ch2/invalid"),
        *("ch3/hardware", "ch3/slower", "ch3/timer"),
    }


def test_h3_each_side_has_a_process_and_a_crash_ends_nothing_else(ran: Ran) -> None:
    ducks = [side for name in ("ch1/duck", "ch1/duck_long_fast") for side in _sides(ran.pairs[name])]
    assert len({side.custom_metrics["pid"] for side in ducks}) == 4
    assert {side.execution for side in ducks} == {"process"}
    crash = ran.pairs["ch2/crash"]
    assert (crash.optimized.status, crash.optimized.stage) == ("failed", "setup")
    assert crash.optimized.errors == ("its process was killed by SIGSEGV in setup",)
    assert crash.baseline.succeeded
    assert ran.pairs["ch3/timer"].status == "succeeded", "pairs after it are run"


def test_h3_a_class_that_cannot_be_imported_again_runs_in_a_thread() -> None:
    class Local(BaseBenchmark):
        def benchmark_fn(self) -> None:
            sum(range(100))

    found = BenchmarkHarness(config=BenchmarkConfig(iterations=5, warmup=1), device="cpu").benchmark(Local())
    assert (found.status, found.execution) == ("succeeded", "thread")


def test_h4_a_stage_that_overruns_is_reported_with_its_limit_and_a_suggestion(ran: Ran) -> None:
    limits = BenchmarkDefaults()
    assert (limits.setup_timeout_seconds, limits.warmup_timeout_seconds) == (30.0, 15.0)
    assert (limits.measurement_timeout_seconds, limits.profiling_timeout_seconds) == (15.0, 180.0)
    assert (limits.nsys_timeout_seconds, limits.ncu_timeout_seconds) == (120.0, 180.0)
    hang = ran.side("ch2/hang")
    assert (hang.status, hang.timeout_stage, hang.timeout_limit_seconds) == ("timeout", "setup", 2.0)
    assert hang.timeout_duration_seconds is not None
    assert hang.timeout_duration_seconds >= 2.0
    assert hang.errors[0].startswith("TIMEOUT: setup took longer than its limit of 2 s")
    assert {stage: watch.status for stage, watch in hang.watchdog.items()} == {"load": "completed", "setup": "timeout"}
    assert "setup_timeout_seconds" in hang.suggestion


def test_h5_profiles_are_kept_and_supply_no_timings(ran: Ran) -> None:
    side = ran.side("ch1/duck")
    assert side.profiler_metrics is not None
    assert side.profiler_metrics.profilers == {"torch": "profiled"}
    trace = ran.folder / side.artifacts["torch"]
    assert not Path(side.artifacts["torch"]).is_absolute()
    events = json.loads(trace.read_bytes())["traceEvents"]
    assert {event["name"] for event in events if event.get("cat") == "user_annotation"} >= {"torchstone: call 0"}
    assert sum(event["name"] == "aten::mm" for event in events) == 3
    assert side.watchdog["profiling"].status == "completed"
    assert side.timing is not None
    assert side.timing.iterations == ITERATIONS
    assert "profiling with" not in ran.stderr, "on a CPU no tool is missed"


def test_h6_both_sides_draw_the_same_numbers_from_seed_42(ran: Ran) -> None:
    baseline, optimized = _sides(ran.pairs["ch1/duck"])
    for generator in ("random", "numpy", "torch"):
        assert baseline.custom_metrics[generator] == optimized.custom_metrics[generator]
    assert optimized.custom_metrics["deterministic"] == 1
    assert optimized.seeds == {"random": 42, "numpy": 42, "torch": 42, "cuda": 42}


def test_h7_the_manifest_tells_the_circumstances_and_two_can_be_compared(ran: Ran) -> None:
    manifest = read_manifest(ran.folder)
    assert manifest.hardware.cpu
    assert manifest.software.packages["torch"]
    assert manifest.seeds == {"benchmarks": "42"}
    assert manifest.configuration["settings"]["overrides"]["iterations"] == ITERATIONS
    other: Manifest = msgspec.structs.replace(manifest, seeds={"benchmarks": "7"})
    assert difference(manifest, other) == {"seeds.benchmarks": ("42", "7")}


def test_h8_memory_is_told(ran: Ran) -> None:
    memory = ran.side("ch1/duck").memory
    assert memory is not None
    assert memory.peak_mb >= memory.allocated_mb > 10
    assert memory.reserved_mb is None, "only torch's device allocator reserves"


def test_h9_statistics_follow_from_the_samples_that_are_kept(ran: Ran) -> None:
    timing = ran.side("ch1/duck").timing
    assert timing is not None
    raw = np.array(timing.raw_times_ms)
    assert raw.size == timing.iterations == ITERATIONS
    assert (timing.min_ms, timing.max_ms) == (raw.min(), raw.max())
    assert timing.mean_ms == pytest.approx(raw.mean())
    assert timing.median_ms == timing.p50_ms == pytest.approx(np.median(raw))
    assert timing.std_ms == pytest.approx(raw.std(ddof=1))
    for percent in (25, 75, 90, 95, 99):
        assert getattr(timing, f"p{percent}_ms") == pytest.approx(np.percentile(raw, percent))
    assert timing.percentiles == {"99.9": pytest.approx(np.percentile(raw, 99.9))}


def test_h10_latencies_that_the_benchmark_reports_are_folded(ran: Ran) -> None:
    inference = ran.side("ch1/duck").inference
    assert inference is not None
    assert inference.ttft is not None
    assert inference.tpot is not None
    assert (inference.ttft.count, inference.ttft.mean_ms, inference.ttft.p99_ms) == (2 * ITERATIONS, 2.0, 3.0)
    assert (inference.tpot.count, inference.tpot.p50_ms, inference.tpot.p90_ms) == (ITERATIONS, 0.5, 0.5)


def test_h11_there_are_three_timers(ran: Ran) -> None:
    assert [mode.name for mode in BenchmarkMode] == ["CUSTOM", "TRITON", "PYTORCH"]
    assert ran.side("ch1/duck").mode == "custom"
    timer = ran.side("ch3/timer")
    assert (timer.mode, timer.status) == ("pytorch", "succeeded")
    assert timer.timing is not None


def test_h12_a_regression_is_reported_and_makes_the_exit_code_1(ran: Ran) -> None:
    slower = ran.pairs["ch3/slower"]
    assert slower.status == "regression"
    assert slower.speedup_high is not None
    assert slower.speedup_high < 1 / 1.05
    assert slower.regression_threshold_pct == 5.0
    assert ran.exit_code == 1
    files = [ran.root / "ch3" / f"{side}_slower.py" for side in ("baseline", "optimized")]
    sides = [harness.load_benchmark(file, ran.root) for file in files]
    quick = BenchmarkConfig(iterations=ITERATIONS)
    again = harness.compare_benchmarks(*sides, name="again", regression_threshold_pct=10.0, config=quick, device="cpu")
    assert (again.name, again.status, again.regression_threshold_pct) == ("again", "regression", 10.0)


def test_h13_every_side_starts_from_a_clean_state(ran: Ran) -> None:
    assert ran.side("ch1/duck").config["enable_cleanup"] is True, "--cold-start"
    harness.reset_gpu_state()


def test_h14_layers_win_field_by_field(ran: Ran) -> None:
    config = ran.side("ch1/duck").config
    assert config["iterations"] == ITERATIONS, "the command line wins over get_config's 33"
    assert config["warmup"] == 3, "get_config wins over the default"
    assert config["min_run_time_ms"] == BenchmarkDefaults().min_run_time_ms, "the rest is as it was"
    caller = BenchmarkHarness(config=BenchmarkConfig(warmup=1, percentiles=(12.5,), iterations=4), device="cpu")
    own = caller.benchmark(harness.load_benchmark(ran.root / "ch1" / "baseline_duck.py", ran.root)).config
    assert (own["iterations"], own["warmup"], own["percentiles"]) == (33, 3, [99.9]), "get_config wins over the caller"


def test_h15_the_command_leaves_reports_and_artifacts(ran: Ran) -> None:
    names = {path.name for path in ran.folder.iterdir()}
    assert names >= {"records.jsonl", "manifest.json", "benchmark_test_results.json", "benchmark_test_results.md"}
    assert (ran.root.parent / "benchmark_test_results.md").read_bytes() == (
        ran.folder / "benchmark_test_results.md"
    ).read_bytes()
    page = (ran.folder / "benchmark_test_results.md").read_text()
    assert "ch1" in page
    assert "ch9" not in page, "--targets"
    assert harness.PairsRequest().suite_timeout_seconds == 4 * 3600


def test_h16_hardware_that_is_not_here_is_a_reason_to_skip_and_workloads_fit_the_memory(ran: Ran) -> None:
    assert ran.pairs["ch3/hardware"].status == "skipped"
    assert ran.side("ch3/hardware").skip_reason.startswith("needs a CUDA device of compute capability 99.0")
    gib = 1 << 30
    assert [memory_scale(size * gib) for size in (24, 16, 8, 4, 2)] == [1.0, 1.0, 0.5, 0.25, 0.1]
    scaled = BaseBenchmark()._scale_workload_by_memory(1000)
    assert scaled in (1000, 500, 250, 100)
    assert math.isfinite(scaled)


def _sides(pair: Comparison) -> tuple[BenchmarkResult, BenchmarkResult]:
    return pair.baseline, pair.optimized
