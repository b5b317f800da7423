"""What the device and the machine tell, with a driver that is played; the machine's own counters are real."""
# ruff: noqa: N802 - the played driver has the names of NVML

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.measuring.device_state import DeviceProbe, Glance, Watch, disturbances
from torchstone.measuring.processor_load import Processor
from torchstone.schema import DeviceState, Disturbance

UINT, ULL = 1, 3
"""NVML's numbers of these types."""


class PlayedDriver:
    """The part of pynvml that is used."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self, fields: dict[int, tuple[int, int]], pids: list[int] | None = None, silent: bool = False) -> None:
        self.fields, self.pids, self.silent = fields, pids, silent
        self.asked: list[list[int]] = []

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"device {index}"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-here":
            raise self.NVMLError("not found")
        return uuid

    def nvmlDeviceGetFieldValues(self, handle: Any, fields: list[int]) -> list[Any]:
        self.asked.append(fields)
        if len(fields) > 1 and not set(fields) <= set(self.fields):
            raise self.NVMLError("a field in the list is not known")
        return [self._field(field) for field in fields]

    def _field(self, field: int) -> Any:
        if field not in self.fields:
            return SimpleNamespace(fieldId=field, nvmlReturn=3, valueType=0, value=SimpleNamespace(dVal=0.0))
        kind, number = self.fields[field]
        value = SimpleNamespace(uiVal=number if kind == UINT else -1, ullVal=number if kind == ULL else -1)
        return SimpleNamespace(fieldId=field, nvmlReturn=0, valueType=kind, value=value)

    def _told(self, value: int) -> int:
        if self.silent:
            raise self.NVMLError("not supported")
        return value

    def nvmlDeviceGetClockInfo(self, handle: Any, which: int) -> int:
        return 1980 if which == self.NVML_CLOCK_SM else 3201  # a virtual machine may tell clocks and nothing else

    def nvmlDeviceGetTemperature(self, handle: Any, which: int) -> int:
        return self._told(41)

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return self._told(123_500)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any) -> int:
        return self._told(0x4 | 0x1)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:
        if self.pids is None:
            raise self.NVMLError("not permitted")
        return [SimpleNamespace(pid=pid) for pid in self.pids]


ALL_FIELDS = {74: (ULL, 10), 75: (ULL, 20), 77: (ULL, 0), 79: (ULL, 0), 269: (ULL, 0), 271: (ULL, 7), 83: (ULL, 9000)}


def glances(first: dict[str, Any], second: dict[str, Any], milliseconds: float = 10) -> tuple[Glance, Glance]:
    return Glance(0, **first), Glance(round(milliseconds * 1e6), **second)


def test_a_full_reading_tells_what_the_driver_tells() -> None:
    state = DeviceProbe("cuda", "GPU-here", nvml=PlayedDriver(ALL_FIELDS, [os.getpid()])).state()
    assert (state.sm_clock_mhz, state.memory_clock_mhz, state.temperature_celsius) == (1980, 3201, 41)
    assert state.power_watts == 123.5
    assert state.throttle_reasons == ("power cap",)
    assert (state.processes, state.other_processes) == (1, 0)


def test_what_one_device_does_not_tell_leaves_the_rest() -> None:
    state = DeviceProbe("cuda", nvml=PlayedDriver({}, silent=True)).state()
    assert state.sm_clock_mhz == 1980
    assert (state.temperature_celsius, state.power_watts, state.throttle_reasons) == (None, None, ())
    assert (state.processes, state.other_processes) == (None, None)


def test_a_device_that_the_driver_does_not_know_leaves_the_machine() -> None:
    probe = DeviceProbe("cuda", "GPU-elsewhere", nvml=PlayedDriver(ALL_FIELDS))
    assert probe.state().sm_clock_mhz is None
    assert probe.state().load_average is not None
    assert probe.glance().slowed == {}


def test_a_machine_without_a_driver_is_no_error() -> None:
    """Where there is one, as well: only the machine's own load is sure."""
    assert DeviceProbe("cuda").state().load_average is not None


def test_counters_are_read_in_one_question_and_by_their_types() -> None:
    driver = PlayedDriver({**ALL_FIELDS, 74: (UINT, 10)})
    probe = DeviceProbe("cuda", nvml=driver)
    driver.asked.clear()
    glance = probe.glance(counters=True)
    assert glance.slowed["power cap"] == 10
    assert glance.slowed["power brake"] == 7
    assert glance.energy_millijoules == 9000
    assert len(driver.asked) == 1
    assert "hardware thermal" not in glance.slowed  # field 270, which this driver does not know, spoils no other


def test_a_counter_that_grew_is_named() -> None:
    driver = PlayedDriver(dict(ALL_FIELDS))
    probe = DeviceProbe("cuda", nvml=driver)
    before = probe.glance(counters=True)
    driver.fields |= {74: (ULL, 11), 271: (ULL, 8)}
    found = disturbances(before, probe.glance(counters=True))
    assert found[:2] == ("power cap", "power brake")


def test_processes_that_the_judge_started_are_no_others() -> None:
    with _sleeping() as child:
        driver = PlayedDriver({}, [os.getpid(), child, os.getppid(), 1])
        state = DeviceProbe("cuda", nvml=driver).state()
    assert (state.processes, state.other_processes) == (4, 2)


def test_numbers_of_another_namespace_give_a_count_only() -> None:
    state = DeviceProbe("cuda", nvml=PlayedDriver({}, [999_999_999])).state()
    assert (state.processes, state.other_processes) == (1, None)


COUNTER = st.none() | st.integers(0, 1 << 60)
GLANCES = st.builds(
    Glance,
    taken_ns=st.integers(0, 1 << 60),
    slowed=st.dictionaries(st.sampled_from(["power cap", "thermal limit"]), st.integers(0, 1 << 60)),
    energy_millijoules=COUNTER,
    waited_ns=st.dictionaries(st.integers(1, 3), st.integers(0, 1 << 60)),
    pressure_us=COUNTER,
    stolen_ticks=COUNTER,
    throttled_us=COUNTER,
)


@given(GLANCES)
def test_between_a_glance_and_itself_nothing_happened(glance: Glance) -> None:
    assert disturbances(glance, glance) == ()


@given(GLANCES, GLANCES)
def test_a_counter_that_was_reset_is_no_disturbance(one: Glance, other: Glance) -> None:
    assert disturbances(one, _lower(one, other)) == ()


def _lower(one: Glance, other: Glance) -> Glance:
    """The second glance, with no counter above the first's."""
    counters = ("pressure_us", "stolen_ticks", "throttled_us")
    plain = {name: min(getattr(one, name) or 0, getattr(other, name) or 0) for name in counters}
    slowed = {name: min(value, one.slowed.get(name, value)) for name, value in other.slowed.items()}
    waited = {pid: min(value, one.waited_ns.get(pid, value)) for pid, value in other.waited_ns.items()}
    return msgspec.structs.replace(other, slowed=slowed, waited_ns=waited, **plain)


@given(GLANCES, GLANCES)
def test_who_tells_nothing_saw_nothing(one: Glance, other: Glance) -> None:
    assert disturbances(Glance(one.taken_ns), other) == ()
    assert disturbances(one, Glance(other.taken_ns)) == ()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"waited_ns": {5: 0}}, {"waited_ns": {5: 200_000}}, ("waited for a core",)),
        ({"waited_ns": {5: 0}}, {"waited_ns": {5: 90_000}}, ()),
        ({"waited_ns": {5: 0}}, {"waited_ns": {6: 9_000_000}}, ()),
        ({"pressure_us": 0}, {"pressure_us": 1_500}, ("machine overloaded",)),
        ({"pressure_us": 0}, {"pressure_us": 900}, ()),
        ({"stolen_ticks": 7}, {"stolen_ticks": 8}, ("core taken by the host",)),
        ({"throttled_us": 7}, {"throttled_us": 8}, ("core quota used up",)),
        ({"energy_millijoules": 7}, {"energy_millijoules": 8000}, ()),
    ],
)
def test_each_counter_has_its_name_and_its_measure(
    first: dict[str, Any], second: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert disturbances(*glances(first, second)) == expected


def test_a_watch_remembers_which_rounds_were_disturbed_and_the_energy_of_all() -> None:
    probe = PlayedProbe([{}, {}, {"power cap": 0}, {"power cap": 0}, {"power cap": 5}])
    watch = Watch(probe)  # type: ignore[arg-type]
    for number in range(2):
        watch.begin()
        watch.end(number)
    assert watch.disturbances == (Disturbance(1, ("power cap",)),)
    assert watch.energy_millijoules == 400


class PlayedProbe:
    """Glances from a list."""

    def __init__(self, slowed: list[dict[str, int]]) -> None:
        self._glances = [Glance(n, (), found, energy_millijoules=100 * n) for n, found in enumerate(slowed)]

    def glance(self, workers: tuple[int, ...], *, counters: bool = False) -> Glance:
        return self._glances.pop(0)


def test_what_happens_between_rounds_does_not_count() -> None:
    watch = Watch(PlayedProbe([{"power cap": n} for n in (0, 5, 5, 9, 9)]))  # type: ignore[arg-type]
    for number in range(2):
        watch.begin()
        watch.end(number)
    assert watch.disturbances == ()


@contextmanager
def _sleeping() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@contextmanager
def _hog(core: int) -> Iterator[None]:
    """Somebody who wants the core for himself."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            os.sched_setaffinity(process.pid, {core})
            yield
        finally:
            process.kill()


def test_a_process_that_shares_its_core_waited_for_it() -> None:
    allowed = os.sched_getaffinity(0)
    core = max(allowed)
    probe = DeviceProbe("cpu", cores=(core,))
    try:
        os.sched_setaffinity(0, {core})
        with _hog(core):
            time.sleep(0.2)
            before = probe.glance([os.getpid()])
            end = time.perf_counter() + 0.05
            while time.perf_counter() < end:
                pass
            after = probe.glance([os.getpid()])
    finally:
        os.sched_setaffinity(0, allowed)
    if not after.waited_ns:
        pytest.skip("this kernel does not count how long threads wait")
    assert "waited for a core" in disturbances(before, after)


def test_a_glance_is_cheap() -> None:
    probe = DeviceProbe("cpu")
    taken = []
    for _ in range(200):
        began = time.perf_counter_ns()
        probe.glance([os.getpid()])
        taken.append(time.perf_counter_ns() - began)
    assert (
        statistics.quantiles(taken, n=4)[0] < 500_000
    )  # about 50 µs on an idle machine; others may be busy on this one


def test_every_counter_is_read_from_its_file(tmp_path: Path) -> None:
    files = {
        "proc/pressure/cpu": "some avg10=0.02 avg60=0.11 avg300=0.84 total=7263\nfull avg10=0.00 total=9\n",
        "proc/stat": "cpu  9 9 9 9 9 9 9 99 0 0\ncpu0 1 1 1 1 1 1 1 5 0 0\ncpu1 1 1 1 1 1 1 1 7 0 0\nintr 1 2\n",
        "proc/self/cgroup": "0::/box\n",
        "sys/fs/cgroup/box/cpu.stat": "usage_usec 5\nnr_throttled 1\nthrottled_usec 77\n",
        "proc/12/task/12/schedstat": "1000 30 2\n",
        "proc/12/task/13/schedstat": "1000 4 2\n",
        "proc/12/stat": "12 (a) b) S 11 12 12 0\n",
        "proc/11/stat": "11 (sh) S 10 12 12 0\n",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "2793436\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    processor = Processor((1,), tmp_path)
    assert processor.pressure_us() == 7263
    assert processor.stolen_ticks() in (7, None)  # None on a machine with very many cores
    assert processor.throttled_us() == 77
    assert processor.waited_ns([12, 99]) == {12: 34}
    assert processor.waited_ns([12], all_threads=False) == {12: 30}
    assert processor.clock_mhz() == 2793
    assert processor.descends_from(12, 10)
    assert processor.descends_from(10, 10)
    assert not processor.descends_from(12, 7)


def test_a_machine_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    processor = Processor((0,), tmp_path)
    told = (processor.pressure_us(), processor.stolen_ticks(), processor.throttled_us(), processor.clock_mhz())
    assert told == (None, None, None, None)
    assert processor.waited_ns([1]) == {}
    assert not processor.descends_from(5, 1)


def test_states_of_old_records_can_still_be_read() -> None:
    old = b'{"sm_clock_mhz":1980,"load_average":0.5}'
    assert msgspec.json.decode(old, type=DeviceState) == DeviceState(sm_clock_mhz=1980, load_average=0.5)
