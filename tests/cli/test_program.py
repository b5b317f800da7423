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
        (["--run-id", "../x"], 2, "run id '../x' is not a plain folder name"),
        (["--run-id", "x", "--resume"], 2, "there is no run folder torchstone_runs/x to resume"),
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


def test_a_reader_that_leaves_early_causes_no_traceback(tmp_path: Path) -> None:
    result = in_process("bash", "-c", f"{sys.executable} -m torchstone list operators | true", cwd=tmp_path)
    assert "Traceback" not in result.stderr


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
