"""Decides whether torch promises that a model returns the first of equal values, as for ``argmax`` and ``max``.

For other integer results torch promises no choice among equal values. And a model that computes may round values that
are equal to different ones. So the model's operators are recorded: it may only move its arguments and take a maximum, a
minimum or their positions.
"""

from __future__ import annotations

from torchstone import model_operators, operators
from torchstone.calls.dispatched_operators import dispatched_operators
from torchstone.calls.draw_arguments import DrawnCall


def promises_first_of_ties(call: DrawnCall) -> bool:
    """Whether torch promises that this model's call returns the first of equal values. Runs the model."""
    host = model_operators.host_of(call.case)
    if host is None:
        function = operators.resolve(call.case.operator)
        names = dispatched_operators(lambda: function(*call.args, **call.kwargs))[1]
    else:  # the model runs in another process
        names = host.operators_called(call.case, call.args)
    found = [operators.traits(name) for name in names]
    return any(each.promises_the_first for each in found) and all(
        each.promises_the_first or each.moves_in_models for each in found
    )
