"""Candidates that two judges evaluate on one device are timed in turns of a burst each, not one after another."""

from __future__ import annotations

from itertools import combinations

import pytest

import torchstone

SOURCE = "# {0}\ndef relu(x):\n    return x.clamp(min=0)\n"


@pytest.mark.slow
def test_two_judges_measure_on_one_cpu_within_the_same_time() -> None:
    with torchstone.Judge(device="cpu", effort="quick", judges=2) as judge:
        found = judge.measure([SOURCE.format(number) for number in range(6)], "aten.relu.default")
    assert all(each.agrees for each in found), [each.failures() for each in found]
    measured = [record.measurement for each in found for record in each.records if record.measurement is not None]
    assert len(measured) == 6
    times = [(each.began_unix_ns, each.ended_unix_ns) for each in measured]
    assert any(max(one[0], other[0]) < min(one[1], other[1]) for one, other in combinations(times, 2))
