"""``torchstone watch`` as a program: it judges, judges again what changes, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from torchstone.supervisor.worker_handle import descendants


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


def test_without_its_extra_it_says_which_one(tmp_path: Path) -> None:
    (tmp_path / "watchfiles.py").write_text("raise ImportError('not here')\n")
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), source])}
    command = [sys.executable, "-m", "torchstone", "watch", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "torchstone[watch]" in done.stderr
    assert "Traceback" not in done.stderr
