"""Writes the tables of the documentation whose figures stand in the code.

python tools/doc_tables.py            writes them into the pages
python tools/doc_tables.py --check    exit 1 if a page holds another table than the code gives; part of ``make check``

A page marks the place of a table with ``<!-- table: NAME -->`` and ``<!-- end of table -->``.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import get_args

from field_tables import field_rows
from torchstone.calls.random_or_undefined_results import FEW_RANDOM_ELEMENTS
from torchstone.gym import EvaluatorConfig, RewardSettings, TurnResult
from torchstone.judging import BUDGETS, calls_against_guessing
from torchstone.judging.effort_budget import CheckBudget
from torchstone.judging.plans.base import Plan, When
from torchstone.judging.plans.catalogue import PLANS as INPUT_PLANS
from torchstone.judging.plans.cotangents import LargeCotangents, ZeroCotangents
from torchstone.judging.planting import schedule
from torchstone.judging.reference import bounds
from torchstone.judging.stochastic import distribution, reused_draws, value_rates
from torchstone.judging.variants import sizes
from torchstone.measuring import confirmation, long_blocks, paired_speedup, short_blocks, speedup
from torchstone.measuring.long_block_experiment import TIMING_PLANS
from torchstone.measuring.short_block_experiment import SHORT_BLOCK_PLANS, ShortBlockPlan
from torchstone.schema import Deadlines, Effort, Limits

ROOT = Path(__file__).resolve().parents[1]
EFFORTS: tuple[Effort, ...] = get_args(Effort)

_TABLE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main() -> int:
    """Write all tables, or compare them."""
    drifted = []
    for page in pages(ROOT):
        old = page.read_text(encoding="utf-8")
        new = with_tables(old)
        if new != old:
            drifted.append(page.relative_to(ROOT).as_posix())
            if "--check" not in sys.argv[1:]:
                page.write_text(new, encoding="utf-8")
    if drifted and "--check" in sys.argv[1:]:
        print(f"tables differ from the code in {', '.join(drifted)}; run: make tables-write")
        return 1
    return 0


def pages(root: Path) -> list[Path]:
    """Pages that may hold tables."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def with_tables(text: str) -> str:
    """The page's text with the tables that the code gives."""
    return _TABLE.sub(lambda found: found[1] + TABLES[found[2]]() + "\n" + found[3], text)


def plans() -> str:
    """What each plan writes into a call, and which calls get it."""
    rows = [(f"`{plan.name}`", plan.phrase, _when(plan), _of_gradients(plan)) for plan in _plans()]
    return _table(("plan", "what the inputs are like", "when", "gradients"), rows)


_WHEN = {
    When.EVERY_CALL: "always",
    When.EVERY_VARIANT: "every variant; stated cases in turn",
    When.EVERY_CASE: "every stated case; variants in turn",
    When.FIRST: "stated cases and large variants; others in turn",
    When.LARGE: "large stated cases and models; others in turn",
    When.IN_TURN: "in turn",
    When.ON_REQUEST: "stated cases, unless `--non-finite ignore`",
    When.RANDOM_RESULTS: "cases with random results",
}


def _when(plan: Plan) -> str:
    return ("only at `thorough`: " if plan.policy.thorough_only else "") + _WHEN[plan.policy.when]


def _plans() -> list[Plan]:
    """Each once, without the form that writes no value twice."""
    return [plan for plan in INPUT_PLANS if not plan.distinct]


def _of_gradients(plan: Plan) -> str:
    if isinstance(plan, (LargeCotangents, ZeroCotangents)):
        return "only"
    return "yes" if plan.policy.gradients else "no"


def efforts() -> str:
    """How much each effort checks and measures."""

    def row(name: str, shown: Callable[[Effort], object]) -> tuple[str, ...]:
        return (name, *(str(shown(effort)) for effort in EFFORTS))

    return _table(
        ("", *(f"`{effort}`" for effort in EFFORTS)),
        [
            row("checked calls besides the two compared with float64", lambda e: BUDGETS[e].checked_calls),
            row("hidden variants of a case", lambda e: BUDGETS[e].variants),
            row("variants of the stated magnitude, of large cases", lambda e: BUDGETS[e].large_variants),
            row("hidden variants, once the kernel has passed many", lambda e: BUDGETS[e].variants_of_proven),
            row("how many are many", lambda e: BUDGETS[e].proven_by),
            row(
                "calls that are not compared, while results are watched",
                lambda e: f"{BUDGETS[e].unchecked_calls_ns / 1e6:g} ms",
            ),
            row("CUDA: rounds of timing, at least", lambda e: TIMING_PLANS[e].rounds),
            row("more rounds until the 95 % interval is within", lambda e: f"±{_percent(TIMING_PLANS[e].half_width)}"),
            row("or for", lambda e: f"{TIMING_PLANS[e].budget_seconds:g} s"),
            row("length of a block, about", lambda e: f"{TIMING_PLANS[e].block_ns / 1e6:g} ms"),
            row("rounds of single calls to confirm a speed, at most", lambda e: TIMING_PLANS[e].most_confirmations),
            row("CPU: pairs of blocks, at least", lambda e: SHORT_BLOCK_PLANS[e].pairs),
            row("at most", lambda e: SHORT_BLOCK_PLANS[e].most_pairs),
            row("more pairs until the blocks' interval is within", lambda e: _half_width(SHORT_BLOCK_PLANS[e])),
            row("or for", lambda e: f"{SHORT_BLOCK_PLANS[e].budget_seconds:g} s"),
            row("length of a block, about", lambda e: f"{SHORT_BLOCK_PLANS[e].block_ns / 1e6:g} ms"),
            row("pairs of single calls to confirm a speed, at most", lambda e: SHORT_BLOCK_PLANS[e].most_confirmations),
        ],
    )


def _half_width(plan: ShortBlockPlan) -> str:
    return f"±{_percent(plan.half_width)}"


def planted_counts() -> str:
    """How many plans a case gets in turn, at each effort."""

    def row(name: str, shown: Callable[[CheckBudget], object]) -> tuple[str, ...]:
        return (name, *(str(shown(BUDGETS[effort])) for effort in EFFORTS))

    small, medium, large = schedule._SMALL_CASE_ELEMENTS, *(most for most, _ in BUDGETS["normal"].plans_of_large)
    rows = [
        row(
            f"stated case, up to {_power(small)} elements, plans for stated cases and large variants included",
            lambda budget: budget.plans_of_small,
        ),
        row(f"stated case, up to {_power(medium)} elements", lambda budget: _in_turn(budget, medium)),
        row(f"stated case, up to {_power(large)} elements", lambda budget: _in_turn(budget, large)),
        row("larger stated case", lambda budget: budget.plans_of_largest),
        row("hidden variant, one of these at random", lambda budget: ", ".join(map(str, budget.plans_of_variant))),
        row(
            f"hidden variant of {_power(schedule._LARGE_VARIANT_ELEMENTS)} elements or more, besides plans for these",
            lambda budget: budget.plans_of_large_variant,
        ),
    ]
    return _table(("call", *(f"`{effort}`" for effort in EFFORTS)), rows)


def _in_turn(budget: CheckBudget, elements: int) -> int:
    return next((count for most, count in budget.plans_of_large if elements <= most), budget.plans_of_largest)


def bound() -> str:
    """The constants of the error bound."""
    return _table(
        ("symbol", "meaning", "value"),
        [
            ("A", "roundings to the output's dtype", f"{bounds.OUTPUT_ROUNDINGS:g}"),
            ("B", "roundings in the accumulator, pointwise operators", f"{bounds.POINTWISE_ROUNDINGS:g}"),
            (
                "B",
                f"the same for sums of L terms, L up to {_power(bounds.MAX_TERMS)}",
                f"{bounds.POINTWISE_ROUNDINGS:g} + {bounds.GROWTH:g}·√L",
            ),
            ("C", "multiple of the reference's own error at the element", f"{bounds.NATIVE_MULTIPLE:g}"),
            ("F", "1, or this multiple of the reference's typical worst ratio", f"{bounds.NATIVE_MULTIPLE:g}"),
            ("", "F never raises the bound above this share of \\|e\\| + s", f"{bounds.MAX_SHARE:g}"),
            ("", "float64 results: factor on A and B", f"{bounds.FLOAT64_MULTIPLE:g}"),
            ("", "no float64 reference: factor on the bound", f"{bounds.UNPROBED_MULTIPLE:g}"),
            ("", "typical error as a share of the bound (in w)", f"{bounds.TYPICAL_SHARE:.3g}"),
            ("", "mean error, in typical errors", f"{bounds.BIAS_SHARE:g}"),
            ("", "chance term, divided by √N or √M", f"{bounds.CHANCE:g}"),
        ],
    )


def random_results() -> str:
    """The constants of the tests for random results."""
    return _table(
        ("figure", "value"),
        [
            ("reference draws of the same call", f"{distribution.MIN_DRAWS} to {distribution.MAX_DRAWS}"),
            ("elements below which only the support of one result is judged", str(FEW_RANDOM_ELEMENTS)),
            ("rates must be right to", _power(value_rates.RESOLUTION)),
            ("the same in attention dropout", _power(value_rates.ATTENTION_RESOLUTION)),
            ("rarest part of the distribution that is counted", f"{min(value_rates._LEVELS):g}"),
            ("distinct values that a generator must have, at least", _power(reused_draws.LEAST_GRID)),
            ("earlier draws that a new one is compared with, at most", str(reused_draws.REMEMBERED)),
            ("elements kept of each draw", str(reused_draws.PLACES)),
        ],
    )


def information_needed() -> str:
    """How many calls rule out a constant answer."""
    return _table(
        ("figure", "value"),
        [
            ("bits that all checked calls together must carry", f"{calls_against_guessing.ENOUGH_BITS:g}"),
            ("bits of an element whose values do not repeat", f"{calls_against_guessing._ELEMENT_BITS:g}"),
            ("checked calls, at most", str(calls_against_guessing.MOST_CALLS)),
            ("elements of a tensor in a hidden variant, at most", _power(sizes.MOST_ELEMENTS)),
        ],
    )


def speedups() -> str:
    """The constants that decide how a speedup is called."""
    return _table(
        ("figure", "value"),
        [
            ("noise band; CUDA: smaller differences are `same`", _percent(speedup.NOISE_BAND)),
            (
                "`faster` and `slower` need the interval, this much wider, beyond the band",
                f"{speedup.DECISION_WIDTH:g}",
            ),
            ("paired rounds that an interval needs", str(paired_speedup.LEAST_ROUNDS)),
            ("least share of a call that is the kernel's own", _percent(speedup.LEAST_SHARE)),
            (
                "widest interval of the judge's clock at which worker times are used",
                f"±{_percent(long_blocks.MOST_DOUBT)}",
            ),
            (
                "placement of memory, added to the interval on CUDA once rounds end",
                _percent(long_blocks.PLACEMENT_DOUBT),
            ),
            ("a speedup exceeds what single calls show by at most", f"{_percent(confirmation.ALLOWANCE - 1)}"),
            ("rounds, at most", str(TIMING_PLANS["normal"].most_rounds)),
            ("placement of memory, added to the interval on the CPU", _percent(short_blocks.PLACEMENT_DOUBT)),
            ("CPU: `same` needs the interval within", f"±{_percent(short_blocks.SAME_WITHIN)}"),
            ("CPU: with a wider interval the case is `unresolved`", f"±{_percent(short_blocks.MOST_HALF_WIDTH)}"),
            (
                "with an interval that contains 1, a ratio as far from 1 as this is `unresolved`",
                f"{speedup.FAR_RATIO:g}",
            ),
            (
                "CPU: pairs go on if the interval excludes 1 and the ratio is within a factor of",
                f"{short_blocks.DOUBTFUL:g}",
            ),
            ("CPU: pairs that an interval needs", str(short_blocks.LEAST_PAIRS)),
        ],
    )


def deadlines() -> str:
    """The fields of `Deadlines`."""
    return _table(("field", "default", "seconds for"), field_rows(Deadlines))


def limits() -> str:
    """The fields of `Limits`."""
    return _table(("field", "default", "meaning"), field_rows(Limits))


def gym_configuration() -> str:
    """The fields of the gym's configuration."""
    return _table(("field", "default", "meaning"), field_rows(EvaluatorConfig))


def reward_settings() -> str:
    """What a kernel earns."""
    return _table(("field", "default", "meaning"), field_rows(RewardSettings))


def turn_result() -> str:
    """What is known of a judged reply."""
    return _table(("field", "meaning"), ((name, text) for name, _, text in field_rows(TurnResult)))


def rooms() -> str:
    """Every room, the highest layer first, with the first line of its docstring."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each.get("containers") == ["torchstone"])
    rows = [
        (str(level), f"`{name}`", _first_line(ROOT / "src" / "torchstone" / name))
        for level, layer in enumerate(layers, start=1)
        for name in layer.split(" | ")
    ]
    return _table(("layer", "room", "what it does"), rows)


def _first_line(room: Path) -> str:
    module = room / "__init__.py" if room.is_dir() else room.with_suffix(".py")
    line = (ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").partition("\n")[0]
    return re.sub(r":mod:`|``", "`", line).replace("|", "\\|")


TABLES: dict[str, Callable[[], str]] = {
    "rooms": rooms,
    "deadlines": deadlines,
    "limits": limits,
    "gym-configuration": gym_configuration,
    "reward-settings": reward_settings,
    "turn-result": turn_result,
    "plans": plans,
    "planted-counts": planted_counts,
    "efforts": efforts,
    "bound": bound,
    "random": random_results,
    "information": information_needed,
    "speedups": speedups,
}
"""By the name that a page gives."""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _power(number: float) -> str:
    """``2¹⁴`` for a power of two."""
    exponent = str(round(number).bit_length() - 1) if number >= 1 else f"-{round(1 / number).bit_length() - 1}"
    return "2" + exponent.translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


if __name__ == "__main__":
    sys.exit(main())
