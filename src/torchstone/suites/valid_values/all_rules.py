"""Looks up which values an operator's arguments may have, in the tables of this package."""

from __future__ import annotations

from torchstone.operator_categories import base_name
from torchstone.suites.valid_values import (
    comparisons,
    index_values,
    loss_targets,
    number_domains,
    pooling_indices,
    saved_statistics,
)
from torchstone.suites.valid_values.rule_table import Rule

RULES: dict[str, Rule] = {
    **index_values.RULES,
    **pooling_indices.RULES,
    **loss_targets.RULES,
    **saved_statistics.RULES,
    **number_domains.RULES,
    **comparisons.RULES,
}
"""Base name of an operator -> rule, which holds for every overload and for the in-place variant."""
_NO_RULE = Rule((), lambda call: {})


def is_known(operator: str) -> bool:
    """Whether the tables say anything about the values of the operator's arguments."""
    return rule_of(operator) is not _NO_RULE


def rule_of(operator: str) -> Rule:
    """The rule for an operator (``aten.embedding.default``); one without arguments if there is none."""
    base = base_name(operator) if "." in operator else operator
    return RULES.get(base) or RULES.get(base.removesuffix("_")) or _NO_RULE
