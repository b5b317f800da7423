"""Table of values for losses: targets are class indices or probabilities, and weights are positive."""

from __future__ import annotations

from torchstone.schema import Fill, Uniform
from torchstone.suites.valid_values.named_call import Fills, NamedCall
from torchstone.suites.valid_values.rule_table import INSIDE_UNIT, POSITIVE, UNIT, RuleTable, below

RULES = RuleTable()


@RULES.of("nll_loss_forward nll_loss2d_forward nll_loss nll_loss2d nll_loss_nd", "self target weight")
@RULES.of("cross_entropy_loss", "self target weight")
@RULES.of("multi_margin_loss", "self target p margin weight")
def _class_target(call: NamedCall) -> Fills:
    """Targets are classes, or probabilities of classes (cross entropy). Without a batch, dimension 0 is the classes."""
    return {"target": _classes(call), "weight": POSITIVE}


@RULES.of("nll_loss_backward nll_loss2d_backward", "grad_output self target weight reduction ignore_index total_weight")
def _nll_loss_backward(call: NamedCall) -> Fills:
    return {"target": _classes(call), "weight": POSITIVE, "total_weight": POSITIVE}


def _classes(call: NamedCall) -> Fill:
    classes = call.size("self", 1 if len(call.shape("self")) > 1 else 0)
    return below(classes) if call.is_whole("target") else UNIT


RULES.always("binary_cross_entropy", "self target weight", self=INSIDE_UNIT, target=UNIT, weight=POSITIVE)
RULES.always(
    "binary_cross_entropy_backward", "grad_output self target weight", self=INSIDE_UNIT, target=UNIT, weight=POSITIVE
)
RULES.always(
    "binary_cross_entropy_with_logits",
    "self target weight pos_weight",
    target=UNIT,
    weight=POSITIVE,
    pos_weight=POSITIVE,
)
RULES.always("kl_div", "self target", self=Uniform(-8.0, 0.0), target=UNIT)
