"""Extracts the forward operator and its arguments from the case of a gradient, for input plans.

The operator of a gradient takes cotangents (incoming gradients), then the arguments of the forward operator. Input
plans read and change the forward arguments. Other cases have no cotangents and do not change.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall
from torchstone.gradient_operators import REQUESTED_GRADIENTS


def forward_case(case: schema.Case) -> schema.Case:
    """The case of the forward operator, with the arguments that it has in the gradient's case."""
    if not schema.is_gradient(case.operator):
        return case
    kwargs = {name: argument for name, argument in case.kwargs.items() if name != REQUESTED_GRADIENTS}
    operator = schema.forward_operator(case.operator)
    return msgspec.structs.replace(case, operator=operator, args=case.args[1:], kwargs=kwargs)


def forward_call(call: DrawnCall) -> DrawnCall:
    """The forward part of a call. It shares its tensors with the whole call."""
    return replace(call, case=forward_case(call.case), tensors=call.tensors[cotangents(call.case) :])


def cotangents(case: schema.Case) -> int:
    """How many of the case's tensors are cotangents; these come first. 0 if it is not a gradient."""
    return operators.tensor_count(case.args[0]) if schema.is_gradient(case.operator) else 0
