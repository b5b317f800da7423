"""How many copies a point gets, and which points do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.processes.free_memory import free_host_bytes
from torchstone.sweeps.memory import (
    BEYOND_CACHE,
    MOST_COPIES,
    USABLE_SHARE,
    Footprint,
    fitting_copies,
    host_cache_bytes,
    needed_bytes,
    too_large,
)

MIB = 1 << 20


def test_copies_go_through_more_memory_than_the_cache_holds() -> None:
    copies = fitting_copies(Footprint(MIB, MIB, 4), 50 * MIB, 3, 100 << 30)
    assert copies * 2 * MIB >= BEYOND_CACHE * 50 * MIB > (copies - 1) * 2 * MIB


def test_a_call_larger_than_that_needs_one() -> None:
    assert fitting_copies(Footprint(512 * MIB, 512 * MIB, 4), 50 * MIB, 3, 100 << 30) == 1


def test_what_does_not_fit_is_told_with_both_numbers() -> None:
    large = Footprint(10 << 30, 10 << 30, 4)
    assert fitting_copies(large, 50 * MIB, 3, 16 << 30) == 0
    assert too_large(large, 3, 16 << 30) == "75.16 GB are needed, 14.60 GB of memory can be used"


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 1 << 36),
    st.integers(1, 1 << 36),
    st.integers(1, 1 << 28),
    st.integers(1, 5),
    st.integers(0, 1 << 38),
)
def test_the_copies_always_fit(given_bytes: int, made: int, cache: int, implementations: int, free: int) -> None:
    footprint = Footprint(given_bytes, made, 4)
    copies = fitting_copies(footprint, cache, implementations, free)
    assert 0 <= copies <= MOST_COPIES
    if copies:
        assert needed_bytes(footprint, copies, implementations) <= USABLE_SHARE * free
    else:
        assert needed_bytes(footprint, 1, implementations) > int(USABLE_SHARE * free)


def test_the_machine_is_asked(tmp_path: Path) -> None:
    assert free_host_bytes() > MIB
    assert host_cache_bytes() >= 1 << 15
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 10 kB\nMemAvailable:    2048 kB\n")
    assert free_host_bytes(meminfo) == 2 * MIB
    (tmp_path / "index0").mkdir()
    (tmp_path / "index0" / "size").write_text("49152K\n")
    assert host_cache_bytes(tmp_path) == 48 * MIB


@pytest.mark.parametrize("itemsize", [2, 4])
def test_a_comparison_in_float64_counts_elements_not_bytes(itemsize: int) -> None:
    assert Footprint(itemsize * 100, itemsize * 100, itemsize).wide_bytes() == 200 * 8 * 5
