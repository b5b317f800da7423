"""The measuring lane: exclusive across processes, fair, and released by the kernel when a holder is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from torchstone.court.lane import Lane

_HOLD = """
import sys, time
from pathlib import Path
from torchstone.court.lane import Lane
lane = Lane("device", Path(sys.argv[1]))
with getattr(lane, sys.argv[2])():
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
print("released", flush=True)
"""


def hold(folder: Path, how: str, seconds: float) -> subprocess.Popen[str]:
    source = Path(__file__).parents[2] / "src"
    paths = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder), how, str(seconds)],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_held(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"


def test_who_measures_is_alone(tmp_path: Path) -> None:
    other = hold(tmp_path, "exclusive", 1.0)
    wait_held(other)
    began = time.monotonic()
    with Lane("device", tmp_path).shared():
        assert time.monotonic() - began > 0.5
    other.communicate(timeout=10)


def test_checks_run_beside_checks(tmp_path: Path) -> None:
    other = hold(tmp_path, "shared", 30)
    wait_held(other)
    began = time.monotonic()
    with Lane("device", tmp_path).shared():
        assert time.monotonic() - began < 1
    other.kill()
    other.communicate(timeout=10)


def test_who_waits_to_measure_is_not_overtaken_by_new_checks(tmp_path: Path) -> None:
    first = hold(tmp_path, "shared", 1.5)
    wait_held(first)
    measuring = hold(tmp_path, "exclusive", 1.0)
    time.sleep(0.7)  # until it waits for the lane, with the gate shut
    began = time.monotonic()
    with Lane("device", tmp_path).shared():
        waited = time.monotonic() - began
    assert waited > 1.0, "a new check must queue behind the measurement"
    for process in (first, measuring):
        process.communicate(timeout=10)


def test_other_devices_have_other_lanes(tmp_path: Path) -> None:
    other = hold(tmp_path, "exclusive", 30)
    wait_held(other)
    began = time.monotonic()
    with Lane("another", tmp_path).exclusive():
        assert time.monotonic() - began < 1
    other.kill()
    other.communicate(timeout=10)


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    other = hold(tmp_path, "exclusive", 60)
    wait_held(other)
    os.kill(other.pid, signal.SIGKILL)
    other.communicate(timeout=10)
    began = time.monotonic()
    with Lane("device", tmp_path).exclusive():
        assert time.monotonic() - began < 1


def test_the_lane_is_free_again_after_use(tmp_path: Path) -> None:
    lane = Lane("device", tmp_path)
    with lane.exclusive():
        pass
    with lane.shared(), Lane("device", tmp_path).shared():
        pass
    lane.close()
