"""Saves a replayed call with `torch.save` for the user: arguments, kernel's result, expected result, allowed error.

The judge writes it, because only the judge has all three. A reader needs neither Torchstone nor the kernel. The
file holds plain tensors on the CPU, numbers, texts, lists and dictionaries, for
``torch.load(path, weights_only=True)``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from torchstone import operators, schema
from torchstone.errors import InfrastructureError
from torchstone.judge_process.block_results import BlockResults
from torchstone.judging import Expected, ResultPosition

_CPU = torch.device("cpu")


def save_call(path: Path, wanted: Expected, block: BlockResults | None) -> None:
    """Write the call to ``path``. ``block``: the kernel's results; None if it crashed or returned another structure."""
    try:
        torch.save(_contents(wanted, block), path)
    except (OSError, RuntimeError) as error:  # torch's own writer raises RuntimeError
        raise InfrastructureError(f"cannot write '{path}': {error}.") from error


def _contents(wanted: Expected, block: BlockResults | None) -> dict[str, Any]:
    call = wanted.call
    args, kwargs = _arguments(wanted, [tensor.storage for tensor in call.tensors])
    after = None if block is None else block.inputs_after(0)
    exact, allowed = _exact_and_allowed(wanted)
    return {
        "operator": call.case.operator,
        "case": call.case.label,
        "args": args,
        "kwargs": kwargs,
        "result": None if block is None else [_on_cpu(leaf) for leaf in block.outputs(0)],
        "expected": [_on_cpu(output.native) for output in wanted.outputs],
        "exact": exact,
        "allowed_error": allowed,
        "args_after": None if after is None else _arguments(wanted, after)[0],
        "expected_args_after": _arguments(wanted, wanted.inputs_after)[0],
    }


def _arguments(wanted: Expected, storages: list[torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
    """The positional and keyword arguments of the call, on CPU copies of the given storages.

    The tensors have the strides and offsets that the kernel saw.
    """
    case = wanted.call.case
    views = [
        operators.view_of(storage.to(_CPU, copy=True), recipe)
        for storage, recipe in zip(storages, schema.tensors_of(case), strict=True)
    ]
    args, kwargs = operators.build_arguments(case, views, _CPU)
    return [_plain(each) for each in args], {name: _plain(each) for name, each in kwargs.items()}


def _exact_and_allowed(wanted: Expected) -> tuple[list[Any], list[Any]]:
    """For each output the float64 result, and the allowed error of each element; None if there is none."""
    reference = wanted.batch.reference
    values = wanted.values() if reference.screens else {}
    found = [values.get(ResultPosition("output", position)) for position in range(len(wanted.outputs))]
    exact = [None if each is None or each.exact is None else _on_cpu(each.exact) for each in found]
    return exact, [None if each is None or each.bound is None else _on_cpu(each.bound) for each in found]


def _on_cpu(leaf: Any) -> Any:
    return leaf.detach().to(_CPU, copy=True) if isinstance(leaf, torch.Tensor) else leaf


def _plain(argument: Any) -> Any:
    """The argument, but a memory format by its name (``channels_last``), because torch cannot save one."""
    if isinstance(argument, list):
        return [_plain(item) for item in argument]
    return str(argument).removeprefix("torch.") if isinstance(argument, torch.memory_format) else argument
