"""What is told about a single case."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import made_records as making
from torchstone.reports import evaluate, make_report
from torchstone.reports.detail import details, matching
from torchstone.reports.safe_text import byte_size
from torchstone.schema import (
    Attribution,
    DeviceState,
    Disagrees,
    Disturbance,
    KernelCode,
    KernelShare,
    Record,
)

ATTRIBUTION = Attribution(
    {"aten.clamp.default": 2},
    (KernelShare("_relu", "triton", 1, 2_150),),
    code=(KernelCode("_relu", 32, 4, 2048, 4, 3, (17, 1, 1), (128, 1, 1), 37.4), KernelCode("\x1b[31mother")),
    peak_memory_bytes=3 << 20,
    reference_peak_memory_bytes=1 << 20,
)
BUSY = DeviceState(
    sm_clock_mhz=1980,
    memory_clock_mhz=3201,
    temperature_celsius=41,
    power_watts=123.4,
    throttle_reasons=("power cap",),
    load_average=0.5,
    processes=4,
    other_processes=1,
)


def full_record() -> Record:
    measured = msgspec.structs.replace(
        making.measurement(rounds=7),
        began_unix_ns=0,
        ended_unix_ns=500_000_000,
        before=DeviceState(sm_clock_mhz=345),
        after=BUSY,
        disturbances=(Disturbance(2, ("power cap",)), Disturbance(5, ("power cap", "waited for a core"))),
        energy_millijoules=62_000,
    )
    of = making.case("aten.relu.default", 8, timed=True)
    return msgspec.structs.replace(making.record(of=of, measured=measured), attribution=ATTRIBUTION)


def told(record: Record) -> dict[str, str]:
    """Line by line, of a name that comes twice the first."""
    lines = details(evaluate([record])).splitlines()[1:]
    return {line[2:20].strip(): line[20:] for line in reversed(lines)}


def test_everything_that_a_record_has_is_told() -> None:
    found = told(full_record())
    assert found["verdict"] == "agrees"
    assert found["time per call"] == "5.00 µs, reference 10.0 µs"
    assert found["speedup"].startswith("2.00x")
    assert found["device before"] == "345 MHz"
    assert found["device after"] == "1980 MHz, memory 3201 MHz, 41 °C, 123 W, load 0.50, power cap"
    assert found["others on device"] == "1 process"
    assert found["energy"] == "62 J for all that was measured, in 0.5 s, 124 W on average"
    assert found["disturbed rounds"] == "2 of 7: power cap 2, waited for a core 1"
    assert found["peak memory"] == "3 MiB, reference 1 MiB"
    assert found["torch operators"] == "aten.clamp.default (2x)"
    assert found["launched"] == "_relu: triton, 1x, 2.15 µs"
    assert found["code"] == (
        "_relu: 32 registers, 4 spilled, 2048 B shared, 4 warps, 3 stages, grid 17x1x1, block 128x1x1, occupancy 37 %"
    )


def test_what_a_record_does_not_have_takes_no_line() -> None:
    made = making.record()
    found = told(made)
    assert set(found) == {"job", "kernel", "verdict"}
    assert found["kernel"] == made.implementation.where
    nowhere = msgspec.structs.replace(made.implementation, where="")
    assert set(told(msgspec.structs.replace(made, implementation=nowhere))) == {"job", "verdict"}


def test_imports_that_were_added_are_named() -> None:
    added = msgspec.structs.replace(making.record(), added_imports=("import math", "import triton.language as tl"))
    assert told(added)["added"] == "import math; import triton.language as tl"


def test_a_failure_says_why() -> None:
    verdict = Disagrees("check", "values", "at [0]: got 1, expected 2")
    assert "got 1, expected 2" in told(making.record(verdict))["verdict"]


def test_a_kernels_name_cannot_act_on_the_terminal() -> None:
    assert "\x1b" not in details(evaluate([full_record()]))


def test_cases_are_found_by_operator_by_arguments_and_by_key() -> None:
    records = [making.record(of=making.case(size=size)) for size in (8, 16)]
    results = evaluate(records)
    assert len(matching(results, "relu")) == 2
    assert [item.record for item in matching(results, "[16]")] == [records[1]]
    assert [item.record for item in matching(results, records[0].job_key[:12])] == [records[0]]
    assert matching(results, "nothing like it") == []


def entry(record: Record) -> dict[str, Any]:
    (found,) = json.loads(make_report([record]).files["full_results.json"])
    return dict(found)


def test_the_file_of_all_results_has_it_too() -> None:
    found = entry(full_record())
    assert (found["peak_memory_bytes"], found["reference_peak_memory_bytes"]) == (3 << 20, 1 << 20)
    assert (found["energy_millijoules"], found["disturbed_rounds"]) == (62_000, 2)
    empty = entry(making.record())
    assert [empty[name] for name in ("peak_memory_bytes", "energy_millijoules", "disturbed_rounds")] == [None] * 3


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (1 << 20, "1 MiB"),
        (1023 << 20, "1023 MiB"),
        (5 << 50, "5120 TiB"),
    ],
)
def test_sizes_are_short(size: int, text: str) -> None:
    assert byte_size(size) == text


@given(st.integers(0, 1 << 50))
def test_a_size_is_never_far_off(size: int) -> None:
    number, unit = byte_size(size).split()
    factor = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}[unit]
    assert float(number) * factor == pytest.approx(size, rel=0.005)
