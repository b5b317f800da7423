"""Pairs of benchmark files on CUDA: events, side streams, memory, and two sides that do not fit together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmark_texts import benchmark_text
from torchstone.benchmarks import BenchmarkConfig, BenchmarkMode
from torchstone.harness.local_runner import LocalPairRunner
from torchstone.harness.pair_runner import PairOrder
from torchstone.harness.results import Comparison

pytestmark = pytest.mark.gpu

PRODUCTS = "for _ in range({count}): self.y = self.x @ self.x"
SETUP = "self.x = torch.randn({size}, {size}, device=self.device)"


@pytest.fixture(scope="module")
def runner() -> Iterator[LocalPairRunner]:
    with LocalPairRunner("cuda") as made:
        yield made


def run(runner: LocalPairRunner, tmp_path: Path, baseline: str, optimized: str, **settings: Any) -> Comparison:
    chapter = tmp_path / "ch1"
    chapter.mkdir(exist_ok=True)
    for side, text in (("baseline", baseline), ("optimized", optimized)):
        (chapter / f"{side}_it.py").write_text(text)
    order = PairOrder(
        name="ch1/it",
        root=tmp_path,
        baseline=chapter / "baseline_it.py",
        optimized=chapter / "optimized_it.py",
        device="cuda:0",
        seed=1,
        overrides=BenchmarkConfig(**settings),
        artifacts=tmp_path / "artifacts",
    )
    return runner.run(order)


@pytest.mark.parametrize(("size", "count"), [(2048, 4), (256, 20)])
def test_half_the_work_is_twice_as_fast(runner: LocalPairRunner, tmp_path: Path, size: int, count: int) -> None:
    baseline, optimized = (
        benchmark_text(setup=SETUP.format(size=size), body=PRODUCTS.format(count=calls)) for calls in (2 * count, count)
    )
    found = run(runner, tmp_path, baseline, optimized)
    assert found.status == "succeeded", found
    # The small products wait for the host, whose speed varies from process to process.
    assert found.speedup == pytest.approx(2.0, rel=0.03 if size > 1000 else 0.15)
    assert found.baseline.clock == found.optimized.clock == "events"
    assert found.taken == "interleaved"


def test_the_same_file_on_both_sides_is_no_regression(runner: LocalPairRunner, tmp_path: Path) -> None:
    for size, most in ((8192, 0.02), (256, 0.3)):  # the smaller one waits for the host, whose speed varies
        text = benchmark_text(setup=SETUP.format(size=size), body="torch.relu(self.x)")
        for _ in range(3):
            found = run(runner, tmp_path, text, text)
            assert found.status == "succeeded", found
            assert found.speedup == pytest.approx(1.0, abs=most)


def test_work_on_other_streams_is_timed_by_the_wall_clock(runner: LocalPairRunner, tmp_path: Path) -> None:
    setup = SETUP.format(size=4096)
    body = PRODUCTS.format(count=4)
    aside = "with torch.cuda.stream(self.stream):\n    for _ in range(4): self.y = self.x @ self.x"
    optimized = benchmark_text(
        setup=f"{setup}\nself.stream = torch.cuda.Stream()\ntorch.cuda.synchronize()", body=aside
    )
    found = run(runner, tmp_path, benchmark_text(setup=setup, body=body), optimized)
    assert found.baseline.clock == found.optimized.clock == "wall"
    assert "the optimized side works on streams" in found.optimized.notes[-1]
    assert found.speedup == pytest.approx(1.0, abs=0.1), "nothing was saved by hiding the work from events"


def test_memory_is_that_of_the_allocator_while_timed(runner: LocalPairRunner, tmp_path: Path) -> None:
    setup = "self.x = torch.ones(64 << 20, dtype=torch.uint8, device=self.device)"
    large = "large = torch.ones(1 << 30, dtype=torch.uint8, device=self.device)"
    found = run(
        runner,
        tmp_path,
        benchmark_text(setup=setup, body="self.x + 1"),
        benchmark_text(setup=f"{setup}\n{large}", body="pass"),
        iterations=10,
    )
    memory = found.baseline.memory
    assert memory is not None
    assert memory.peak_mb == pytest.approx(128, abs=10)
    assert memory.allocated_mb == pytest.approx(64, abs=10)
    assert memory.reserved_mb is not None
    assert memory.reserved_mb >= memory.peak_mb
    assert found.optimized.memory is not None
    assert found.optimized.memory.peak_mb == pytest.approx(64, abs=10), "what setup needed and gave back is not counted"


def test_copies_that_are_kept_for_the_comparison_do_not_count(runner: LocalPairRunner, tmp_path: Path) -> None:
    more = """
    def capture_verification_payload(self):
        self.payload = self.x.clone()

    def get_verify_output(self):
        return self.payload
    """
    setup = "self.x = torch.ones(64 << 20, dtype=torch.uint8, device=self.device)"
    text = benchmark_text(setup=setup, body="pass", more=more)
    found = run(runner, tmp_path, text, text, iterations=10)
    assert found.outputs is not None
    assert found.outputs.agrees
    assert found.baseline.memory is not None
    assert found.baseline.memory.peak_mb == pytest.approx(64, abs=5)


def test_sides_that_do_not_fit_together_run_one_after_the_other(runner: LocalPairRunner, tmp_path: Path) -> None:
    free, _ = torch.cuda.mem_get_info()
    setup = f"self.x = torch.zeros({int(free * 0.6)}, dtype=torch.uint8, device=self.device)"
    text = benchmark_text(setup=setup, body="self.x[: 1 << 28] + 1")
    found = run(runner, tmp_path, text, text)
    assert found.status == "succeeded", found
    assert found.taken == "in sequence"
    assert "out of memory while both sides were alive" in found.notes[0]
    assert found.speedup == pytest.approx(1.0, abs=0.1)


def test_a_side_that_never_fits_fails_by_itself(runner: LocalPairRunner, tmp_path: Path) -> None:
    text = benchmark_text(setup="self.x = torch.zeros(1 << 50, dtype=torch.uint8, device=self.device)")
    found = run(runner, tmp_path, benchmark_text(setup=SETUP.format(size=64)), text)
    assert (found.optimized.status, found.optimized.stage) == ("failed", "setup")
    assert "OutOfMemoryError" in found.optimized.errors[0]
    assert found.baseline.succeeded


@pytest.mark.parametrize("mode", [BenchmarkMode.TRITON, BenchmarkMode.PYTORCH])
def test_other_timers_see_half_the_work_too(runner: LocalPairRunner, tmp_path: Path, mode: BenchmarkMode) -> None:
    baseline, optimized = (
        benchmark_text(setup=SETUP.format(size=2048), body=PRODUCTS.format(count=calls)) for calls in (8, 4)
    )
    found = run(runner, tmp_path, baseline, optimized, mode=mode)
    assert found.status == "succeeded", found
    assert found.optimized.mode == mode.value
    assert found.optimized.timing is not None
    assert len(set(found.optimized.timing.raw_times_ms)) >= 8
    assert found.speedup == pytest.approx(2.0, rel=0.08)


def test_a_hanging_kernel_is_ended_and_the_next_pair_starts_clean(runner: LocalPairRunner, tmp_path: Path) -> None:
    hang = benchmark_text(setup=SETUP.format(size=64), body="torch.cuda._sleep(1 << 40)\ntorch.cuda.synchronize()")
    found = run(runner, tmp_path, benchmark_text(setup=SETUP.format(size=64)), hang, timeout_multiplier=0.2)
    assert (found.optimized.status, found.optimized.timeout_stage) == ("timeout", "warmup")
    good = benchmark_text(setup=SETUP.format(size=256))
    assert run(runner, tmp_path, good, good, iterations=20).status == "succeeded"


def test_hardware_that_is_not_there_is_a_skip(runner: LocalPairRunner, tmp_path: Path) -> None:
    asks = benchmark_text(more="def get_config(self):\n    return {'min_capability': '99.0'}")
    found = run(runner, tmp_path, asks, asks)
    assert found.status == "skipped"
    assert found.optimized.skip_reason.startswith("needs compute capability 99.0; this device has ")


def test_sources_in_cuda_are_built_and_timed_by_what_they_print(runner: LocalPairRunner, tmp_path: Path) -> None:
    for side, ms in (("baseline", 4.0), ("optimized", 2.0)):
        text = f'#include <cstdio>\nint main() {{ printf("TIME_MS: {ms}\\n"); return 0; }}\n'
        (tmp_path / f"{side}_it.cu").write_text(text)
    order = PairOrder(
        name="it",
        root=tmp_path,
        baseline=tmp_path / "baseline_it.cu",
        optimized=tmp_path / "optimized_it.cu",
        device="cuda:0",
        seed=1,
        artifacts=tmp_path / "artifacts",
    )
    found = runner.run(order)
    if found.status == "skipped":
        assert "nvcc" in found.optimized.skip_reason
    else:
        assert found.speedup == pytest.approx(2.0)
