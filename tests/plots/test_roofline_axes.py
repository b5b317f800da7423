"""The axes of a roofline hold whatever was measured. No chart is drawn here."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("altair", reason="needs the extra plots")

from torchstone.plots.roofline import axes_around, ceilings_of, roof_lines, roofline_point
from torchstone.schema import SpeedOfLight

lights = st.builds(
    SpeedOfLight,
    read_bytes=st.integers(0, 10**9),
    written_bytes=st.integers(0, 10**9),
    bytes_per_second=st.floats(1e8, 1e13),
    latency_ns=st.floats(1, 1e5),
    flops=st.integers(0, 10**12),
    flops_per_second=st.none() | st.floats(1e8, 1e15),
    dtype=st.sampled_from(("float32", "bfloat16", None)),
)


def is_within(value: float, domain: tuple[float, float]) -> bool:
    return domain[0] * 0.999999 <= value <= domain[1] * 1.000001


@settings(max_examples=60, deadline=None)
@given(st.lists(lights, min_size=1, max_size=4), st.floats(1, 1e9))
def test_points_ceilings_and_their_names_lie_on_the_page(chosen: list[SpeedOfLight], time_ns: float) -> None:
    points = [roofline_point(light, time_ns, "x") for light in chosen]
    axes = axes_around(points, ceilings_of(chosen))
    for point in points:
        assert is_within(point.intensity, axes.wide.domain)
        assert is_within(point.reached, axes.high.domain)
        assert is_within(point.allowed, axes.high.domain)
    lines, names = roof_lines(axes, ceilings_of(chosen))
    for row in (*lines, *names):
        assert all(is_within(row[key], axes.wide.domain) for key in ("x", "x2") if key in row)
        assert all(is_within(row[key], axes.high.domain) for key in ("y", "y2") if key in row)
    assert 1 <= len(axes.wide.ticks) <= 7
    assert 1 <= len(axes.high.ticks) <= 9
