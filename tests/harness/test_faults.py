"""Benchmarks that fail in every way: each gives a result that names the stage, and the other side keeps its own."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from benchmark_texts import QUICK, RunPair, benchmark_text
from torchstone.benchmarks import BenchmarkConfig
from torchstone.harness.results import Comparison

HANG = "time.sleep(60)"
SHORT = msgspec.structs.replace(
    QUICK,
    load_timeout_seconds=20.0,
    setup_timeout_seconds=20.0,
    warmup_timeout_seconds=20.0,
    measurement_timeout_seconds=20.0,
    timeout_multiplier=0.1,
)


def _method(name: str, body: str) -> str:
    return f"def {name}(self):\n    {body}"


def _at_the_fifth_call(body: str) -> str:
    return benchmark_text(setup="self.n = 0", body=f"self.n += 1\nif self.n == 5: {body}")


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        ("load", benchmark_text(top=HANG)),
        ("setup", benchmark_text(setup=HANG)),
        ("warmup", benchmark_text(body=HANG)),
        ("measurement", _at_the_fifth_call(HANG)),
        ("validation", benchmark_text(more=f"def validate_result(self):\n    {HANG}")),
        ("teardown", benchmark_text(teardown=HANG)),
    ],
)
def test_a_hang_in_any_stage_is_a_timeout_of_that_stage(run_pair: RunPair, stage: str, text: str) -> None:
    began = time.monotonic()
    found = run_pair(text, overrides=SHORT)
    side = found.optimized
    assert side.status == "timeout", side
    assert side.stage == side.timeout_stage == stage
    assert side.timeout_limit_seconds == 2.0
    assert side.timeout_duration_seconds is not None
    assert 2.0 <= side.timeout_duration_seconds < 4.0
    assert side.errors[0].startswith(f"TIMEOUT: {stage} took longer than its limit of 2 s")
    assert side.watchdog[stage].status == "timeout"
    assert all(watch.status == "completed" for name, watch in side.watchdog.items() if name != stage)
    assert side.suggestion
    assert found.status == "failed"
    assert found.speedup is None
    assert found.baseline.status == "succeeded"
    assert found.baseline.timing is not None
    assert time.monotonic() - began < 50


FAILURES = [
    ("load", "ModuleNotFoundError: No module named 'not_there'", benchmark_text(top="import not_there")),
    ("load", "optimized_it.py has no get_benchmark()", "x = 1"),
    ("load", "config field 'warmup' is 'x'", benchmark_text(more=_method("get_config", "return {'warmup': 'x'}"))),
    ("setup", "ValueError: no", benchmark_text(setup="raise ValueError('no\\nsecond line')")),
    ("setup", "SystemExit: 3", benchmark_text(setup="sys.exit(3)")),
    ("setup", "its process ended with exit code 9 in setup", benchmark_text(setup="os._exit(9)")),
    ("warmup", "its process was killed by SIGSEGV in warmup", benchmark_text(body="os.kill(os.getpid(), 11)")),
    ("measurement", "KeyError: 'it'", _at_the_fifth_call("raise KeyError('it')")),
    (
        "validation",
        "validate_result: it is wrong",
        benchmark_text(more=_method("validate_result", "return 'it is wrong'")),
    ),
    ("teardown", "OSError: it is stuck", benchmark_text(teardown="raise OSError('it is stuck')")),
    ("validation", "wrong output: output differs by", benchmark_text(body="self.output = self.x @ self.x * 1.01")),
    (
        "validation",
        "wrong output: output: shape (64, 64)",
        benchmark_text(body="self.output = (self.x @ self.x)[:, 1:]"),
    ),
]


@pytest.mark.parametrize(("stage", "error", "text"), FAILURES, ids=[error for _, error, _ in FAILURES])
def test_a_failure_names_its_stage_in_one_line(run_pair: RunPair, stage: str, error: str, text: str) -> None:
    found = run_pair(text)
    side = found.optimized
    assert (side.status, side.stage) == ("failed", stage), side
    assert side.errors[0].startswith(error)
    assert len(side.errors) == 1
    assert "\n" not in side.errors[0]
    assert found.status == "failed"
    assert found.speedup is None
    assert found.baseline.succeeded
    assert found.baseline.timing is not None
    assert found.baseline.timing.iterations == 8


def test_what_is_known_of_a_failed_side_is_kept(run_pair: RunPair) -> None:
    found = run_pair(_at_the_fifth_call("raise ValueError('late')"))
    assert found.optimized.memory is not None
    assert found.optimized.memory.peak_mb > 10
    assert "ValueError: late" in found.optimized.log_tail
    found = run_pair(benchmark_text(more="def validate_result(self):\n    return 'wrong'"))
    assert found.optimized.timing is not None
    assert found.optimized.timing.iterations == 8


def test_a_side_that_raised_is_still_torn_down(run_pair: RunPair) -> None:
    text = benchmark_text(body="raise ValueError('no')", teardown="print('torn down')")
    assert "torn down" in run_pair(text).optimized.log_tail


@pytest.mark.parametrize(
    "text",
    [
        benchmark_text(top="raise SkipBenchmark('not today')"),
        benchmark_text(setup="raise RuntimeError('SKIPPED: not today')"),
        benchmark_text(body="raise SkipBenchmark('SKIPPED: not today')"),
        benchmark_text(more="def validate_result(self):\n    return 'SKIPPED: not today'"),
        benchmark_text(top="class SkipBenchmark(Exception): pass", setup="raise SkipBenchmark('not today')"),
    ],
)
def test_a_benchmark_that_does_not_apply_is_skipped_with_its_reason(run_pair: RunPair, text: str) -> None:
    found = run_pair(text)
    assert found.optimized.status == "skipped"
    assert found.optimized.skip_reason == "not today"
    assert found.optimized.errors == ()
    assert found.status == "skipped"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("{'min_devices': 2}", "needs 2 CUDA devices; 0 can be used here"),
        ("{'multi_gpu_required': True}", "needs 2 CUDA devices; 0 can be used here"),
        ("{'min_memory_gb': 1e6}", "needs 1e+06 GB of memory"),
        ("{'min_capability': '9.0'}", "needs a CUDA device of compute capability 9.0"),
    ],
)
def test_a_benchmark_that_needs_other_hardware_is_skipped(run_pair: RunPair, config: str, reason: str) -> None:
    found = run_pair(benchmark_text(more=f"def get_config(self):\n    return {config}"))
    assert found.optimized.status == "skipped"
    assert found.optimized.skip_reason.startswith(reason)
    assert found.optimized.stage == "setup"


def test_a_flood_of_prints_neither_blocks_nor_fills_anything(run_pair: RunPair, tmp_path: Path) -> None:
    text = benchmark_text(setup="for _ in range(1000): os.write(1, b'flood ' * 17000)\nprint('at last')")
    found = run_pair(text)
    assert found.status == "succeeded", found.optimized
    assert found.optimized.log_tail.endswith("at last\n")
    log = Path(found.optimized.artifacts["log"])
    assert log.parent == tmp_path / "artifacts"
    assert 1 << 20 <= log.stat().st_size < 1.1 * (1 << 20)
    assert log.read_text().endswith("at last\n")


def test_prints_and_closed_descriptors_do_not_reach_the_protocol(run_pair: RunPair) -> None:
    text = benchmark_text(
        setup="print('x' * 100); os.write(1, b'{}'); os.write(2, b'{}'); os.close(1); os.close(2); os.dup2(0, 1)",
        body="print('each call')\nself.output = self.x @ self.x",
    )
    found = run_pair(text)
    assert found.optimized.succeeded, found.optimized  # the prints make it slower, which is no failure
    assert "x" * 100 in found.optimized.log_tail


def test_a_memory_bomb_is_ended_at_its_limit(run_pair: RunPair) -> None:
    limit = msgspec.structs.replace(QUICK, memory_limit_bytes=600 << 20)
    bomb = "self.held = []\nwhile True: self.held.append(torch.ones(4 << 20)); time.sleep(0.01)"
    found = run_pair(benchmark_text(setup=bomb), overrides=limit)
    assert (found.optimized.status, found.optimized.stage) == ("failed", "setup")
    assert found.optimized.errors[0].startswith("memory: used ")
    assert "memory_limit_bytes" in found.optimized.suggestion
    assert found.baseline.succeeded


def test_what_a_benchmark_started_ends_with_it(run_pair: RunPair, tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    start = f"""
    import subprocess
    started = [subprocess.Popen(['sleep', '77'], start_new_session=own) for own in (False, True)]
    open({str(mark)!r}, 'w').write(' '.join(str(each.pid) for each in started))
    """
    assert run_pair(benchmark_text(setup=start)).status == "succeeded"
    for pid in mark.read_text().split():
        assert not Path(f"/proc/{pid}").exists()


def test_a_side_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    chapter = tmp_path / "ch1"
    chapter.mkdir()
    mark = tmp_path / "pid"
    text = benchmark_text(setup=f"open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    (chapter / "baseline_it.py").write_text(text)
    code = (
        "import sys; from torchstone.harness import compare_baseline_optimized as go\n"
        f"go({str(chapter / 'baseline_it.py')!r}, {str(chapter / 'baseline_it.py')!r}, device='cpu')"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        until = time.monotonic() + 120
        while not mark.exists() or not mark.read_text():
            assert time.monotonic() < until
            time.sleep(0.05)
        side = int(mark.read_text())
    finally:
        parent.kill()
        parent.wait()
    until = time.monotonic() + 10
    while Path(f"/proc/{side}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{side}").exists()


def test_explicit_iterations_that_do_not_fit_are_a_timeout_of_the_measurement(run_pair: RunPair) -> None:
    config = BenchmarkConfig(iterations=50, warmup=1, measurement_timeout_seconds=1.0)
    found = run_pair(benchmark_text(body="time.sleep(0.1)"), overrides=config)
    assert found.optimized.timeout_stage == "measurement"
    assert found.optimized.timing is not None, "the calls that were made are kept"


def test_an_output_with_nan_is_wrong_and_survives_json(run_pair: RunPair) -> None:
    found = run_pair(benchmark_text(body="self.output = self.x * float('nan')"), overrides=SHORT)
    assert found.outputs is not None
    assert not found.outputs.agrees
    assert found.outputs.message == "output is NaN or infinite on one side only"
    assert msgspec.json.decode(msgspec.json.encode(found), type=Comparison) == found
