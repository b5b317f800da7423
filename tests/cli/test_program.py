"""The real program in its own process: fast to start, one line per mistake, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

Finished = subprocess.CompletedProcess[str]


def environment() -> dict[str, str]:
    """This one, fit for another folder (a relative PYTHONPATH would not lead anywhere) and without a GPU."""
    paths = [str(Path(part).resolve()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "CUDA_VISIBLE_DEVICES": ""}


def in_process(*command: str, cwd: Path) -> Finished:
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment(), timeout=60, check=False)


def torchstone(*arguments: str, cwd: Path) -> Finished:
    return in_process(sys.executable, "-m", "torchstone", *arguments, cwd=cwd)


def test_help_is_there_in_less_than_0_4_seconds(tmp_path: Path) -> None:
    took = []
    for _ in range(3):
        began = time.perf_counter()
        result = torchstone("--help", cwd=tmp_path)
        took.append(time.perf_counter() - began)
        assert result.returncode == 0
        assert "run " in result.stdout
    assert min(took) < 0.4


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["list", "operators"]])
def test_no_torch_is_imported_before_a_device_is_needed(arguments: list[str], tmp_path: Path) -> None:
    script = (
        "import sys; from torchstone.cli import main; code = main(sys.argv[1:]); "
        "heavy = {'torch', 'numpy', 'rich', 'altair'} & set(sys.modules); "
        "assert 'torch' not in heavy, heavy; assert '--help' not in sys.argv or not heavy, heavy; sys.exit(code)"
    )
    result = in_process(sys.executable, "-c", script, *arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_the_version_is_told(tmp_path: Path) -> None:
    result = torchstone("--version", cwd=tmp_path)
    assert result.returncode == 0
    assert result.stdout.startswith("torchstone ")


def test_without_arguments_the_help_is_shown(tmp_path: Path) -> None:
    result = torchstone(cwd=tmp_path)
    assert result.returncode == 0
    assert "Usage: torchstone" in result.stdout


KERNELS = ["--backend", "directory", "--kernels-dir"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--suite", "smoek"], 2, "unknown suite 'smoek'. Did you mean 'smoke'? Known: "),
        (["--backend", "atne"], 2, "unknown backend 'atne'. Did you mean 'aten'? Known: "),
        (["--dtype", "flaot32"], 2, "unknown dtype 'flaot32'. Did you mean 'float32'? Known: "),
        (["--ops", "rleu"], 2, "'rleu'"),
        ([*KERNELS, "nowhere"], 2, "nowhere"),
        (["--backend", "directory"], 2, "--kernels-dir"),
        (["--output-dir", "file/runs"], 2, "cannot write the run folder file/runs: Not a directory"),
        (["--device", "gpu"], 2, "device 'gpu' is not understood. Use auto, cpu, cuda or cuda:N."),
        (["--device", "cuda"], 3, "device 'cuda' is not available: "),
        (["--device", "cuda:9"], 3, "device 'cuda:9' is not available: "),
        (
            ["--memory-limit", "8"],
            2,
            "the memory limit is 8 bytes; a worker needs 256 MiB or more. Write --memory-limit 8GiB",
        ),
        (["--process-limit", "1"], 2, "the process limit is 1; a worker and its warden need 2 or more."),
        (["--p", "nan"], 2, "Invalid value for '--p': nan is not in the range x>0."),
        (["--timeout-multiplier", "NaN"], 2, "Invalid value for '--timeout-multiplier': NaN is not in the range x>0."),
        (["--run-id", "../x"], 2, "run id '../x' is not a plain folder name"),
        (["--run-id", "x", "--resume"], 2, "unknown run 'x': torchstone_runs has no such folder. There is no run."),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(arguments: list[str], code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    device = [] if "--device" in arguments else ["--device", "cpu"]
    result = torchstone("run", *device, *arguments, cwd=tmp_path)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert result.returncode == code
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_run_that_stopped_at_a_failure_goes_on_after_the_kernel_is_mended(tmp_path: Path) -> None:
    kernel = tmp_path / "kernels" / "relu" / "relu.py"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("def relu_kernel_impl(x):\n    return x * 1\n")
    options = ["--device", "cpu", "--effort", "quick", "--no-measure", "--run-id", "x", "-k", "relu and f32"]
    first = torchstone("run", *KERNELS, "kernels", *options, "-x", cwd=tmp_path)
    assert first.returncode == 1, first.stderr
    assert first.stderr.splitlines()[-1].endswith("go on with: torchstone run --resume --run-id x")
    kernel.write_text("def relu_kernel_impl(x):\n    return x.clamp(min=0)\n")
    second = torchstone("run", "--resume", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert "going on with torchstone_runs/x" in second.stderr
    assert "agrees" in second.stdout
    again = torchstone("run", "--last-failed", "x", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    assert "no case failed in torchstone_runs/x" in again.stdout


def with_closed(stream: str, *arguments: str, cwd: Path) -> tuple[int, str]:
    """The exit code of a command whose stdout or stderr nobody reads, and what its other stream says."""
    command = [sys.executable, "-m", "torchstone", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, cwd=cwd, env=environment(), **pipes) as program:  # type: ignore[call-overload]
        getattr(program, stream).close()
        other = program.stderr if stream == "stdout" else program.stdout
        said: str = other.read()
        return program.wait(), said


@pytest.mark.parametrize(("body", "code"), [("x.clamp(min=0)", 0), ("x * 1", 1)])
def test_a_reader_that_leaves_early_ends_no_run_and_changes_no_exit_code(body: str, code: int, tmp_path: Path) -> None:
    kernel = tmp_path / "kernels" / "relu" / "relu.py"
    kernel.parent.mkdir(parents=True)
    kernel.write_text(f"def relu_kernel_impl(x):\n    return {body}\n")
    asked = ["run", *KERNELS, "kernels", "--device", "cpu", "--effort", "quick", "--no-measure", "--ops", "relu", "-v"]
    assert with_closed("stderr", *asked, "--run-id", "a", cwd=tmp_path)[0] == code
    records = (tmp_path / "torchstone_runs" / "a" / "records.jsonl").read_text()
    assert len(records.splitlines()) == 6
    got, said = with_closed("stdout", *asked, "--run-id", "b", cwd=tmp_path)
    assert got == code, said
    assert "Traceback" not in said
    for command in (["show", "a"], ["show", "a", "--json"], ["list", "operators"]):
        assert with_closed("stdout", *command, cwd=tmp_path) == (0, "")


@pytest.mark.parametrize("kind", ["dumb", "unknown"])
def test_progress_on_a_dumb_terminal_is_lines(kind: str, tmp_path: Path) -> None:
    kernel = tmp_path / "kernels" / "add" / "add.py"  # that of relu is missing: no judge is started
    kernel.parent.mkdir(parents=True)
    kernel.write_text("def add_kernel_impl(x, y, *, alpha=1): return x + y\n")
    asked = ["run", *KERNELS, "kernels", "--device", "cpu", "--ops", "relu", "--run-id", "r"]
    command = [sys.executable, "-m", "torchstone", *asked]
    ours, theirs = os.openpty()
    told = {**environment(), "TERM": kind}
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, env=told, cwd=tmp_path, timeout=60, check=False)
    os.close(theirs)
    assert b"6 cases, in torchstone_runs/r" in os.read(ours, 10_000)
    os.close(ours)


def test_shared_helpers_travel_and_folders_that_no_case_uses_are_named(tmp_path: Path) -> None:
    for name in ("relu", "rleu", "tanh"):
        (tmp_path / "kernels" / name).mkdir(parents=True)
        text = f"from common_ops import clip\n\ndef {name}_kernel_impl(x):\n    return clip(x)\n"
        (tmp_path / "kernels" / name / f"{name}.py").write_text(text)
    (tmp_path / "kernels" / "common_ops.py").write_text("def clip(x):\n    return x.clamp(min=0)\n")
    asked = ("--ops", "relu", "--device", "cpu", "--effort", "quick", "--no-measure", "--run-id", "r")
    result = torchstone("run", *KERNELS, "kernels", *asked, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "6 cases: 6 agrees" in " ".join(result.stdout.split())
    summary = (tmp_path / "torchstone_runs" / "r" / "OVERALL_SUMMARY.md").read_text()
    for name, reason in {
        "rleu": "torch has no such operator or overload; did you mean 'relu'?",
        "tanh": "suite 'smoke' does not ask for this operator; ",
    }.items():
        assert result.stderr.count(f"warning: {name}: {reason}") == 1
        assert f"| {name} | {reason}" in summary
