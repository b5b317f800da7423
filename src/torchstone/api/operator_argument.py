"""Turns the operator given to the Python API (a name, or `torch.ops.aten.relu.default`) into its name as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchstone.errors import UsageError

if TYPE_CHECKING:
    from torch._ops import OpOverload, OpOverloadPacket

    OperatorName = str | OpOverload | OpOverloadPacket
else:
    OperatorName = object  # torch is not imported before a device is needed

_DOTS_OF_FULL_NAME = 2


def written_name(operator: OperatorName) -> str:
    """The operator's name as text: `torch.ops.aten.relu.default` gives ``aten.relu.default``."""
    if isinstance(operator, str):
        return operator
    if type(operator).__module__ == "torch._ops":
        return str(operator)
    raise UsageError(
        f"the operator is {type(operator).__name__}; it must be a name ('relu', 'aten.relu.default') or an overload "
        "(torch.ops.aten.relu.default)."
    )


def is_full(name: str) -> bool:
    """Whether the name is that of an overload: ``aten.relu.default``."""
    return name.count(".") >= _DOTS_OF_FULL_NAME
