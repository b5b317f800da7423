"""Names the folder and the function of an operator's kernel, as the backend `directory` expects them."""

from __future__ import annotations

from torchstone.backends.directory import BASE_NAME_OVERLOADS
from torchstone.backends.folder_names import folder_name, operator_name
from torchstone.operator_categories import base_name
from torchstone.schema import forward_operator, is_model

PROBLEM_ENTRY = "ModelNew"
"""The class that solves a problem file."""


def kernel_folder(operator: str, others: frozenset[str] = frozenset()) -> str:
    """`relu` for `aten.relu.default`, `add` for `aten.add.Tensor`, `add__Scalar` for `aten.add.Scalar`.

    ``others``: operators that need folders beside it. A short name serves the overloads `default` and `Tensor`; if both
    are needed, each gets a folder with its overload's name. For a problem file: `level1__19_ReLU`.
    """
    operator = forward_operator(operator)
    if is_model(operator):
        return base_name(operator)
    base, _, overload = operator.rpartition(".")
    rivals = {f"{base}.{name}" for name in BASE_NAME_OVERLOADS} - {operator}
    short = folder_name(base)
    is_short = overload in BASE_NAME_OVERLOADS and operator_name(short) == base and not rivals & others
    return short if is_short else folder_name(operator)


def entry_of(folder: str) -> str:
    """The name of the kernel's function in this folder."""
    return f"{folder}_kernel_impl"


def entry_for(operator: str, folder: str) -> str:
    """The name that a reply must define: the function of an operator, or the class that solves a problem."""
    return PROBLEM_ENTRY if is_model(operator) else entry_of(folder)
