"""The whole program: a wrong kernel is found, shrunk, and the printed line shows the same verdict."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

RIGHT = "def relu_kernel_impl(x): return x.clamp(min=0)\n"
WRONG_ON_STRIDED = """
def mul__Tensor_kernel_impl(a, b):
    return a * b if a.is_contiguous() else a * b + 1
"""


def environment() -> dict[str, str]:
    paths = [str(Path(part).resolve()) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "CUDA_VISIBLE_DEVICES": ""}


def torchstone(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "torchstone", *arguments)
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment(), timeout=120, check=False)


def kernels(folder: Path) -> Path:
    for operator, text in {"relu": RIGHT, "mul__Tensor": WRONG_ON_STRIDED}.items():
        (folder / operator).mkdir(parents=True)
        (folder / operator / f"{operator}.py").write_text(text)
    return folder


def test_a_wrong_kernel_is_found_and_shrunk_and_the_printed_line_shows_it(tmp_path: Path) -> None:
    kernels(tmp_path / "K")
    asked = ("fuzz", "--backend", "directory", "--kernels-dir", "K", "--ops", "relu,mul.Tensor", "--examples", "50")
    result = torchstone(*asked, "--device", "cpu", "--json", cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    right, wrong = json.loads(result.stdout)["findings"]
    assert right["failure"] is None
    assert set(right["verdicts"]) == {"agrees"}
    failure = wrong["failure"]
    shape = failure["case"]["args"][0]["shape"]
    assert shape in ([2], [2, 2], [1, 2], [2, 1]), failure["label"]
    assert failure["case"]["args"][0]["strides"], failure["label"]
    assert failure["verdict"]["type"] == "disagrees"
    assert "looking for a smaller case" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["K"], "nothing is left in the user's folder"
    words = shlex.split(failure["line"])
    assert words[0] == "torchstone"
    again = torchstone(*words[1:], "--json", cwd=tmp_path)
    assert again.returncode == 1, again.stderr
    assert json.loads(again.stdout)["summary"]["counts"]["disagrees"] == 1


def test_a_case_that_is_none_is_one_line(tmp_path: Path) -> None:
    for text, told in (("{", "no case"), ('{"suite": 1}', "Expected `str`"), ("@missing.json", "cannot be read")):
        result = torchstone("run", "--case", text, cwd=tmp_path)
        assert result.returncode == 2
        assert told in result.stderr
        assert "Traceback" not in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_an_operator_that_nobody_offers_is_wrong_usage(tmp_path: Path) -> None:
    kernels(tmp_path / "K")
    result = torchstone("fuzz", "--backend", "directory", "--kernels-dir", "K", "--ops", "exp", cwd=tmp_path)
    assert result.returncode == 2
    assert "offers nothing for exp" in result.stderr


def test_a_kernel_that_refuses_what_torch_takes_is_not_passed_off_as_right(tmp_path: Path) -> None:
    refusing = "    if x.numel() > 4: raise NotImplementedError('not today')\n"
    shy = f"def relu_kernel_impl(x):\n{refusing}    return x.clamp(min=0)\n"
    (tmp_path / "K" / "relu").mkdir(parents=True)
    (tmp_path / "K" / "relu" / "relu.py").write_text(shy)
    asked = ("fuzz", "--backend", "directory", "--kernels-dir", "K", "--ops", "relu", "--examples", "15")
    result = torchstone(*asked, "--device", "cpu", cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    assert "REFUSES" in result.stdout
    assert "cases that torch takes" in result.stdout
