"""Draws docs/pictures/gym-reward.svg: the default reward of a kernel by the lower end of its speedup's interval.

python tools/reward_plot.py            needs the extra `plots`

The file keeps the points of its line in a comment, so that a test can compare them with the code.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from torchstone.gym.reward import DEFAULT, RewardFacts, reward_of_facts

PLOT = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "gym-reward.svg"
LEAST, MOST, POINTS = 0.125, 8.0, 73
"""Speedups that are drawn, and how many points the line has."""


def points() -> list[dict[str, float]]:
    """The line of a kernel that is right in every case."""
    speeds = [LEAST * (MOST / LEAST) ** (place / (POINTS - 1)) for place in range(POINTS)]
    return [
        {"speedup": round(low, 4), "reward": round(_reward(RewardFacts(True, False, 1.0, low)), 4)} for low in speeds
    ]


def levels() -> list[dict[str, Any]]:
    """Rewards that do not depend on a speed."""
    half = _reward(RewardFacts(True, False, 0.5))
    return [
        {"reward": DEFAULT.correctness_weight, "what": "right, no speed told"},
        {"reward": half, "what": "wrong in half of the cases"},
        {"reward": 0.0, "what": "wrong in every case, or no code"},
        {"reward": DEFAULT.cheating, "what": "cheating"},
    ]


def _reward(facts: RewardFacts) -> float:
    found = reward_of_facts(facts)
    assert found is not None, "these facts are known"
    return found


def drawn() -> bytes:
    """The plot."""
    import altair as alt

    from torchstone.plots import require_libraries, style
    from torchstone.plots.rendering import svg

    require_libraries()
    ticks = [2.0**power for power in range(round(math.log2(LEAST)), round(math.log2(MOST)) + 1)]
    across = alt.X(
        "speedup:Q",
        title="Lower end of the speedup's 95 % interval",
        scale=alt.Scale(type="log", base=2, domain=[LEAST, MOST], nice=False),
        axis=alt.Axis(values=ticks, format="~g"),
    )
    up = alt.Y("reward:Q", title="Reward", scale=alt.Scale(domain=[-1.1, 1.05], nice=False))
    line = alt.Chart(style.values(points())).mark_line(color="#0072b2", strokeWidth=2.5).encode(across, up)
    flat = alt.Chart(style.values(levels()))
    rules = flat.mark_rule(color=style.ROOF, strokeDash=[5, 3], strokeWidth=1.2).encode(alt.Y("reward:Q"))
    words = flat.mark_text(align="left", baseline="bottom", dx=6, dy=-2, fontSize=11, color=style.INK).encode(
        alt.Y("reward:Q"), text="what:N", x=alt.value(0)
    )
    chart = style.layered(rules, line, words).properties(width=560, height=300)
    right = "Line: a kernel that is right in every case. Dashed: rewards without a speed."
    return svg(style.finished(chart, "Reward of a kernel with default settings", right))


def told(data: list[dict[str, float]]) -> str:
    """The points as the plot's file keeps them, for the comparison."""
    return json.dumps([[point["speedup"], point["reward"]] for point in data], separators=(",", ":"))


def main() -> int:
    """Write the plot."""
    text = drawn().decode()
    PLOT.write_text(text.replace("</svg>", f"<!-- points: {told(points())} --></svg>"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
