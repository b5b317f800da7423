"""Axes: what people write, the sizes it means, and what is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.errors import UsageError
from torchstone.sweeps.axes import checked_axis, parse_axis

sizes = st.integers(1, 5000)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("16,32", (16, 32)),
        ("256:2048:x2", (256, 512, 1024, 2048)),
        ("8:64:8", (8, 16, 24, 32, 40, 48, 56, 64)),
        ("768, 8:32:x2 ,16", (768, 8, 16, 32)),
        ("5:9:3", (5, 8)),
        ("7:7:x2", (7,)),
    ],
)
def test_lists_and_ranges_mean_sizes(text: str, values: tuple[int, ...]) -> None:
    assert parse_axis("--seq", text) == values


@settings(max_examples=80, deadline=None)
@given(st.lists(sizes, min_size=1, max_size=20))
def test_a_written_list_is_read_as_it_was(values: list[int]) -> None:
    assert parse_axis("--dim", ",".join(map(str, values))) == tuple(dict.fromkeys(values))
    assert checked_axis("dim", values) == tuple(dict.fromkeys(values))


@settings(max_examples=80, deadline=None)
@given(sizes, sizes, st.integers(1, 500))
def test_a_range_of_steps_is_pythons_with_its_end(first: int, more: int, step: int) -> None:
    last = first + more
    assert parse_axis("--dim", f"{first}:{last}:{step}") == tuple(range(first, last + 1, step))


@settings(max_examples=80, deadline=None)
@given(sizes, sizes, st.integers(2, 9))
def test_each_size_of_a_growing_range_is_a_multiple_of_the_one_before(first: int, more: int, factor: int) -> None:
    found = parse_axis("--dim", f"{first}:{first + more}:x{factor}")
    assert found[0] == first
    assert all(after == factor * before for before, after in itertools.pairwise(found))
    assert found[-1] <= first + more < factor * found[-1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("16,,32", "an empty place"),
        ("256:2048", "no step, such as 256:2048:x2"),
        ("abc", "'abc' is neither"),
        ("0", "begins at 0"),
        ("-4", "'-4' is neither"),
        ("64:8:8", "ends before it begins"),
        ("8:64:0", "never gets beyond 8"),
        ("8:64:x1", "never gets beyond 8"),
        ("1:100000:1", "more than 10000 values"),
        ("١٦", "neither"),
    ],
)
def test_what_is_no_axis_is_refused_in_one_line_with_a_suggestion(text: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_axis("--seq", text)
    assert told in str(refused.value)
    assert str(refused.value).startswith("--seq: ")
    assert "256:2048:x2" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("values", [[], [0], [8, -1], [True], [2.0]])
def test_numbers_that_are_no_sizes_are_refused(values: list[int]) -> None:
    with pytest.raises(UsageError, match="batch_sizes"):
        checked_axis("batch_sizes", values)
