"""Tables of ncu and nsys become kernels; what cannot be read is said, never guessed."""

from __future__ import annotations

import pytest
from faking import NCU_TABLE

from torchstone.profiling import nsight_compute, nsight_systems
from torchstone.profiling.nsight import UnreadableTableError
from torchstone.profiling.profiler_csv import number

NSYS = """Generating SQLite file /tmp/report.sqlite from /tmp/report.nsys-rep
Processing [/tmp/report.sqlite] with [cuda_gpu_kern_sum.py]...
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,30000,10,3000.0,3000.0,2900,3100,50.0,"void kernel<float, int>(float *, int)"
25.0,"10,000",5,2000.0,2000.0,1900,2100,50.0,triton_relu

some words after it
"""


def test_launches_of_one_shape_are_one_row_with_shares_weighted_by_time() -> None:
    library, triton = sorted(nsight_compute.parse(f"==PROF== talk\n{NCU_TABLE}"), key=lambda k: -k.profiled_ns)
    assert library.name.startswith("void at::native::vectorized_elementwise_kernel<(int)4, [bold]>")
    assert (library.launches, library.profiled_ns) == (2, 4000)
    assert library.memory_percent == pytest.approx(45.0)
    assert library.sm_percent == pytest.approx(25.0)
    assert library.occupancy_percent == pytest.approx(75.0)
    assert library.l2_hit_percent == pytest.approx(50.0), "a launch that does not tell does not count"
    assert (library.registers_per_thread, library.grid_size, library.block_size) == (32, 1024, 128)
    assert (triton.launches, triton.profiled_ns, triton.grid_size) == (1, 2500, 7)


@pytest.mark.parametrize(("unit", "expected"), [("us", 4_000_000), ("msecond", 4_000_000_000), ("second", 4 * 10**12)])
def test_times_are_read_in_their_unit(unit: str, expected: int) -> None:
    kernels = nsight_compute.parse(NCU_TABLE.replace('"ns"', f'"{unit}"'))
    assert max(kernel.profiled_ns for kernel in kernels) == expected


def test_an_unknown_unit_of_time_is_not_guessed() -> None:
    with pytest.raises(UnreadableTableError, match="in 'cycle', which is no unit of time"):
        nsight_compute.parse(NCU_TABLE.replace('"ns"', '"cycle"'))


@pytest.mark.parametrize("text", ["", "==ERROR== no such file\n", "a,b\n1,2\n", '"Kernel Name"\n'])
def test_what_is_no_table_of_ncu_is_said_to_be_none(text: str) -> None:
    with pytest.raises(UnreadableTableError):
        nsight_compute.parse(text)


def test_the_table_of_nsys_is_read_past_the_talk_around_it() -> None:
    first, second = nsight_systems.parse(NSYS)
    assert (first.name, first.launches, first.profiled_ns) == ("void kernel<float, int>(float *, int)", 10, 30000)
    assert (second.name, second.launches, second.profiled_ns) == ("triton_relu", 5, 10000)


def test_what_is_no_table_of_nsys_is_said_to_be_none() -> None:
    with pytest.raises(UnreadableTableError):
        nsight_systems.parse("SKIPPED: report.sqlite does not contain CUDA kernel data.\n")


@pytest.mark.parametrize("text", ["n/a", "", "nan", "inf", "-1", "(!) n/a", None])
def test_words_for_what_is_missing_are_no_numbers(text: str | None) -> None:
    assert number(text) is None
