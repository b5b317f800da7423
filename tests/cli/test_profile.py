"""``torchstone profile`` as users meet it: the real program, a real worker, no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
RELU = str(ROOT / "examples" / "kernels" / "relu" / "relu.py")


def torchstone(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "torchstone", "profile", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False, cwd=cwd)


def test_a_kernel_file_is_profiled_into_a_folder_with_a_table(tmp_path: Path) -> None:
    result = torchstone(RELU, "--with", "torch,ncu", "--device", "cpu", "--calls", "3", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "aten.relu.default(T([1024, 512], f32)) on cpu, 3 calls"
    assert "| torch: operator | launches | profiled µs per call | share % |" in lines
    assert any(line.startswith("| aten::clamp ") for line in lines)
    assert any(line.startswith("torch: profiled, version ") and line.endswith("in the sandbox") for line in lines)
    assert result.stderr.startswith("notice: ncu: ")
    folder = tmp_path / lines[-1]
    assert {path.name for path in folder.iterdir()} == {
        "profile.json",
        "manifest.json",
        "implementation.json",
        "torch_trace.json",
    }


def test_json_is_one_object_on_stdout_and_nothing_else(tmp_path: Path) -> None:
    result = torchstone("aten.relu.default", "--device", "cpu", "--json", "--output-dir", "here", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["exit_code"] == 0
    folder = tmp_path / told["profile_folder"]
    assert folder.parent == tmp_path / "here"
    assert json.loads((folder / "profile.json").read_text()) == told["profile"]
    assert told["profile"]["results"][0]["sandboxed"]


def test_a_kernel_that_fails_is_exit_code_1_and_one_line(tmp_path: Path) -> None:
    (tmp_path / "relu.py").write_text("def relu(x):\n    raise ValueError('[red]no\\nway[/]')\n")
    result = torchstone("relu.py", "--device", "cpu", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr == "notice: torch: the kernel failed: ValueError: [red]no way[/]\n"
    assert "torch: failed" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


def test_without_any_profiler_that_can_be_used_it_is_exit_code_3(tmp_path: Path) -> None:
    result = torchstone("relu", "--with", "nsys", "--with", "ncu", "--device", "cpu", cwd=tmp_path)
    assert result.returncode == 3
    assert [line[:13] for line in result.stderr.splitlines()] == ["notice: nsys:", "notice: ncu: "]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere.py"], 2, "there is no kernel 'nowhere.py'"),
        (["relu", "--with", "perf"], 2, "unknown profiler 'perf'. Known: ncu, nsys, torch."),
        (["relu", "--with", "torch,,ncu"], 2, "has an empty name"),
        (["relu", "--suite", "smoek"], 2, "unknown suite 'smoek'. Did you mean 'smoke'?"),
        (["relu", "--case", "nix"], 2, "no case fits --case 'nix'"),
        (["relu", "--device", "cuda"], 3, "device 'cuda' is not available: "),
        (["relu", "--output-dir", "file/x"], 2, "cannot write the profile folder file/x: Not a directory"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(arguments: list[str], code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    device = [] if "--device" in arguments else ["--device", "cpu"]
    result = torchstone(*arguments, *device, cwd=tmp_path)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert result.returncode == code
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
