"""A pair that works: its figures, its settings, its seeds, its outputs, and what is told about how it was run."""

from __future__ import annotations

import statistics
import threading
from pathlib import Path

import pytest

from benchmark_texts import QUICK, RunPair, benchmark_text
from torchstone.benchmarks import BenchmarkConfig, BenchmarkMode
from torchstone.harness.local_runner import LocalPairRunner
from torchstone.harness.pair_comparison import tolerance
from torchstone.harness.pair_runner import PairOrder
from torchstone.harness.results import Comparison

BUSY = "end = time.perf_counter() + {ms} / 1e3\nwhile time.perf_counter() < end: pass"
FOREIGN = """
import torch

class TheirConfig:
    def __init__(self, iterations=20, warmup=5, timing_method="custom", name=None):
        self.iterations, self.warmup, self.timing_method, self.name = iterations, warmup, timing_method, name

class TheirBase:
    def get_verify_output(self):
        if self._payload is None:
            raise RuntimeError("call capture_verification_payload() first")
        return self._payload

class Theirs(TheirBase):
    _payload = None
    def setup(self):
        self.x = torch.randn(32, 32)
    def benchmark_fn(self):
        self.y = self.x * {factor}
        return {{"gemm.tflops": {factor}}}
    def capture_verification_payload(self):
        self._payload = self.y
    def get_output_tolerance(self):
        return (0.5, 0.0)
    def teardown(self):
        self.x = None
    def get_config(self):
        return TheirConfig(warmup=3, name="it")

def get_benchmark():
    return Theirs()
"""


@pytest.fixture(scope="module")
def twice_as_fast(tmp_path_factory: pytest.TempPathFactory, runner: LocalPairRunner) -> Comparison:
    """A pair whose optimized side does half the work, with the numbers of calls left to the harness."""
    root = tmp_path_factory.mktemp("pairs")
    (root / "ch1").mkdir()
    report = "return {'ttft_times_ms': [50.0, 48.0], 'tpot_times_ms': [12.0, 11.0, 13.0], 'tokens': 4, 'name': 'x'}"
    metrics = "def get_custom_metrics(self):\n    return {'bytes': 3, 'text': 'no', 'bad': float('nan')}"
    for side, ms in (("baseline", 1.0), ("optimized", 0.5)):
        text = benchmark_text(body=f"{BUSY.format(ms=ms)}\n{report}", more=metrics)
        (root / "ch1" / f"{side}_it.py").write_text(text)
    order = PairOrder(
        name="ch1/it",
        root=root,
        baseline=root / "ch1" / "baseline_it.py",
        optimized=root / "ch1" / "optimized_it.py",
        device="cpu",
        seed=3,
        config=BenchmarkConfig(percentiles=(99.9,)),
        artifacts=root / "artifacts",
    )
    return runner.run(order)


def test_half_the_work_is_twice_as_fast(twice_as_fast: Comparison) -> None:
    found = twice_as_fast
    assert found.status == "succeeded", found
    assert found.speedup == pytest.approx(2.0, rel=0.1)
    assert found.speedup_low is not None
    assert found.speedup_high is not None
    assert found.speedup_low < found.speedup < found.speedup_high
    assert not found.regression
    assert found.regression_pct is None
    assert found.taken == "interleaved"


def test_without_a_number_of_calls_there_are_enough_in_many_blocks(twice_as_fast: Comparison) -> None:
    for side in (twice_as_fast.baseline, twice_as_fast.optimized):
        timing = side.timing
        assert timing is not None
        assert timing.iterations == len(timing.raw_times_ms) == sum(timing.block_sizes) >= 100
        assert sum(timing.raw_times_ms) >= 100.0
        assert len(timing.block_sizes) >= 60
        assert timing.min_ms <= timing.p25_ms <= timing.median_ms <= timing.p99_ms <= timing.max_ms
        assert list(timing.percentiles) == ["99.9"]
        assert side.clock == "wall"
        assert side.seeds == {"random": 3, "numpy": 3, "torch": 3, "cuda": 3}
        assert side.config["percentiles"] == [99.9]


def test_reported_latencies_and_metrics_are_collected_over_the_timed_calls(twice_as_fast: Comparison) -> None:
    side = twice_as_fast.optimized
    assert side.timing is not None
    assert side.inference is not None
    assert side.inference.ttft is not None
    assert side.inference.tpot is not None
    assert side.inference.ttft.count == 2 * side.timing.iterations
    assert side.inference.ttft.mean_ms == pytest.approx(49.0)
    assert side.inference.tpot.count == 3 * side.timing.iterations
    assert side.custom_metrics == {"tokens": 4.0, "bytes": 3.0}
    assert side.memory is not None
    assert side.memory.peak_mb >= side.memory.allocated_mb > 10
    assert side.memory.reserved_mb is None


def test_a_tree_written_for_another_harness_runs_unchanged(run_pair: RunPair) -> None:
    found = run_pair(FOREIGN.format(factor=2), FOREIGN.format(factor=1.5), overrides=BenchmarkConfig(iterations=4))
    assert found.status == "succeeded", found
    assert found.optimized.config["warmup"] == 3
    assert found.optimized.config["iterations"] == 4
    assert found.optimized.notes == ("get_config: ignored name",)
    assert found.optimized.custom_metrics == {"gemm.tflops": 2.0}
    assert found.outputs is not None, "the declared tolerance of a half lets them agree"
    assert found.outputs.allowed == pytest.approx(0.5)
    assert found.outputs.difference == pytest.approx(1 / 3, rel=0.01)


def test_a_regression_needs_the_whole_interval_beyond_the_threshold(run_pair: RunPair) -> None:
    slow, quick = (benchmark_text(body=BUSY.format(ms=ms)) for ms in (1.3, 1.0))
    config = BenchmarkConfig(iterations=40, warmup=2)
    found = run_pair(slow, quick, overrides=config, regression_threshold_pct=5.0)
    assert found.status == "regression", found
    assert found.regression
    assert found.regression_pct == pytest.approx(30, abs=8)
    found = run_pair(slow, quick, overrides=config, regression_threshold_pct=60.0)
    assert found.status == "succeeded"


def test_the_given_number_of_calls_is_kept_to_and_one_call_has_no_interval(run_pair: RunPair) -> None:
    counted = benchmark_text(
        setup="self.n = 0",
        body="self.n += 1",
        more="""
        def get_custom_metrics(self):
            return {'calls': self.n}

        def get_config(self):
            return {'iterations': 7, 'warmup': 3}
        """,
    )
    found = run_pair(counted, overrides=BenchmarkConfig())
    assert found.optimized.timing is not None
    assert found.optimized.timing.iterations == 7
    assert found.optimized.custom_metrics == {"calls": 10.0}
    found = run_pair(counted, overrides=BenchmarkConfig(iterations=1, warmup=0))
    assert found.optimized.custom_metrics == {"calls": 1.0}
    assert found.speedup is not None
    assert found.speedup_low is found.speedup_high is None
    assert found.outputs is None


def test_a_slow_benchmark_stops_before_its_limit_with_what_there_is(run_pair: RunPair) -> None:
    config = BenchmarkConfig(warmup=1, measurement_timeout_seconds=2.0)
    found = run_pair(benchmark_text(body="time.sleep(0.1)"), overrides=config)
    assert found.optimized.succeeded, found.optimized
    assert found.optimized.timing is not None
    assert 5 <= found.optimized.timing.iterations <= 20


def test_both_sides_get_the_same_seed_in_load_and_setup(run_pair: RunPair) -> None:
    text = benchmark_text(
        top="""
        import random, numpy
        def draw():
            return torch.cat([torch.rand(2), torch.tensor([random.random(), numpy.random.rand()])])
        LOADED = draw()
        """,
        setup="self.drawn = torch.cat([LOADED, draw()])",
        body="self.output = self.drawn",
    )
    found = run_pair(text, text + "\n# another file")
    assert found.outputs is not None
    assert found.outputs.agrees
    assert found.outputs.difference == 0.0
    other = run_pair(text, text, config=BenchmarkConfig(seed=11))
    assert other.baseline.seeds["torch"] == 11


def test_deterministic_mode_reaches_torch_and_cublas(run_pair: RunPair) -> None:
    text = benchmark_text(
        body="""
        enabled = torch.are_deterministic_algorithms_enabled()
        return {'on': int(enabled) + len(os.environ['CUBLAS_WORKSPACE_CONFIG'])}
        """
    )
    found = run_pair(text, text, overrides=BenchmarkConfig(deterministic=True, iterations=2))
    assert found.optimized.custom_metrics == {"on": 1.0 + len(":4096:8")}


@pytest.mark.parametrize(
    ("body", "more"),
    [
        ("return self.x @ self.x", ""),
        ("return {'logits': self.x @ self.x, 'n': 3}", ""),
        ("self.y = self.x @ self.x", "def output(self):\n    return self.y"),
        ("self.y = self.x @ self.x", "def get_verify_output(self):\n    return self.y"),
        ("self.output = [self.x @ self.x]", ""),
    ],
)
def test_an_output_is_found_wherever_a_benchmark_offers_it(run_pair: RunPair, body: str, more: str) -> None:
    found = run_pair(benchmark_text(body=body, more=more))
    assert found.outputs is not None
    assert found.outputs.agrees
    assert found.outputs.compared == 1


def test_the_output_is_that_of_the_first_call(run_pair: RunPair) -> None:
    text = benchmark_text(setup="self.output = torch.zeros(3)", body="self.output += 1")
    found = run_pair(text, text, overrides=BenchmarkConfig(warmup=0, iterations=9))
    assert found.outputs is not None
    assert found.outputs.agrees
    found = run_pair(text, text, overrides=BenchmarkConfig(warmup=4, iterations=2))
    assert found.outputs is not None
    assert found.outputs.agrees


def test_an_output_that_cannot_be_had_is_a_note(run_pair: RunPair) -> None:
    raises = "def get_verify_output(self):\n    raise RuntimeError('not offered')"
    found = run_pair(benchmark_text(more=raises))
    assert found.status == "succeeded"
    assert found.outputs is None
    assert "offers no output: RuntimeError: not offered" in found.optimized.notes


def test_the_coarser_dtype_of_both_sides_counts(run_pair: RunPair) -> None:
    found = run_pair(benchmark_text(body="self.output = (self.x.half() @ self.x.half())"))
    assert found.outputs is not None
    assert found.outputs.agrees
    assert found.outputs.allowed == 2e-2
    assert found.outputs.difference > 1e-6


def test_tolerances_by_dtype() -> None:
    assert tolerance("float64", True) == tolerance("complex128", False) == 1e-10
    assert (tolerance("float32", False), tolerance("float32", True)) == (1e-4, 1e-2)
    assert tolerance("bfloat16", False) == 2e-2
    assert tolerance("float8_e4m3fn", False) == 0.25
    assert tolerance("int64", False) == tolerance("bool", False) == 0.0


def test_torchs_own_timer_gives_samples_of_its_own(run_pair: RunPair) -> None:
    config = BenchmarkConfig(mode=BenchmarkMode.PYTORCH, min_run_time_ms=80.0)
    found = run_pair(benchmark_text(), overrides=config)
    assert found.status == "succeeded", found
    timing = found.optimized.timing
    assert timing is not None
    assert found.optimized.mode == "pytorch"
    assert len(set(timing.raw_times_ms)) > 4
    assert len(timing.block_sizes) == 8
    assert found.speedup is not None


def test_a_mode_that_cannot_work_fails_if_it_was_asked_for_and_is_a_note_otherwise(run_pair: RunPair) -> None:
    found = run_pair(benchmark_text(), overrides=BenchmarkConfig(mode=BenchmarkMode.TRITON))
    assert found.baseline.errors[0].startswith("mode triton needs a CUDA device")
    assert found.status == "failed"
    asks = benchmark_text(more="def get_config(self):\n    return {'mode': 'triton'}")
    found = run_pair(asks, asks)
    assert found.status == "succeeded"
    assert found.optimized.mode == "custom"
    assert "mode triton needs" in found.optimized.notes[0]


def test_a_side_that_runs_out_of_memory_beside_the_other_runs_after_it(run_pair: RunPair, tmp_path: Path) -> None:
    """The device is a file here: who holds it keeps the other from getting memory."""
    held = tmp_path / "held"
    text = benchmark_text(
        setup=f"if os.path.exists({str(held)!r}): raise MemoryError('CUDA out of memory')\nopen({str(held)!r}, 'w')",
        teardown=f"os.remove({str(held)!r})",
        top=f"import atexit\nif os.path.exists({str(held)!r}): os.remove({str(held)!r})",
    )
    found = run_pair(text, text)
    assert found.status == "succeeded", found
    assert found.taken == "in sequence"
    assert "out of memory while both sides were alive" in found.notes[0]
    assert found.speedup is not None
    assert found.baseline.timing is not None


def test_pairs_can_run_in_several_threads(runner: LocalPairRunner, tmp_path: Path) -> None:
    (tmp_path / "ch1").mkdir()
    path = tmp_path / "ch1" / "baseline_it.py"
    path.write_text(benchmark_text())
    found: list[Comparison] = []

    def run(number: int) -> None:
        order = PairOrder(
            name=str(number),
            root=tmp_path,
            baseline=path,
            optimized=path,
            device="cpu",
            seed=number,
            overrides=QUICK,
            artifacts=tmp_path / str(number),
        )
        found.append(runner.run(order))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {item.name: item.status for item in found} == dict.fromkeys("012", "succeeded")


def test_cuda_sources_are_skipped_on_a_cpu(tmp_path: Path, runner: LocalPairRunner) -> None:
    (tmp_path / "x.cu").write_text("")
    order = PairOrder(
        name="x",
        root=tmp_path,
        baseline=tmp_path / "x.cu",
        optimized=tmp_path / "x.cu",
        device="cpu",
        seed=0,
        artifacts=tmp_path / "a",
    )
    found = runner.run(order)
    assert found.status == "skipped"
    assert "needs a CUDA device" in found.optimized.skip_reason


def test_the_same_file_on_both_sides_is_no_regression(run_pair: RunPair) -> None:
    text = benchmark_text(setup="self.x = torch.randn(1024, 512)", body="torch.relu(self.x)")
    found = [run_pair(text, text, overrides=BenchmarkConfig(), regression_threshold_pct=5.0) for _ in range(3)]
    # Most of them: a machine may be busy while one is timed. benchmarks/harness.py looks at every single one.
    assert sum(item.status == "regression" for item in found) <= 1, found
    ratios = [item.speedup for item in found if item.speedup is not None]
    assert len(ratios) == 3
    assert 0.93 <= statistics.median(ratios) <= 1.07, ratios
