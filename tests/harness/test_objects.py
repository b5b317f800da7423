"""Benchmarks as objects: they cross to a process of their own with what they were made with, or stay in a thread."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from harness.harness_subjects import NotOurs, Sized
from torchstone.benchmarks import BenchmarkConfig, BenchmarkMode
from torchstone.errors import UsageError
from torchstone.harness import BenchmarkHarness, compare_baseline_optimized, compare_benchmarks, reset_gpu_state
from torchstone.harness.object_transfer import source_of

HERE = Path(__file__).parent
FEW = BenchmarkConfig(iterations=6)


@pytest.fixture
def harness() -> BenchmarkHarness:
    return BenchmarkHarness(mode=BenchmarkMode.CUSTOM, config=FEW, device="cpu")


def test_constructor_arguments_cross_the_process_boundary(harness: BenchmarkHarness) -> None:
    result = harness.benchmark(Sized(500, factor=0.5))
    assert result.succeeded, result
    assert result.execution == "process"
    assert result.custom_metrics["size"] == result.custom_metrics["elements"] == 500
    assert result.custom_metrics["pid"] != os.getpid()
    assert (result.config["iterations"], result.config["warmup"]) == (6, 3), "single fields of each layer count"


def test_attributes_that_were_changed_afterwards_cross_too(harness: BenchmarkHarness) -> None:
    changed = Sized(500)
    changed.size = 7
    assert harness.benchmark(changed).custom_metrics["elements"] == 7


def test_an_object_of_another_class_crosses_by_its_state(harness: BenchmarkHarness) -> None:
    result = harness.benchmark(NotOurs(9))
    assert result.execution == "process"
    assert result.custom_metrics["size"] == 9
    assert result.custom_metrics["pid"] != os.getpid()


def test_two_objects_are_compared_in_turn() -> None:
    found = compare_benchmarks(
        baseline=Sized(10, factor=4.0), optimized=Sized(10), name="Sizes", config=BenchmarkConfig(iterations=30),
        device="cpu",
    )  # fmt: skip
    assert found.name == "Sizes"
    assert found.speedup is not None
    assert 2.0 < found.speedup < 4.5, found.speedup
    assert found.status == "succeeded"


def test_a_local_class_runs_in_a_thread_and_the_result_says_so(harness: BenchmarkHarness) -> None:
    class Local(Sized):
        pass

    result = harness.benchmark(Local(5))
    assert result.succeeded, result
    assert result.execution == "thread"
    assert result.custom_metrics["pid"] == os.getpid()
    assert "thread of this process" in result.notes[0]
    found = compare_benchmarks(Local(5), Sized(5), config=FEW, device="cpu")
    assert found.baseline.execution == found.optimized.execution == "thread"


def test_a_thread_that_hangs_is_a_timeout_too() -> None:
    class Hangs(Sized):
        def setup(self) -> None:
            time.sleep(5)

    config = BenchmarkConfig(setup_timeout_seconds=0.3)
    result = BenchmarkHarness(config=config, device="cpu").benchmark(Hangs(5))
    assert (result.status, result.timeout_stage) == ("timeout", "setup")


def settings_of_torch() -> tuple[object, ...]:
    """What `deterministic` changes."""
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    return torch.are_deterministic_algorithms_enabled(), warns, cudnn, os.environ.get("CUBLAS_WORKSPACE_CONFIG")


@pytest.fixture
def callers_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[object, ...]]:
    """Settings that differ from torch's own and from deterministic ones."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield settings_of_torch()
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("fails_in", ["", "get_config", "setup", "benchmark_fn", "teardown"])
def test_a_thread_puts_the_callers_settings_back_however_the_benchmark_ends(
    fails_in: str, callers_settings: tuple[object, ...]
) -> None:
    seen: list[tuple[object, ...]] = []

    class Ends(Sized):
        def teardown(self) -> None:
            seen.append(settings_of_torch())

    def fail(self: Ends) -> None:
        seen.append(settings_of_torch())
        raise ValueError("here")

    if fails_in:
        setattr(Ends, fails_in, fail)
    config = BenchmarkConfig(iterations=2, deterministic=True)
    result = BenchmarkHarness(config=config, device="cpu").benchmark(Ends(5))
    assert (result.execution, result.stage is None) == ("thread", not fails_in)
    assert seen[0] == (True, False, (True, False), ":4096:8")
    assert settings_of_torch() == callers_settings


def test_two_threads_put_the_settings_from_before_both_back(callers_settings: tuple[object, ...]) -> None:
    class Local(Sized):
        pass

    config = BenchmarkConfig(iterations=2, deterministic=True)
    assert compare_benchmarks(Local(5), Local(5), config=config, device="cpu").baseline.execution == "thread"
    assert settings_of_torch() == callers_settings


def test_a_thread_that_hangs_does_not_keep_the_callers_settings_changed(callers_settings: tuple[object, ...]) -> None:
    class Hangs(Sized):
        def setup(self) -> None:
            time.sleep(5)

    config = BenchmarkConfig(setup_timeout_seconds=0.3, deterministic=True)
    assert BenchmarkHarness(config=config, device="cpu").benchmark(Hangs(5)).status == "timeout"
    assert settings_of_torch() == callers_settings


def test_what_cannot_be_pickled_stays_in_a_thread(harness: BenchmarkHarness) -> None:
    result = harness.benchmark(NotOurs(lambda: 3))  # type: ignore[arg-type]
    assert result.execution == "thread"


def test_a_script_can_compare_its_own_classes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from torchstone.harness import *\n"
        "class Mine(BaseBenchmark):\n"
        "    def __init__(self, other): self.other = other\n"
        "    def benchmark_fn(self): return {'n': self.other.n}\n"
        "class Other:\n"
        "    n = 3\n"
        "if __name__ == '__main__':\n"
        "    r = BenchmarkHarness(config=BenchmarkConfig(iterations=2), device='cpu').benchmark(Mine(Other()))\n"
        "    print(r.status, r.execution, r.custom_metrics, r.errors)\n"
    )
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert found.stdout == "succeeded process {'n': 3.0} ()\n", found.stderr


def test_a_result_with_its_manifest(harness: BenchmarkHarness) -> None:
    run = harness.benchmark_with_manifest(Sized(5), run_id="my_run")
    assert run.run_id == "my_run"
    assert run.result.succeeded
    assert run.manifest.software.packages["torch"]
    assert run.manifest.seeds["torch"] == str(run.result.seeds["torch"])
    assert run.manifest.configuration["iterations"] == 6
    assert run.timestamp.endswith("+00:00")


def test_files_are_compared_by_their_paths() -> None:
    path = HERE / "harness_subjects.py"
    found = compare_baseline_optimized(path, path, config=FEW, device="cpu")
    assert found.status == "failed"
    assert "has 2 benchmark classes (Sized, NotOurs)" in found.optimized.errors[0]
    with pytest.raises(UsageError, match="is not a file"):
        compare_baseline_optimized(path, HERE / "not_there.py", device="cpu")


def test_what_is_no_benchmark_is_a_usage_error(harness: BenchmarkHarness) -> None:
    with pytest.raises(UsageError, match="int is not a benchmark: it has no setup, benchmark_fn, teardown"):
        harness.benchmark(3)
    with pytest.raises(UsageError, match="unknown settings: iteration"):
        BenchmarkHarness(config={"iteration": 3})


def test_reset_without_a_device_does_nothing() -> None:
    reset_gpu_state()
    assert source_of(Sized(3)).qualname == "Sized"
