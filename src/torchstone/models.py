"""Models as operators: a problem file's ``Model``, called with its weights and inputs, under a name of its own.

``kernelbench.level1__19_ReLU.default`` takes the model's weights (parameters and buffers, in the order of its
``state_dict``) and then what ``forward`` takes, and returns the list of its results. Weights are arguments like any
other: drawn afresh for every call, so that nobody can know them beforehand. Judge and worker share this, since both
must make the same calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchstone.errors import UsageError
from torchstone.schema import Argument, Case, Scalar, SourceFiles, Tensor
from torchstone.schema import Sequence as Listed

_SEED = 42
"""What a model draws for itself while it is made is the same on both sides."""
_registered: dict[str, tuple[str, torch.library.Library]] = {}


def register(case: Case) -> None:
    """Make the name of a case's model resolvable. The same problem again is no harm."""
    if case.model is None:
        return
    text = case.model.files[0].text
    known = _registered.get(case.operator)
    if known is not None and known[0] == text:
        return
    namespace, name, _ = case.operator.split(".")
    if known is not None:
        known[1]._destroy()  # type: ignore[no-untyped-call]
    library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    inputs = "".join(f", {_type_of(recipe)} x{place}" for place, recipe in enumerate(case.args[1:]))
    library.define(f"{name}(Tensor[] weights{inputs}) -> Tensor[]")  # type: ignore[no-untyped-call]
    problem = executed(case.model)
    function = as_function(problem["Model"], problem)
    library.impl(name, function, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
    _registered[case.operator] = text, library


def executed(model: SourceFiles) -> dict[str, Any]:
    """What a problem file defines. It belongs to the suite, and is trusted as a suite is."""
    file = model.files[0]
    namespace: dict[str, Any] = {"__name__": "torchstone_problem", "__file__": file.name}
    exec(compile(file.text, file.name, "exec"), namespace)
    for name in ("Model", "get_inputs"):
        if name not in namespace:
            raise UsageError(f"{file.name} defines no '{name}'. A problem has Model, get_inputs and get_init_inputs.")
    return namespace


def as_function(kind: Callable[..., torch.nn.Module], problem: Mapping[str, Any]) -> Callable[..., list[Any]]:
    """A module class as a function of weights and inputs. One instance per device, made at its first call."""
    instances: dict[torch.device, Callable[..., Any]] = {}

    def function(weights: Sequence[torch.Tensor], *inputs: Any, **named: Any) -> list[Any]:
        device = next((t.device for t in (*weights, *inputs) if isinstance(t, torch.Tensor)), torch.device("cpu"))
        if device not in instances:
            instances[device] = _instance(kind, problem, device)
        result = instances[device](weights, inputs, named)
        return list(result) if isinstance(result, list | tuple) else [result]

    return function


def made(kind: Callable[..., torch.nn.Module], problem: Mapping[str, Any]) -> torch.nn.Module:
    """An instance, made as the problem says."""
    torch.manual_seed(_SEED)
    return kind(*problem.get("get_init_inputs", list)())


def _instance(
    kind: Callable[..., torch.nn.Module], problem: Mapping[str, Any], device: torch.device
) -> Callable[[Sequence[torch.Tensor], Sequence[Any], Mapping[str, Any]], Any]:
    with torch.random.fork_rng(devices=[]):
        module = made(kind, problem).to(device)
        names = _names_like(module, problem)
    buffers = {name for name, _ in module.named_buffers()}

    def call(weights: Sequence[torch.Tensor], inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
        state = dict(zip(names, weights, strict=True))
        for name in buffers & state.keys():
            state[name] = state[name].clone()  # running statistics are the model's own business
        return torch.func.functional_call(module, state, tuple(inputs), dict(named))

    return call


def _names_like(module: torch.nn.Module, problem: Mapping[str, Any]) -> list[str]:
    """The module's names for the problem's weights: the same ones, or others in the same order with the same shapes."""
    with torch.device("meta"):
        wanted = made(problem["Model"], problem).state_dict()
    own = module.state_dict()
    if own.keys() == wanted.keys():
        return list(wanted)
    if [tensor.shape for tensor in own.values()] == [tensor.shape for tensor in wanted.values()]:
        return list(own)
    raise NotImplementedError(
        f"the weights are not those of Model: got {_shapes(own)}, expected {_shapes(wanted)}. "
        "Register weights of the same shapes in the same order, or under the same names."
    )


def _shapes(state: Mapping[str, torch.Tensor]) -> str:
    return ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in state.items()) or "none"


def _type_of(recipe: Argument) -> str:
    match recipe:
        case Tensor():
            return "Tensor"
        case Listed(items=items) if any(isinstance(item, Tensor) for item in items):
            return "Tensor[]"
        case Listed():
            return "int[]"
        case Scalar(value=bool()):
            return "bool"
        case Scalar(value=int()):
            return "int"
        case Scalar(value=float()):
            return "float"
        case Scalar(value=str()):
            return "str"
        case _:
            raise UsageError("a model's inputs are tensors, numbers, texts, or lists of these.")
