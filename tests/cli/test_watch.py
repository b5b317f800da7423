"""``torchstone watch`` as a program: it judges, judges again what changes, and leaves nothing behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchstone.supervisor.ptrace_freezing import descendants

_WITH_A_WORKER = 4
"""Processes below the program when a kernel is called: judge, zygote, warden and worker."""


def test_a_changed_kernel_is_judged_again_and_ctrl_c_ends_everything(tmp_path: Path) -> None:
    kernel = tmp_path / "relu" / "relu.py"
    kernel.parent.mkdir()
    kernel.write_text("def relu_kernel_impl(x): return x.clamp(min=0)\n")
    command = [sys.executable, "-m", "torchstone", "watch", str(tmp_path), "--device", "cpu", "--no-measure"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    program = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    try:
        assert program.stdout.readline().startswith("agrees       aten.relu.default  6 cases")
        kernel.write_text("def relu_kernel_impl(x): return x\n")
        assert program.stdout.readline().startswith("disagrees    aten.relu.default  6 cases")
        started = descendants(program.pid)
        assert started
        program.send_signal(signal.SIGINT)
        assert program.wait(20) == 130
    finally:
        program.kill()
        program.wait()
        program.stdout.close()
    until = time.monotonic() + 10
    while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in started):
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in started)


def test_a_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    kernel = tmp_path / "relu" / "relu.py"
    kernel.parent.mkdir()
    kernel.write_text("def relu_kernel_impl(x): return x.clamp(min=0)\n")
    command = [sys.executable, "-m", "torchstone", "watch", str(tmp_path), "--device", "cpu", "--no-measure"]
    ours, theirs = os.openpty()
    program = subprocess.Popen(command, env={**os.environ, "TERM": "dumb"}, stdout=theirs)
    os.close(theirs)
    try:
        with open(ours) as screen:
            assert select.select([screen], [], [], 30)[0], "nothing is shown"
            assert screen.readline().startswith("agrees       aten.relu.default  6 cases")
    finally:
        program.send_signal(signal.SIGINT)
        program.wait(20)


def test_a_kernel_that_hangs_is_given_up_when_its_mended_file_is_saved(tmp_path: Path) -> None:
    kernel = tmp_path / "relu" / "relu.py"
    kernel.parent.mkdir()
    kernel.write_text("def relu_kernel_impl(x):\n    while True: pass\n")
    command = [sys.executable, "-m", "torchstone", "watch", str(tmp_path), "--device", "cpu", "--no-measure"]
    with subprocess.Popen([*command, "--compile-timeout", "50"], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            until = time.monotonic() + 20
            while len(descendants(program.pid)) < _WITH_A_WORKER and time.monotonic() < until:
                time.sleep(0.1)
            kernel.write_text("def relu_kernel_impl(x): return x.clamp(min=0)\n")
            saved = time.monotonic()
            assert program.stdout.readline().startswith("agrees       aten.relu.default  6 cases")
            assert time.monotonic() - saved < 25
        finally:
            program.send_signal(signal.SIGINT)
            program.wait(20)


@pytest.mark.parametrize(
    ("options", "limit"), [(["--compile-timeout", "0.5"], "0.5 s"), (["--timeout-multiplier", "0.03"], "0.6 s")]
)
def test_the_limits_of_the_stages_can_be_chosen(tmp_path: Path, options: list[str], limit: str) -> None:
    kernel = tmp_path / "relu" / "relu.py"
    kernel.parent.mkdir()
    kernel.write_text("def relu_kernel_impl(x):\n    while True: pass\n")
    command = [sys.executable, "-m", "torchstone", "watch", str(tmp_path), "--device", "cpu", "--no-measure", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            told = program.stdout.readline()
        finally:
            program.send_signal(signal.SIGINT)
            program.wait(20)
    assert told.startswith("timed_out")
    assert limit in told


def test_it_ends_when_nobody_reads_its_verdicts(tmp_path: Path) -> None:
    kernel = tmp_path / "relu" / "relu.py"
    kernel.parent.mkdir()
    kernel.write_text("def relu_kernel_impl(x): return x.clamp(min=0)\n")
    command = [sys.executable, "-m", "torchstone", "watch", str(tmp_path), "--device", "cpu", "--no-measure"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline().startswith("agrees")
        program.stdout.close()
        try:
            assert (program.wait(20), program.stderr.read()) == (0, "")
        finally:
            program.kill()


def test_without_its_extra_it_says_which_one(tmp_path: Path) -> None:
    (tmp_path / "watchfiles.py").write_text("raise ImportError('not here')\n")
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), source])}
    command = [sys.executable, "-m", "torchstone", "watch", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "torchstone[watch]" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_can_never_be_judged_ends_it_at_once_with_the_reason(tmp_path: Path) -> None:
    for name in ("rellu", "relu"):
        (tmp_path / name / name).mkdir(parents=True)
        (tmp_path / name / name / f"{name}.py").write_text(f"def {name}_kernel_impl(x): return x.clamp(min=0)\n")
    unknown_operator = _watch(tmp_path / "relu", "--ops", "rellu")
    assert (unknown_operator.returncode, unknown_operator.stdout) == (2, "")
    assert "unknown smoke operator 'rellu'. Did you mean 'relu'?" in unknown_operator.stderr
    unknown_folder = _watch(tmp_path / "rellu")
    assert unknown_folder.returncode == 2
    assert unknown_folder.stderr.startswith(f"error: no kernel in {tmp_path / 'rellu'} can be judged: rellu: ")
    assert "did you mean 'relu'" in unknown_folder.stderr


def _watch(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchstone", "watch", str(folder), "--device", "cpu", "--no-measure", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_an_operator_without_a_kernel_is_noted_until_it_has_one(tmp_path: Path) -> None:
    kernel = tmp_path / "relu" / "relu.py"
    kernel.parent.mkdir()
    kernel.write_text("def relu_kernel_impl(x): return x.clamp(min=0)\n")
    command = [sys.executable, "-m", "torchstone", "watch", str(tmp_path), "--device", "cpu", "--no-measure"]
    with subprocess.Popen([*command, "--ops", "relu,log"], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        told = sorted(program.stdout.readline() for _ in range(2))
        program.send_signal(signal.SIGINT)
        assert program.wait(20) == 130
    assert told[0].startswith("agrees       aten.relu.default")
    assert told[1] == f"note: no folder of {tmp_path} has a kernel for log yet; expected log/\n"
