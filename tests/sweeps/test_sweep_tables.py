"""The tables and the advice of a sweep, from synthetic rows: word for word, and rule by rule."""

from __future__ import annotations

import io

import msgspec
import pytest

import sweep_rows
from golden import require_golden
from torchstone.measuring.grid_means import Estimate, geometric_mean, ratio
from torchstone.reports.console import make_console
from torchstone.schema import SkippedRow, SweepRow
from torchstone.sweeps.fastest_implementations import advice_lines, changes, fastest
from torchstone.sweeps.tables import print_sweep


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def rows() -> list[SweepRow]:
    records = (sweep_rows.record(point) for point in sweep_rows.points(("LayerNorm", "CrossEntropy")))
    return sweep_rows.rows(records)


@pytest.fixture(scope="module")
def skipped() -> list[SkippedRow]:
    points = list(sweep_rows.points(("LayerNorm",), batches=(256,)))[:3]
    lost = [
        sweep_rows.skipped(point, "CUDA", f"does not fit: {needed} GB are needed, 10 GB are free")
        for needed, point in enumerate(points, 12)
    ]
    return [*lost, sweep_rows.skipped(points[0], "Triton", "wrong: at [0, 3] got 1.5, expected 1.0")]


def shown(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, rows: list[SweepRow], skipped: list[SkippedRow], **how: bool
) -> str:
    for name, value in {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    print_sweep(make_console(stream), rows, skipped, **how)
    return stream.getvalue()


def row(implementation: str, point: tuple[int, int, int], time_ms: float, doubt: float = 0.01) -> SweepRow:
    batch, length, dimension = point
    made = next(sweep_rows.rows_of(sweep_rows.record(next(sweep_rows.points(("GELU",))))))
    return msgspec.structs.replace(
        made,
        implementation=implementation,
        batch_size=batch,
        sequence_length=length,
        tensor_dimension=dimension,
        time_ms=time_ms,
        interval_low_ms=time_ms * (1 - doubt),
        interval_high_ms=time_ms * (1 + doubt),
    )


def grid(triton_from: dict[tuple[int, int], int]) -> list[SweepRow]:
    """PyTorch takes 1 ms everywhere; Triton half of it from a dimension that depends on batch and sequence length."""
    made = []
    for (batch, length), first in triton_from.items():
        for dimension in (64, 256, 512):
            point = (batch, length, dimension)
            made += [row("PyTorch", point, 1.0), row("Triton", point, 0.5 if dimension >= first else 2.0)]
    return made


def test_a_terminal_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, rows: list[SweepRow], skipped: list[SkippedRow]
) -> None:
    text = shown(monkeypatch, Terminal(), rows, skipped)
    assert all(len(line) <= 80 and line == line.rstrip() for line in text.splitlines())
    require_golden("sweep_terminal_80", text)


def test_a_pipe(monkeypatch: pytest.MonkeyPatch, rows: list[SweepRow], skipped: list[SkippedRow]) -> None:
    require_golden("sweep_pipe", shown(monkeypatch, io.StringIO(), rows, skipped))


def test_few_points_are_shown_one_by_one(monkeypatch: pytest.MonkeyPatch, rows: list[SweepRow]) -> None:
    few = [one for one in rows if one.batch_size == 16 and one.sequence_length == 256 and one.operation == "LayerNorm"]
    text = shown(monkeypatch, Terminal(), few, [])
    assert all(len(line) <= 80 for line in text.splitlines())
    require_golden("sweep_points_80", text)


def test_every_point_is_shown_if_asked_for(monkeypatch: pytest.MonkeyPatch, rows: list[SweepRow]) -> None:
    small = [one for one in rows if one.batch_size == 16]
    text = shown(monkeypatch, io.StringIO(), small, [], every_point=True)
    assert sum(line.startswith("|") and "Triton" in line for line in text.splitlines()) == 2 * 28


def test_each_dtype_has_its_own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [
        one
        for dtype in ("float32", "bfloat16")
        for point in sweep_rows.points(("GELU",), (16,), (256,), (8,), dtype)
        for one in sweep_rows.rows_of(sweep_rows.record(point))
    ]
    text = shown(monkeypatch, io.StringIO(), few, [])
    assert "GELU, forward, float32: 1 point\n" in text
    assert "GELU, forward, bfloat16: 1 point\n" in text


def test_an_operation_without_any_time_tells_why(monkeypatch: pytest.MonkeyPatch, skipped: list[SkippedRow]) -> None:
    text = shown(monkeypatch, io.StringIO(), [], skipped)
    assert "No implementation was timed." in text
    assert "Not timed: CUDA at 3 points: does not fit: 12 GB are needed, 10 GB are free (at the first of them)" in text


def test_overlapping_intervals_have_no_clear_winner() -> None:
    here, there = (1, 1, 8), (1, 1, 16)
    found = fastest(
        [row("PyTorch", here, 1.0), row("Triton", here, 0.99), row("PyTorch", there, 1.0), row("Triton", there, 0.9)]
    )
    assert found.at == {here: None, there: "Triton"}
    assert (found.wins, found.no_clear_winner) == ({"Triton": 1}, 1)


def test_where_the_fastest_changes_is_told_with_how_often_it_holds() -> None:
    everywhere = dict.fromkeys(((1, 1), (1, 2), (2, 1), (2, 2)), 256)
    assert "Along dim: PyTorch below dim 256, Triton from dim 256 (for every batch and seq)." in advice_lines(
        grid(everywhere)
    )
    lines = advice_lines(grid({**everywhere, (2, 2): 512}))
    told = "Along dim: PyTorch below dim 256, Triton from dim 256 (in 3 of 4 combinations of batch and seq)."
    assert told in lines


def test_a_change_that_holds_at_half_of_the_coordinates_is_not_told() -> None:
    rows = grid({(1, 1): 64, (1, 2): 256, (2, 1): 512, (2, 2): 256})
    assert changes(fastest(rows).at) == []


def test_advice_counts_speedups_over_the_baseline() -> None:
    lines = advice_lines([row("PyTorch", (1, 1, 8), 1.0, 0.0), row("Triton", (1, 1, 8), 0.5, 0.0)])
    assert lines[0] == "Fastest: Triton at the only point."
    assert lines[1] == ("Triton against PyTorch: 2.000x, 95 % interval 2.000 to 2.000 (geometric mean of 1 point).")


def test_intervals_of_ratios_and_means() -> None:
    exact = Estimate(1.0, 1.0, 1.0)
    assert ratio(Estimate(2.0, 1.8, 2.2), exact) == pytest.approx((2.0, 1.8, 2.2))
    assert ratio(exact, Estimate(2.0, 1.6, 2.5)) == pytest.approx((0.5, 0.4, 0.625))
    one = Estimate(2.0, 2.0 / 1.1, 2.0 * 1.1)
    mean = geometric_mean([one] * 4)
    assert mean == pytest.approx((2.0, 2.0 / 1.1**0.5, 2.0 * 1.1**0.5))
