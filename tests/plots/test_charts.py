"""The charts of a sweep, drawn and rendered for real from synthetic rows; each chart once for all tests."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("altair", reason="needs the extra plots")
pytest.importorskip("vl_convert", reason="needs the extra plots")

from png_pixels import colours, pixels

import sweep_rows
from torchstone.plots import CHARTS, rendering, style
from torchstone.plots.sweep_charts import sweep_charts
from torchstone.schema import SweepRecord

IMPLEMENTATIONS = ("PyTorch", "Triton")


@cache
def records() -> tuple[SweepRecord, ...]:
    grid = sweep_rows.points(("LayerNorm", "GELU"), (16, 32), (256, 512), (8, 64, 512))
    return tuple(sweep_rows.record(point, IMPLEMENTATIONS) for point in grid)


@cache
def charts() -> dict[str, style.TopLevel]:
    return sweep_charts(sweep_rows.rows(records()), records())


@cache
def spec(name: str) -> dict[str, Any]:
    """What altair makes of the chart, held to the schema of Vega-Lite."""
    found: dict[str, Any] = charts()[name].to_dict(validate=True)
    return found


def data(name: str) -> list[dict[str, Any]]:
    """All rows of data in the chart."""
    return [row for values in spec(name)["datasets"].values() for row in json.loads(values)]


def rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def test_a_full_sweep_has_every_chart_that_is_offered() -> None:
    assert tuple(charts()) == CHARTS


def test_a_png_is_not_blank() -> None:
    picture = rendering.png(charts()["speedup"])
    height, width, _ = pixels(picture).shape
    assert 600 < width < 4000
    assert 300 < height < 4000
    assert len(colours(picture)) > 20
    assert rgb(style.colour_and_mark(IMPLEMENTATIONS)["Triton"][0]) in colours(picture)


@pytest.mark.parametrize("name", CHARTS)
def test_an_svg_names_what_it_shows(name: str) -> None:
    text = rendering.svg(charts()[name]).decode()
    assert text.startswith("<svg")
    for word in (sweep_rows.DEVICE, "float32", "forward", "LayerNorm", "GELU", "Triton"):
        assert word in text, word


def test_a_point_of_a_line_is_the_mean_over_the_other_axes_with_its_interval() -> None:
    rows = [row for row in data("time") if row["implementation"] == "Triton" and row["at"] in (8, 64, 512)]
    assert all(row["low"] < row["value"] < row["high"] for row in rows)
    first = {row["at"]: row["value"] for row in rows}
    assert first[8] < first[64] < first[512]


def test_a_line_is_made_of_the_same_points_at_each_of_its_values() -> None:
    rows = [row for row in sweep_rows.rows(records()) if row.operation == "GELU"]
    kept = [row for row in rows if not (row.tensor_dimension == 512 and row.batch_size == 32)]
    chart = sweep_charts(kept, only=("time",))["time"].to_dict()
    lines = [json.loads(values) for values in chart["datasets"].values()]
    (along_dim,) = [line for line in lines if {row["at"] for row in line} == {8, 64, 512}]
    (drawn,) = [row["value"] for row in along_dim if (row["implementation"], row["at"]) == ("Triton", 8)]
    small = [row for row in kept if (row.implementation, row.tensor_dimension, row.batch_size) == ("Triton", 8, 16)]
    assert drawn == pytest.approx(1000 * (small[0].time_ms * small[1].time_ms) ** 0.5)


def test_bars_hold_every_operation_and_all_together() -> None:
    bars = {(row["operation"], row["implementation"]): row for row in data("speedup")}
    assert set(bars) == {(name, "Triton") for name in ("LayerNorm", "GELU", "All operations")}
    assert bars["All operations", "Triton"]["count"] == len(records())


def test_a_cell_of_the_heat_map_is_the_mean_over_batches() -> None:
    cells = [row for row in data("heatmap") if row["operation"] == "GELU"]
    assert {(cell["seq"], cell["dim"]) for cell in cells} == {(s, d) for s in (256, 512) for d in (8, 64, 512)}
    assert all(cell["count"] == 2 for cell in cells)


def test_a_heat_map_has_a_panel_only_where_an_implementation_has_the_operation() -> None:
    grid = sweep_rows.points(("LayerNorm", "GELU"), (16,), (256, 512), (8, 64))
    some = [
        sweep_rows.record(point, IMPLEMENTATIONS if point.operation == "GELU" else (*IMPLEMENTATIONS, "Liger"))
        for point in grid
    ]
    drawn = sweep_charts(sweep_rows.rows(some), only=("heatmap", "efficiency"))
    for chart in drawn.values():
        found = chart.to_dict(validate=True)
        panels = {
            line["title"]["text"]: [panel["title"]["text"] for panel in line["hconcat"]] for line in found["vconcat"]
        }
        assert [name for name in panels["LayerNorm"] if name == "Liger"] == ["Liger"]
        assert "Liger" not in panels["GELU"]
        for cells in map(json.loads, found["datasets"].values()):
            assert len({(cell["operation"], cell["implementation"]) for cell in cells}) == 1


def test_without_records_there_is_no_roofline_and_no_limit() -> None:
    drawn = sweep_charts(sweep_rows.rows(records()), only=("size", "roofline"))
    assert tuple(drawn) == ("size",)
    assert sweep_rows.DEVICE not in json.dumps(drawn["size"].to_dict())


def test_without_pytorch_there_is_no_speedup() -> None:
    rows = [row for row in sweep_rows.rows(records()) if row.implementation != "PyTorch"]
    assert set(sweep_charts(rows, only=("speedup", "heatmap", "efficiency"))) == {"efficiency"}


def test_several_dtypes_have_charts_of_their_own() -> None:
    grid = [
        one for dtype in ("float32", "bfloat16") for one in sweep_rows.points(("GELU",), (16,), (256,), (8, 64), dtype)
    ]
    drawn = sweep_charts(sweep_rows.rows(sweep_rows.record(point) for point in grid), only=("speedup",))
    assert set(drawn) == {"speedup-float32-fwd", "speedup-bfloat16-fwd"}


def test_one_point_alone_can_be_drawn() -> None:
    one = [sweep_rows.record(point) for point in sweep_rows.points(("GELU",), (16,), (256,), (8,))]
    chosen = {"time", "speedup", "size"}
    assert set(sweep_charts(sweep_rows.rows(one), one, chosen)) == chosen


def test_an_implementation_has_one_colour_in_every_chart() -> None:
    own = style.colour_and_mark(("mine", "PyTorch", "Triton"))
    assert own["Triton"] == style.colour_and_mark(IMPLEMENTATIONS)["Triton"]
    assert len({colour for colour, _ in own.values()}) == 3
    assert list(own) == ["PyTorch", "Triton", "mine"]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (2.0, 60.0, [2, 5, 10, 20, 50]),
        (0.002, 900.0, [0.01, 0.1, 1, 10, 100, 1000]),
        (3.0, 3.3, [3]),
        (1e-6, 1e9, [1e-6, 1e-4, 1e-2, 1, 1e2, 1e4, 1e6, 1e8]),
    ],
)
def test_ticks_of_logarithmic_axes_are_round_and_few(low: float, high: float, ticks: list[float]) -> None:
    found = style.log_range(low, high)
    assert found.ticks == pytest.approx(ticks)
    assert found.domain[0] < low <= high < found.domain[1]


@pytest.mark.parametrize(("low", "high"), [(0.97, 1.02), (0.5, 1.4), (1.1, 3.0), (0.05, 40.0)])
def test_an_axis_of_speedups_holds_1(low: float, high: float) -> None:
    found = style.ratio_range(low, high)
    assert any(tick == pytest.approx(1.0) for tick in found.ticks)
    assert 2 <= len(found.ticks) <= 9
    assert found.domain[0] <= min(low, 1) < max(high, 1) < found.domain[1]


class Loads(HTMLParser):
    """What a page would load when it is opened, and what it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.places: list[str] = []
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_script = tag == "script"
        self.places += [value or "" for name, value in attrs if name in ("src", "href", "data", "action")]

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)
            self._in_script = False


def test_the_page_loads_nothing_from_outside() -> None:
    chosen = {name: charts()[name] for name in ("speedup", "roofline")}
    page = rendering.html_page(chosen, "a </script> b").decode()
    parser = Loads()
    parser.feed(page)
    assert parser.places == ["#chart-speedup", "#chart-roofline"]
    libraries, drawing = parser.scripts
    assert len(libraries) > 500_000
    specs = json.loads(drawing.partition("const charts = ")[2].partition(";\nfor ")[0])
    assert specs == {name: json.loads(json.dumps(spec(name))) for name in chosen}
    assert '"url"' not in json.dumps(specs)
    assert "@import" not in page.partition("<script>")[0]


@cache
def hostile_page() -> str:
    """A page whose operation has a name that would end its script and start another."""
    rows = sweep_rows.rows([sweep_rows.record(next(sweep_rows.points(("GELU",), (16,), (256,), (8,))))])
    named = [msgspec.structs.replace(row, operation="</script><script>alert(1)") for row in rows]
    return rendering.html_page(sweep_charts(named, only=("speedup",)), "x").decode()


def test_a_name_cannot_end_the_script_it_stands_in() -> None:
    parser = Loads()
    parser.feed(hostile_page())
    assert len(parser.scripts) == 2


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, to read the scripts of the page")
def test_the_scripts_of_the_page_are_javascript_and_draw_every_chart(tmp_path: Path) -> None:
    """The libraries are run; drawing itself needs a browser, so that the calls of `vegaEmbed` are counted."""
    parser = Loads()
    parser.feed(hostile_page())
    libraries, drawing = parser.scripts
    counting = "if (typeof vegaEmbed != 'function') throw Error('no vegaEmbed');\nlet seen = [];\n"
    counting += "window.vegaEmbed = (place, chart) => seen.push(place + ' ' + Object.keys(chart.datasets).length);\n"
    script = tmp_path / "page.js"
    begin = "globalThis.window = globalThis;\n"
    script.write_text(f"{begin}{libraries}\n{counting}{{{drawing}}}\nconsole.log(seen.join());")
    found = subprocess.run(["node", str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stdout) == (0, "#chart-speedup 1\n"), found.stderr[-2000:]
