"""The picture of docs/kernels-measured.md is drawn from the tables of that page."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("altair")

import kernel_charts


def test_every_cell_of_the_tables_by_size_is_a_point() -> None:
    points = list(kernel_charts.points_of(kernel_charts.PAGE.read_text(encoding="utf-8")))
    assert {point["mode"] for point in points} == {"forward", "backward"}
    combinations = {(point["mode"], point["operation"], point["implementation"]) for point in points}
    assert len(points) == len(combinations) * len({point["megabytes"] for point in points})
    shown = {"mode": "backward", "operation": "CrossEntropy", "implementation": "CUDA", "megabytes": 67}
    (share,) = (point["share"] for point in points if shown.items() <= point.items())
    assert f"| CrossEntropy, CUDA | {share:g} |" in kernel_charts.PAGE.read_text(encoding="utf-8")


def test_a_page_without_these_tables_is_told_and_draws_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.md").write_text("# Nothing measured\n")
    monkeypatch.setattr(kernel_charts, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(kernel_charts, "PICTURE", tmp_path / "picture.svg")
    assert kernel_charts.main() == 1
    assert "lacks the tables" in capsys.readouterr().out
    assert not (tmp_path / "picture.svg").exists()
