"""Looks up which values an operator's arguments may have, in the tables of this package."""

from __future__ import annotations

from torchstone.operator_categories import base_name
from torchstone.suites.value_facts import (
    comparisons,
    index_values,
    loss_targets,
    number_domains,
    pooling_indices,
    saved_statistics,
)
from torchstone.suites.value_facts.fact_table import Fact

FACTS: dict[str, Fact] = {
    **index_values.FACTS,
    **pooling_indices.FACTS,
    **loss_targets.FACTS,
    **saved_statistics.FACTS,
    **number_domains.FACTS,
    **comparisons.FACTS,
}
"""Base name of an operator -> fact, which holds for every overload and for the in-place variant."""
_NO_FACT = Fact((), lambda call: {})


def is_known(operator: str) -> bool:
    """Whether the tables say anything about the values of the operator's arguments."""
    return fact_of(operator) is not _NO_FACT


def fact_of(operator: str) -> Fact:
    """The fact about an operator (``aten.embedding.default``); one without arguments if there is none."""
    base = base_name(operator) if "." in operator else operator
    return FACTS.get(base) or FACTS.get(base.removesuffix("_")) or _NO_FACT
