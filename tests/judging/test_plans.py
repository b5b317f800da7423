"""Input plans as objects: a new one is a class and a line, and nothing else knows plans by their names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import torchstone
from judging.cases import case, tensor
from torchstone.errors import UsageError
from torchstone.judging import DrawnCall, Reference, draw_call, inputs_of, plant, planted_calls
from torchstone.judging.plans import PLANS, CaseFacts, Catalogue, Plan, Policy, Positions, When, catalogue
from torchstone.judging.plans.plan_randomness import PlanRng
from torchstone.judging.planting import planted_calls as planting

CPU = torch.device("cpu")
RELU = case("aten.relu.default", tensor(64))
RECORDED = {
    "numbers", "hundreds", "magnitudes", "nan", "infinities", "masked", "missing", "ends", "beyond", "whole", "none",
    "wide", "placed", "negative", "marked", "carried",
}  # fmt: skip
"""Plans that have a form without repeated values, as records name them."""


class Sevens(Plan):
    """Every element is 7."""

    name = "sevens"
    phrase = "all inputs were 7"
    policy = Policy(When.EVERY_CALL, Positions.IRRELEVANT)

    def applies(self, facts: CaseFacts) -> bool:
        return facts.traits.pointwise

    def write(self, call: DrawnCall, rng: PlanRng) -> None:
        for drawn in call.tensors:
            drawn.storage.fill_(7.0)


def test_adding_a_plan_is_one_class_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    extended = Catalogue((Sevens,))
    for module in (catalogue, planting):
        monkeypatch.setattr(module, "PLANS", extended)
    usual = Reference(RELU, CPU).expect(draw_call(RELU, 1, CPU))
    (planted,) = planted_calls(usual, 1)
    assert planted.call.planted == "sevens"
    assert bool((planted.call.args[0] == 7.0).all())
    assert inputs_of("sevens") == "all inputs were 7"
    assert bool((plant(draw_call(RELU, 2, CPU), "sevens").args[0] == 7.0).all())


def test_recorded_names_stay() -> None:
    names = {plan.recorded_name for plan in PLANS}
    others = {
        "unused", "loud", "moved", "lowered", "flat", "padded", "alike", "nearly alike", "narrow", "below", "above",
        "repeated", "infinite", "meeting", "non-finite inputs", "lone",
    }  # fmt: skip
    assert names == others | RECORDED | {f"{name} once" for name in RECORDED}


def test_a_name_that_no_plan_has_is_refused() -> None:
    for name in ("sevens", "scaled", "moved once"):
        with pytest.raises(UsageError, match=f"no plan '{name}'"):
            plant(draw_call(RELU, 1, CPU), name)


def test_no_other_module_knows_a_plan_by_its_name() -> None:
    """Names that are common words of Python or of torch cannot be looked for."""
    telling = {"hundreds", "magnitudes", "infinities", "nearly alike", "non-finite inputs", "loud", "lone", "lowered"}
    quoted = re.compile("|".join(f'"{re.escape(name)}( once)?"' for name in telling))
    root = Path(torchstone.__file__).parent
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if quoted.search(path.read_text())}
    plans = {path for path in found if path.startswith("judging/plans/")}
    assert found == plans
    assert len(plans) == 6
