"""Rows: what is derived from samples, and that the document's own analysis runs on the file unchanged."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from sweeps.made_sweep_records import LIGHT, point, record
from torchstone.schema.sweep import SweepRow
from torchstone.sweeps.estimate import estimate
from torchstone.sweeps.output import OutputFiles, skipped_path
from torchstone.sweeps.rows import is_failure, skipped_rows, timed_rows

DOCUMENT = next((Path(__file__).parents[3] / "shared" / "seeds").glob("003*.txt"), None)
COLUMNS = {
    "operation", "implementation", "batch_size", "sequence_length", "tensor_dimension", "time_ms", "memory_mb",
    "inference_speed", "gpu_efficiency", "throughput_gbps", "mode", "dtype", "interval_low_ms", "interval_high_ms",
}  # fmt: skip


def test_a_row_holds_what_follows_from_the_samples_and_the_limit() -> None:
    (row,) = timed_rows([record(times_ns={"Triton": 2000.0})])
    assert row.time_ms == pytest.approx(0.002, rel=2e-3)
    assert row.interval_low_ms < row.time_ms < row.interval_high_ms
    assert row.inference_speed == pytest.approx(1000 / row.time_ms)
    assert row.memory_mb == 1.5
    assert row.throughput_gbps == pytest.approx(LIGHT.min_bytes / (row.time_ms * 1e6))
    assert row.gpu_efficiency == pytest.approx(50, rel=2e-3)


def test_efficiency_is_not_clipped_and_absent_where_the_work_is_not_known() -> None:
    (fast,) = timed_rows([record(times_ns={"Triton": 400.0})])
    assert fast.gpu_efficiency == pytest.approx(250, rel=2e-3)
    (unknown,) = timed_rows([record(times_ns={"Triton": 400.0}, light=None)])
    assert unknown.gpu_efficiency is None
    assert unknown.throughput_gbps is None


def test_one_disturbed_block_does_not_move_the_estimate() -> None:
    samples = [1000.0 + n % 3 for n in range(20)]
    assert estimate([*samples, 90_000.0]).time_ns == pytest.approx(1001, abs=1)


def test_the_interval_holds_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(400):
        found = estimate(rng.normal(1000, 20, size=12).tolist())
        held += found.low_ns <= 1000 <= found.high_ns
    assert 0.91 <= held / 400 <= 0.985


def test_few_samples_give_their_range_and_no_nan() -> None:
    found = estimate([3.0, 1.0])
    assert (found.time_ns, found.low_ns, found.high_ns) == (2.0, 1.0, 3.0)
    assert math.isfinite(estimate([5.0]).relative_half_width)


def test_reasons_tell_whose_fault_it_is() -> None:
    assert is_failure("wrong: result 0 at [0]: got 1, expected 2")
    assert is_failure("crashed: the process was killed by SIGSEGV")
    assert not is_failure("missing: CUDA needs a CUDA device")
    assert not is_failure("does not fit: 9.00 GB are needed")
    assert not is_failure("ran out of memory: CUDA out of memory")


def test_files_hold_timed_rows_only_and_the_rest_with_reasons(tmp_path: Path) -> None:
    output = tmp_path / "rows.json"
    OutputFiles(output).write([record(times_ns={"PyTorch": 10.0}, skips={"CUDA": "missing: none"})])
    (row,) = json.loads(output.read_text())
    assert set(row) == COLUMNS
    assert skipped_path(output).name == "rows.skipped.json"
    (skipped,) = json.loads(skipped_path(output).read_text())
    assert skipped["implementation"] == "CUDA"
    assert skipped["reason"] == "missing: none"
    assert list(tmp_path.iterdir()).__len__() == 2, "no temporary file is left"


def test_files_are_written_as_rows_come_but_not_all_the_time(tmp_path: Path) -> None:
    times = iter([0.0, 0.0, 0.5, 1.5, 1.5])
    output = tmp_path / "rows.json"
    files = OutputFiles(output, now=lambda: next(times))
    seen = []
    for count in (1, 2, 3):
        files.update([record(times_ns={"PyTorch": 10.0})] * count)
        seen.append(len(json.loads(output.read_text())))
    assert seen == [1, 1, 3]


def test_a_row_is_the_noun_that_it_claims_to_be(tmp_path: Path) -> None:
    output = tmp_path / "rows.json"
    made = list(timed_rows([record(times_ns={"PyTorch": 10.0, "CUDA": 5.0})]))
    OutputFiles(output).write([record(times_ns={"PyTorch": 10.0, "CUDA": 5.0})])
    assert msgspec.json.decode(output.read_bytes(), type=list[SweepRow]) == made
    assert not list(skipped_rows([record()]))


@pytest.fixture
def whole_grid(tmp_path: Path) -> Path:
    """The file of a sweep in which all implementations were timed."""
    records = [
        record(point(operation, *place), {"PyTorch": 3e5, "CUDA": 1e5, "Triton": 2e5})
        for operation in ("LayerNorm", "GELU", "Swish", "MSE", "CrossEntropy")
        for place in itertools.product((16, 32, 64), (256, 512, 1024), (128, 256, 512))
    ]
    OutputFiles(tmp_path / "benchmark_results.json").write(records)
    return tmp_path


@pytest.mark.skipif(DOCUMENT is None, reason="the document is not here")
def test_the_documents_own_analysis_runs_unchanged(
    whole_grid: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert DOCUMENT is not None
    monkeypatch.chdir(whole_grid)
    text = DOCUMENT.read_text()
    blocks = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "results" in block]
    analysis = [block for block in blocks if "run_comprehensive_benchmark" not in block]
    assert len(analysis) >= 4
    scope: dict[str, object] = {}
    for block in analysis:
        exec(compile(block, "document 003", "exec"), scope)
    printed = capsys.readouterr().out
    assert "PyTorch average time: 0.300 ms" in printed
    assert "Batch 16: 0.200 ms" in printed
    assert all(scope[name] for name in ("seq_256", "seq_1024", "dim_128", "dim_512"))
    (workflow,) = re.findall(r'python -c "\n(.*?)\n"\n', text, re.DOTALL)
    exec(compile(workflow.replace('\\"', '"'), "document 003", "exec"), {})
    assert "Fastest LayerNorm: CUDA (0.100 ms)" in capsys.readouterr().out
