"""Builds the roofline chart of a run: the throughput of every timed case, under the measured limits of its device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchstone.measuring import Attainment
from torchstone.reports.case_results import CaseResult
from torchstone.reports.safe_text import of_limit, one_line
from torchstone.schema import SpeedOfLight

if TYPE_CHECKING:
    from torchstone.plots.roofline import RooflinePoint
    from torchstone.plots.style import TopLevel

_LABEL_CHARACTERS = 62


def roofline_chart(results: Sequence[CaseResult]) -> TopLevel | None:
    """The chart; None if no case has both a resolved time and a known limit. Needs the extra `plots`."""
    from torchstone.plots import require_libraries

    require_libraries()
    from torchstone.plots.roofline import case_roofline, ceilings_of

    found = [
        (item, item.attainment, light) for item in results if item.attainment and (light := _light(item)) is not None
    ]
    if not found:
        return None
    points = [_point(item, reached, light) for item, reached, light in found]
    return case_roofline(points, ceilings_of([light for _, _, light in found]))


def _light(item: CaseResult) -> SpeedOfLight | None:
    return item.record.measurement.speed_of_light if item.record.measurement is not None else None


def _point(item: CaseResult, reached: Attainment, light: SpeedOfLight) -> RooflinePoint:
    from torchstone.plots.roofline import roofline_point

    name = item.record.case.operator.removeprefix("aten.").removesuffix(".default")
    share = of_limit(reached.candidate_percent, (reached.bound,), reached.over_limit)
    label = one_line(f"{name} {item.record.case.label}", _LABEL_CHARACTERS)
    return roofline_point(light, reached.limit_ns / reached.candidate_percent * 100, f"{label}: {share}")
