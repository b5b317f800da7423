"""Draws the tables of docs/kernels-measured.md as docs/pictures/kernels-share-of-limit.svg.

python tools/kernel_charts.py          after benchmarks/builtin_kernels.py has written new tables

The extra `plots` is needed. The figures are read from the page, so that picture and page cannot differ.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt

from torchstone.plots import style
from torchstone.plots.rendering import svg

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "kernels-measured.md"
PICTURE = ROOT / "docs" / "pictures" / "kernels-share-of-limit.svg"
MODES = ("forward", "backward")
_SECTION = re.compile(r"^## Share of the limit, (\w+)$(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
_SIZES = re.compile(r"^\|\s*\|((?: *\d+ MB *\|)+)$\n\|[-| ]+\|\n((?:^\|.*\|\n)+)", re.MULTILINE)


def main() -> int:
    """Draw the picture."""
    points = list(points_of(PAGE.read_text(encoding="utf-8")))
    if {point["mode"] for point in points} != set(MODES):
        print(f"{PAGE.name} lacks the tables 'Lowest, by size' of {' and '.join(MODES)}; nothing is drawn")
        return 1
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_bytes(svg(chart(points)))
    print(f"{PICTURE.relative_to(ROOT)}: {len(points)} points")
    return 0


def points_of(page: str) -> Iterator[dict[str, Any]]:
    """One point for each cell of the tables by size."""
    for mode, section in _SECTION.findall(page):
        for head, body in _SIZES.findall(section):
            sizes = [int(number) for number in re.findall(r"(\d+) MB", head)]
            for line in body.splitlines():
                name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
                operation, implementation = name.split(", ")
                for size, share in zip(sizes, cells, strict=True):
                    yield {
                        "mode": mode,
                        "operation": operation,
                        "implementation": implementation,
                        "megabytes": size,
                        "share": float(share),
                    }


def chart(points: list[dict[str, Any]]) -> style.TopLevel:
    """A row of panels per mode, a panel per operation."""
    rows = [
        alt.hconcat(*(_panel(points, mode, operation) for operation in _in_order(points, "operation")), spacing=14)
        for mode in MODES
    ]
    note = "Lowest of all shapes of a size. Dashed: 90 % of the bandwidth that torch's own kernels reach on 1 GiB."
    return style.finished(
        alt.vconcat(*rows, spacing=18), "Built-in kernels: percent of the limit", "H200 · float32", note
    )


def _panel(points: list[dict[str, Any]], mode: str, operation: str) -> alt.LayerChart:
    own = [point for point in points if (point["mode"], point["operation"]) == (mode, operation)]
    names = style.ordered({point["implementation"] for point in points})
    sizes = _in_order(points, "megabytes")
    scale = alt.Scale(type="log", domain=[min(sizes) / 1.15, max(sizes) * 1.15], nice=False)
    across = alt.X("megabytes:Q", title="MB", scale=scale, axis=alt.Axis(values=sizes, format="d"))
    least = 10 * (min(point["share"] for point in points) // 10)
    up = alt.Y("share:Q", title="% of the limit", scale=alt.Scale(domain=[least, 110], nice=False, zero=False))
    drawn = alt.Chart(style.values(own)).encode(across, up, style.implementation_colour(names))
    lines, marks = drawn.mark_line(), drawn.mark_point(filled=True, size=50)
    aim = alt.Chart(style.values([{"share": 90}])).mark_rule(color=style.ROOF, strokeDash=[5, 3]).encode(up)
    title = style.section_title(f"{operation}, {mode}")
    shaped = marks.encode(style.implementation_shape(names))
    return style.layered(aim, lines, shaped).properties(width=150, height=150, title=title)


def _in_order(points: list[dict[str, Any]], name: str) -> list[Any]:
    return list(dict.fromkeys(point[name] for point in points))


if __name__ == "__main__":
    sys.exit(main())
