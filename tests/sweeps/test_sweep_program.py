"""``torchstone sweep`` as a program, on the CPU: its files, what a bad implementation costs, going on after a stop."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
OWN = """
import os, torch

name = "Double"

def make_inputs(batch_size, sequence_length, tensor_dimension, dtype, device, generator):
    return torch.randn(batch_size, sequence_length, tensor_dimension, dtype=dtype, device=device, generator=generator)

def reference(x):
    return 2 * x

def wrong_at_eight(x):
    return 2 * x + (1e-2 if x.shape[-1] == 8 else 0)

def crashes(x):
    os.kill(os.getpid(), 11)

def taken_for_too_much_memory(x):
    os.kill(os.getpid(), 9)

def raises(x):
    raise ValueError("not today")

def refuses(x):
    raise NotImplementedError("only on Sundays")

implementations = {
    "Sum": lambda x: x + x, "Wrong": wrong_at_eight, "Crashes": crashes, "Killed": taken_for_too_much_memory,
    "Raises": raises, "Refuses": refuses,
}
"""


PICKY = """
import torch

name = "{name}"

def make_inputs(batch_size, sequence_length, tensor_dimension, dtype, device, generator):
    {in_make_inputs}
    return torch.randn(batch_size, sequence_length, tensor_dimension, dtype=dtype, device=device, generator=generator)

def reference(x):
    tensor_dimension = x.shape[-1]
    {in_reference}
    return torch.where(x > 0, x, -torch.inf)

implementations = {{"Filled": lambda x: x.masked_fill(~(x > 0), -torch.inf)}}
"""
NOT_BELOW_32 = "if tensor_dimension < 32: raise ValueError(f'{tensor_dimension} is less than a head')"


class Ran(NamedTuple):
    code: int
    stdout: str
    stderr: str
    rows: list[dict[str, Any]]
    skipped: list[dict[str, Any]]


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "torchstone", "sweep", "--device", "cpu", *options]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


def finished(folder: Path, *options: str) -> Ran:
    done = subprocess.run(
        command(*options), cwd=folder, env=environment(), capture_output=True, text=True, timeout=180, check=False
    )
    rows, skipped = (
        json.loads(path.read_text()) if path.exists() else []
        for path in (folder / "benchmark_results.json", folder / "benchmark_results.skipped.json")
    )
    return Ran(done.returncode, done.stdout, done.stderr, rows, skipped)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One sweep over built-in operations and one of the user's own whose implementations fail in every way."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "double.py").write_text(OWN)
    example = ROOT / "examples" / "sweeps" / "rms_norm.py"
    operations = f"LayerNorm,loss,double.py,{example}"
    return finished(
        folder, "--operations", operations, "--batch", "2", "--seq", "4", "--dim", "8,16", "--profile", "torch,ncu"
    )


def timed(ran: Ran, operation: str) -> set[tuple[str, int]]:
    return {(row["implementation"], row["tensor_dimension"]) for row in ran.rows if row["operation"] == operation}


def reasons(ran: Ran, implementation: str) -> list[str]:
    return [row["reason"] for row in ran.skipped if row["implementation"] == implementation]


def test_what_is_right_is_timed_with_an_interval(ran: Ran) -> None:
    assert (
        timed(ran, "LayerNorm") == timed(ran, "MSE") == timed(ran, "CrossEntropy") == {("PyTorch", 8), ("PyTorch", 16)}
    )
    for row in ran.rows:
        assert 0 < row["interval_low_ms"] <= row["time_ms"] <= row["interval_high_ms"]
        assert row["gpu_efficiency"] > 0
        assert row["throughput_gbps"] > 0
        assert row["memory_mb"] > 0


def test_the_example_of_an_own_operation_is_timed(ran: Ran) -> None:
    assert timed(ran, "RMSNorm") == {(name, dim) for name in ("PyTorch", "BySteps") for dim in (8, 16)}


def test_a_wrong_implementation_gets_no_time_where_it_is_wrong(ran: Ran) -> None:
    assert {entry for entry in timed(ran, "Double") if entry[0] == "Wrong"} == {("Wrong", 16)}
    (reason,) = reasons(ran, "Wrong")
    assert reason.startswith("wrong: result 0 at [")


def test_one_that_ends_the_process_costs_only_itself(ran: Ran) -> None:
    assert {entry for entry in timed(ran, "Double") if entry[0] in ("PyTorch", "Sum")} == {
        (name, dim) for name in ("PyTorch", "Sum") for dim in (8, 16)
    }
    assert reasons(ran, "Crashes") == ["crashed: the process was killed by SIGSEGV"] * 2
    assert all(
        text.startswith("ran out of memory: the process was killed by SIGKILL") for text in reasons(ran, "Killed")
    )


def test_one_that_raises_or_refuses_is_told_as_such(ran: Ran) -> None:
    assert reasons(ran, "Raises") == ["raised: ValueError: not today"] * 2
    assert reasons(ran, "Refuses") == ["unsupported: only on Sundays"] * 2


def test_a_point_without_inputs_or_reference_is_skipped_and_the_others_are_timed(tmp_path: Path) -> None:
    (tmp_path / "heads.py").write_text(PICKY.format(name="Heads", in_make_inputs=NOT_BELOW_32, in_reference="pass"))
    (tmp_path / "late.py").write_text(PICKY.format(name="Late", in_make_inputs="pass", in_reference=NOT_BELOW_32))
    grid = ("--batch", "2", "--seq", "4", "--dim", "4,8,16,32")
    found = finished(tmp_path, "--operations", "heads.py,late.py", *grid)
    for name, kind in (("Heads", "no inputs: make_inputs raised"), ("Late", "raised:")):
        assert timed(found, name) == {("PyTorch", 32), ("Filled", 32)}
        told = [row["reason"] for row in found.skipped if row["operation"] == name]
        assert told == [f"{kind} ValueError: {dim} is less than a head" for dim in (4, 8, 16) for _ in range(2)]
    assert "given up" not in found.stderr
    assert found.code == 1, "the reference raised"
    assert finished(tmp_path, "--operations", "heads.py", *grid, "--overwrite").code == 0


def test_a_missing_implementation_is_one_notice_and_an_entry_at_every_point(ran: Ran) -> None:
    for name in ("CUDA", "Triton"):
        assert ran.stderr.count(f"{name} is left out") == 1
        assert reasons(ran, name) == [f"missing: {name} needs a CUDA device"] * 6, "never for operations of one's own"


def test_the_exit_code_and_the_closing_line_tell_that_something_was_wrong(ran: Ran) -> None:
    assert ran.code == 1, ran.stderr
    assert f"{len(ran.rows)} rows in benchmark_results.json, {len(ran.skipped)} not timed" in ran.stdout
    assert "LayerNorm" in ran.stdout


def test_a_stopped_and_a_killed_sweep_go_on_where_they_were(tmp_path: Path) -> None:
    options = ("--impl", "pytorch", "--ops", "gelu,swish", "--batch", "1:8:1", "--seq", "4", "--dim", "4", "--quiet")
    journal = tmp_path / "benchmark_results.journal" / "records.jsonl"
    assert stopped(signal.SIGINT, tmp_path, journal, options, least=2) == (130, True)
    first = journal.read_bytes()
    again = finished(tmp_path, *options)
    assert again.code == 2
    assert (
        "benchmark_results.json exists. Use --resume to go on with that sweep, --overwrite to replace" in again.stderr
    )
    assert journal.read_bytes() == first
    assert stopped(signal.SIGKILL, tmp_path, journal, (*options, "--resume"), least=first.count(b"\n") + 2)[0] == -9
    second = journal.read_bytes()
    assert second.startswith(first)
    last = finished(tmp_path, *options, "--resume")
    assert last.code == 0, last.stderr
    assert journal.read_bytes().startswith(second[: second.rindex(b"\n") + 1])
    places = [(row["batch_size"], row["operation"]) for row in last.rows]
    assert places == [(batch, operation) for batch in range(1, 9) for operation in ("GELU", "Swish")]
    smaller = finished(tmp_path, *options, "--resume", "--batch", "1")
    assert smaller.rows == last.rows, "a smaller grid drops no point"
    remembered = finished(tmp_path, "--resume", "--quiet")
    assert remembered.code == 0, remembered.stderr
    assert remembered.rows == last.rows, "the options of the beginning"
    other = finished(tmp_path, "--resume", "--dtype", "bf16", "--impl", "pytorch,compile")
    assert other.code == 2
    told = "--impl was PyTorch, now PyTorch,Compile; --dtype was float32, now bfloat16"
    assert f"{told}. Use the same options, or another --output." in other.stderr


def stopped(number: int, folder: Path, journal: Path, options: tuple[str, ...], least: int) -> tuple[int, bool]:
    """Start a sweep, end it by a signal once it has so many records; its exit code and whether it says how to go on."""
    running = subprocess.Popen(
        command(*options), cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 120
    while not journal.exists() or journal.read_bytes().count(b"\n") < least:
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
    running.send_signal(number)
    _, stderr = running.communicate(timeout=60)
    whole = shlex.join(["torchstone", *command(*options)[3:], "--resume"])
    return running.returncode, f"interrupted; go on with: {whole}\n" in stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--seq", "256:2048"), "--seq: the range '256:2048' has no step"),
        (("--ops", "layernrm"), "Did you mean 'layer_norm'?"),
        (("--impl", "cudaa"), "Did you mean 'cuda'?"),
        (("--resume",), "Leave out --resume"),
        (("--ops", "missing.py"), "there is no file 'missing.py'"),
        (("--output", "nowhere/rows.json"), "there is no folder 'nowhere'"),
        (("--output", "/proc/rows.json"), "No such file or directory. Choose another with --output."),
    ],
)
def test_what_is_asked_wrongly_is_one_line_and_exit_code_2(
    options: tuple[str, ...],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from torchstone.cli import main

    monkeypatch.chdir(tmp_path)
    if options == ("--resume",) or "/proc/rows.json" in options:
        monkeypatch.setattr("torchstone.sweeps.process.PointProcess.open", lambda self: None)
    assert main(["sweep", "--device", "cpu", *options]) == 2
    stderr = capsys.readouterr().err
    assert told in stderr
    assert stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("reference = 1", "has no function 'make_inputs'"),
        ("def make_inputs(): pass\ndef reference(): pass\nimplementations = {}", "has no 'implementations'"),
        ("import nothing_of_the_kind", "cannot be imported: ModuleNotFoundError"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
    ],
)
def test_a_file_that_defines_no_operation_is_refused_with_what_is_missing(text: str, told: str, tmp_path: Path) -> None:
    from torchstone.errors import UsageError
    from torchstone.sweeps.user_operation import load_operation

    file = tmp_path / "own.py"
    file.write_text(text)
    with pytest.raises(UsageError) as refused:
        load_operation(str(file), 0)
    assert told in str(refused.value)


@pytest.mark.slow
def test_compile_is_judged_compared_and_timed_on_a_cpu(tmp_path: Path) -> None:
    options = ("--impl", "pytorch,compile", "--ops", "gelu,mse", "--batch", "2", "--seq", "8", "--dim", "16", "--quiet")
    for mode in ("fwd", "bwd"):
        folder = tmp_path / mode
        folder.mkdir()
        found = finished(folder, *options, "--mode", mode)
        assert found.code == 0, found.stderr + str(found.skipped)
        assert len(found.rows) == 4
        assert {row["implementation"] for row in found.rows} == {"PyTorch", "Compile"}


@pytest.mark.slow
def test_the_whole_sweep_is_profiled_by_torch_and_a_missing_tool_is_a_notice(tmp_path: Path) -> None:
    grid = ("--batch", "2", "--seq", "4", "--dim", "8,16", "--mode", "fwd+bwd")
    ran = finished(tmp_path, "--impl", "pytorch", "--ops", "layer_norm", *grid, "--profile", "torch,ncu")
    assert ran.code == 0, ran.stderr
    assert len(ran.rows) == 2
    table = (tmp_path / "benchmark_results.profiles" / "torch_operators.txt").read_text()
    assert table.count("torchstone: LayerNorm PyTorch 2x4x") == 2
    assert "aten::native_layer_norm_backward" in table
    assert table in ran.stdout
    assert (tmp_path / "benchmark_results.profiles" / "torch_trace.json").is_file()
    assert ran.stderr.count("profiling with ncu: ") == 1
