"""The measuring lane: exclusive across processes, fair, and released by the kernel when a holder is killed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchstone.judge_process import measuring_lane
from torchstone.judge_process.measuring_lane import MeasuringLane

_HOLD = """
import sys, time
from pathlib import Path
from torchstone.judge_process.measuring_lane import MeasuringLane
lane = MeasuringLane("device", Path(sys.argv[1]))
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
    with MeasuringLane("device", tmp_path).shared():
        assert time.monotonic() - began > 0.5
    other.communicate(timeout=10)


def test_checks_run_beside_checks(tmp_path: Path) -> None:
    other = hold(tmp_path, "shared", 30)
    wait_held(other)
    began = time.monotonic()
    with MeasuringLane("device", tmp_path).shared():
        assert time.monotonic() - began < 1
    other.kill()
    other.communicate(timeout=10)


def test_who_waits_to_measure_is_not_overtaken_by_new_checks(tmp_path: Path) -> None:
    first = hold(tmp_path, "shared", 1.5)
    wait_held(first)
    measuring = hold(tmp_path, "exclusive", 1.0)
    time.sleep(0.7)  # until it waits for the lane, with the gate shut
    began = time.monotonic()
    with MeasuringLane("device", tmp_path).shared():
        waited = time.monotonic() - began
    assert waited > 1.0, "a new check must queue behind the measurement"
    for process in (first, measuring):
        process.communicate(timeout=10)


def test_other_devices_have_other_lanes(tmp_path: Path) -> None:
    other = hold(tmp_path, "exclusive", 30)
    wait_held(other)
    began = time.monotonic()
    with MeasuringLane("another", tmp_path).exclusive():
        assert time.monotonic() - began < 1
    other.kill()
    other.communicate(timeout=10)


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    other = hold(tmp_path, "exclusive", 60)
    wait_held(other)
    os.kill(other.pid, signal.SIGKILL)
    other.communicate(timeout=10)
    began = time.monotonic()
    with MeasuringLane("device", tmp_path).exclusive():
        assert time.monotonic() - began < 1


def test_the_lane_is_free_again_after_use(tmp_path: Path) -> None:
    lane = MeasuringLane("device", tmp_path)
    with lane.exclusive():
        pass
    with lane.shared(), MeasuringLane("device", tmp_path).shared():
        pass
    lane.close()


def test_who_shares_leaves_to_measure_and_comes_back(tmp_path: Path) -> None:
    lane, other = MeasuringLane("device", tmp_path), MeasuringLane("device", tmp_path)
    with lane.shared():
        with lane.exclusive():
            assert not lane.is_shared
            checking = hold(tmp_path, "shared", 0.0)
            time.sleep(0.5)
            assert checking.poll() is None, "it waits for the measurement"
        assert lane.is_shared
        checking.communicate(timeout=10)
        with other.shared():
            pass
    with other.exclusive():
        pass


def test_two_that_share_may_both_want_to_measure(tmp_path: Path) -> None:
    upgrading = _HOLD.replace("with getattr", "with lane.shared(), getattr")
    source = Path(__file__).parents[2] / "src"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", upgrading, str(tmp_path), "exclusive", "0.3"],
            env={**os.environ, "PYTHONPATH": str(source)},
        )
        for _ in range(2)
    ]
    for process in both:
        assert process.wait(timeout=20) == 0


def test_who_shares_learns_that_somebody_waits_and_makes_way(tmp_path: Path) -> None:
    lane = MeasuringLane("device", tmp_path)
    assert not lane.is_wanted()
    with lane.shared():
        assert not lane.is_wanted()
        measuring = hold(tmp_path, "exclusive", 0.5)
        until = time.monotonic() + 10
        while not lane.is_wanted():
            assert time.monotonic() < until
        checking = hold(tmp_path, "shared", 0.0)
        before = lane.waited_seconds
        lane.make_way()
        assert lane.waited_seconds - before > 0.4, "as long as the measurement took"
        assert lane.is_shared
        assert not lane.is_wanted()
        wait_held(measuring)
    for process in (measuring, checking):
        process.communicate(timeout=10)


def test_all_that_wait_to_measure_do_so_before_checks_go_on(tmp_path: Path) -> None:
    lane = MeasuringLane("device", tmp_path)
    with lane.shared():
        measuring = [hold(tmp_path, "exclusive", 0.4) for _ in range(3)]
        until = time.monotonic() + 30
        while _lock_holders(tmp_path / "device.measuring") < len(measuring):
            assert time.monotonic() < until
            time.sleep(0.01)
        lane.make_way()
        assert [process.poll() is None for process in measuring].count(True) <= 1, "the last one may still be ending"
    for process in measuring:
        assert process.communicate(timeout=10)[0] == "held\nreleased\n"


def test_a_program_that_does_nothing_but_measure_does_not_stop_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring_lane, "_MOST_YIELDING_SECONDS", 0.3)
    waits_to_measure = os.open(tmp_path / "device.measuring", os.O_RDONLY | os.O_CREAT)
    fcntl.flock(waits_to_measure, fcntl.LOCK_SH)  # and never ends
    began = time.monotonic()
    with MeasuringLane("device", tmp_path).shared():
        assert 0.3 <= time.monotonic() - began < 5
    os.close(waits_to_measure)


def _lock_holders(path: Path) -> int:
    """How many open files hold a lock on it."""
    if not path.exists():
        return 0
    inode = f":{path.stat().st_ino} "
    return sum(inode in line for line in Path("/proc/locks").read_text().splitlines() if "FLOCK" in line)
