"""Reads the load of the machine's CPU cores from /proc and /sys. Values that a machine does not report are None."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

_MOST_CORES = 64
"""Most cores of a machine on which /proc/stat is read: with hundreds of cores a read takes milliseconds."""


class Processor:
    """Reads counters of the given cores, or of all cores. ``root``: the folder that has /proc and /sys."""

    def __init__(self, cores: tuple[int, ...] = (), root: Path = Path("/")) -> None:
        # Strings, because joining paths takes longer than reading these files.
        self._proc = f"{root / 'proc'}/"
        self._pressure, self._stat = self._proc + "pressure/cpu", self._proc + "stat"
        self._cores = cores or tuple(sorted(os.sched_getaffinity(0)))
        clock = f"{root / 'sys/devices/system/cpu'}/cpu{{}}/cpufreq/scaling_cur_freq"
        self._clocks = [clock.format(core) for core in self._cores]
        self._quota = _quota_file(root)
        self._counts_stolen = (os.cpu_count() or 1) <= _MOST_CORES

    def pressure_us(self) -> int | None:
        """For how long, since boot, any thread of the machine was ready to run and had no core."""
        found = re.search(r"some .*total=(\d+)", _text(self._pressure))
        return int(found.group(1)) if found else None

    def stolen_ticks(self) -> int | None:
        """For how long, since boot, a virtual machine's host gave these cores to others, in 1/100 s."""
        if not self._counts_stolen:
            return None
        upper, _, _ = _text(self._stat).partition("intr")  # the rest is long
        lines = re.findall(r"^cpu(\d+)((?: \d+){8})", upper, re.MULTILINE)
        found = [int(counts.split()[7]) for core, counts in lines if int(core) in self._cores]
        return sum(found) if found else None

    def throttled_us(self) -> int | None:
        """For how long the control group has been throttled so far because its CPU quota was used up."""
        found = re.search(r"throttled_usec (\d+)", _text(self._quota)) if self._quota is not None else None
        return int(found.group(1)) if found else None

    def waited_ns(self, pids: Iterable[int], all_threads: bool = True) -> dict[int, int]:
        """For how long each process so far was ready to run and had no core. Unreadable processes are left out."""
        waited = {pid: self._waited_ns(pid, all_threads) for pid in pids}
        return {pid: value for pid, value in waited.items() if value is not None}

    def _waited_ns(self, pid: int, all_threads: bool) -> int | None:
        folder = f"{self._proc}{pid}/"
        try:
            threads = os.listdir(folder + "task") if all_threads else [str(pid)]
        except OSError:
            return None
        found = [_text(f"{folder}task/{thread}/schedstat").split() for thread in threads]
        delays = [int(fields[1]) for fields in found if len(fields) == 3]
        return sum(delays) if delays else None

    def clock_mhz(self) -> int | None:
        """The mean of the cores' present clocks."""
        found = [int(text) for text in map(_text, self._clocks) if text.strip().isdigit()]
        return round(sum(found) / len(found) / 1000) if found else None

    def descends_from(self, pid: int, ancestor: int) -> bool:
        """Whether the process ``pid`` is ``ancestor`` or descends from it."""
        while pid > 1 and pid != ancestor:
            fields = _text(f"{self._proc}{pid}/stat").rpartition(")")[2].split()
            pid = int(fields[1]) if len(fields) > 1 else 0
        return pid == ancestor


def _quota_file(root: Path) -> str | None:
    """The file ``cpu.stat`` of this process's control group (version 2); None if there is none."""
    found = re.search(r"^0::/(.*)$", _text(str(root / "proc/self/cgroup")), re.MULTILINE)
    path = root / "sys/fs/cgroup" / found.group(1) / "cpu.stat" if found else None
    return str(path) if path is not None and path.exists() else None


def _text(path: str) -> str:
    """The file's content; empty if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 1 << 16).decode("ascii", "replace")
    except OSError:  # the process has ended
        return ""
    finally:
        os.close(descriptor)
