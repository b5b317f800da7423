"""Whether the arguments of a call determine its results."""

from __future__ import annotations

import torch

from torchstone.calls.evaluation import Evaluator


def draws_random_numbers(evaluator: Evaluator) -> bool:
    """Whether the operator may draw. Some do not with the arguments of a case: dropout that is not training."""
    return torch.Tag.nondeterministic_seeded in evaluator.operator.tags


_UNDEFINED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}


def leaves_values_undefined(evaluator: Evaluator) -> bool:
    """Whether the operator only promises memory."""
    return evaluator.operator._schema.name.split("::")[1] in _UNDEFINED


FEW_RANDOM_ELEMENTS = 16
"""Below, only the support is judged. Elements that depend on one another count for fewer."""
