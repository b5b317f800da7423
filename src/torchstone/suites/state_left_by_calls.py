"""Finds the buffers of a KernelBench model that calls write to, and refuses models that keep state anywhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from torchstone import model_operators
from torchstone.suites.case_from_recorded_call import Unfit

_SEEDS = (1, 2)
_MODULE_ATTRIBUTES = vars(torch.nn.Module()).keys()
"""Attributes that every `torch.nn.Module` has, such as its dicts of parameters and buffers."""
_State = Mapping[tuple[str, str, int], Any]
"""(module, attribute, position in the attribute) -> tensor or number."""


def inputs_of(problem: Mapping[str, Any], seed: int) -> list[Any]:
    """The inputs that a problem gives to its model, with this seed."""
    torch.manual_seed(seed)
    return list(problem["get_inputs"]())


def written_buffers(problem: Mapping[str, Any]) -> frozenset[str]:
    """Names of the buffers that calls write to. Raises :class:`Unfit` if calls change state outside of buffers."""
    model = model_operators.new_instance(problem["Model"], problem)
    buffers = dict(model.named_buffers(remove_duplicate=False))
    before = {name: (buffer._version, buffer.clone()) for name, buffer in buffers.items()}
    _require_no_hidden_state(model, problem)
    after = dict(model.named_buffers(remove_duplicate=False))
    return frozenset(
        name
        for name, (version, value) in before.items()
        if buffers[name]._version != version or name not in after or not same(after[name], value)
    )


def results_without_state(model: torch.nn.Module, call: Callable[[], list[Any]]) -> list[Any]:
    """The results of one call of the model.

    Raises :class:`Unfit` if the call draws random numbers or changes state outside of the model's buffers.

    A cache that a first call fills is refused as well: only more calls could tell it from state.
    """
    weights = model_operators.named_weights(model)
    known = weights.keys(), frozenset(id(weight) for weight in weights.values())
    start, numbers = _state_outside_weights(model, *known), _generators()
    with torch.no_grad():
        results = call()
    if any(not torch.equal(one, other) for one, other in zip(numbers, _generators(), strict=True)):
        raise Unfit("the model draws random numbers")
    if not _all_same(start, _state_outside_weights(model, *known)):
        raise Unfit("the model keeps state outside of its parameters and buffers")
    return results


def _generators() -> list[torch.Tensor]:
    """States of the default generators."""
    opened = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if opened else ())]


def _require_no_hidden_state(model: torch.nn.Module, problem: Mapping[str, Any]) -> None:
    """Raise :class:`Unfit` if calls change state outside of buffers.

    State that the first call makes, equal for all inputs, is a cache and is allowed.
    """
    weights = model_operators.named_weights(model)
    known = weights.keys(), frozenset(id(weight) for weight in weights.values())
    start = _state_outside_weights(model, *known)
    first, second = (_state_after_call(model, inputs_of(problem, seed), *known) for seed in _SEEDS)
    if _all_same(start, first) and _all_same(first, second):
        return
    another = model_operators.new_instance(problem["Model"], problem)
    known = weights.keys(), frozenset(id(weight) for weight in model_operators.named_weights(another).values())
    alone = _state_after_call(another, inputs_of(problem, _SEEDS[-1]), *known)
    if not (_all_same(first, second) and _all_same(second, alone)):
        raise Unfit("the model keeps state outside of its parameters and buffers")


def _state_after_call(model: torch.nn.Module, inputs: list[Any], names: Set[str], weights: Set[int]) -> _State:
    with torch.no_grad():
        model(*inputs)
    return _state_outside_weights(model, names, weights)


def _state_outside_weights(model: torch.nn.Module, names: Set[str], weights: Set[int]) -> _State:
    """Tensors and numbers in plain attributes of the model, and in buffers that it did not have at first."""
    found: dict[tuple[str, str, int], Any] = {}
    for path, part in model.named_modules():
        plain = {name: value for name, value in vars(part).items() if name not in _MODULE_ATTRIBUTES}
        later = {name: value for name, value in part.named_buffers(path, recurse=False) if name not in names}
        for name, value in (plain | later).items():
            for place, leaf in enumerate(_leaves(value)):
                if isinstance(leaf, int | float):
                    found[path, name, place] = leaf
                elif isinstance(leaf, torch.Tensor) and _has_values(leaf) and id(leaf) not in weights:
                    found[path, name, place] = leaf.detach().clone()
    return found


def _leaves(value: Any) -> Iterator[Any]:
    """The leaves of lists and dicts. A module among them is not registered as a submodule: its weights are yielded."""
    for leaf in tree_leaves(value):
        yield from model_operators.named_weights(leaf).values() if isinstance(leaf, torch.nn.Module) else (leaf,)


def _has_values(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_meta


def _all_same(one: _State, other: _State) -> bool:
    return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, where NaN equals NaN."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return False
        return bool(((one == other) | ((one != one) & (other != other))).all())
    return bool(one == other or (one != one and other != other))
