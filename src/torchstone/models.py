"""Models as operators: a problem file's ``Model``, called with its weights and inputs, under a name of its own.

``kernelbench.level1__19_ReLU.default`` takes the model's weights (parameters and buffers, in the order of its
``state_dict``) and then what ``forward`` takes, and returns the list of its results. Weights are arguments like any
other: drawn afresh for every call, so that nobody can know them beforehand. Buffers are arguments that it writes to:
what a call makes of them (running statistics) is part of what it does. Judge and worker share this, since both must
make the same calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from torchstone.errors import UsageError
from torchstone.schema import WEIGHTS_FILE, Argument, Case, Scalar, SourceFile, SourceFiles, Tensor
from torchstone.schema import Sequence as Listed

_SEED = 42
"""What a model draws for itself while it is made is the same on both sides."""


Call = Callable[[], list[Any]]


class _Registered(NamedTuple):
    text: str
    library: torch.library.Library
    buffers: frozenset[int]
    made: Callable[[], list[torch.Tensor]]
    """Its weights as it makes them."""


_registered: dict[str, _Registered] = {}


def register(case: Case) -> None:
    """Make the name of a case's model resolvable. The same problem again is no harm."""
    if case.model is None:
        return
    text = case.model.files[0].text
    known = _registered.get(case.operator)
    if known is not None and known.text == text:
        return
    namespace, name, _ = case.operator.split(".")
    if known is not None:
        known.library._destroy()  # type: ignore[no-untyped-call]
    library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    inputs = "".join(f", {_type_of(recipe)} x{place}" for place, recipe in enumerate(case.args[1:]))
    library.define(f"{name}(Tensor[] weights{inputs}) -> Tensor[]")  # type: ignore[no-untyped-call]
    problem = executed(case.model)
    known_weights = weights_among({file.name: file.text for file in case.model.files})
    function = ModelFunction(problem["Model"], problem, known_weights)
    library.impl(name, function, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
    weights = cache(lambda: _weights_of(problem))
    _registered[case.operator] = _Registered(text, library, _buffers(problem, known_weights), weights)


def _weights_of(problem: Mapping[str, Any]) -> list[torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        return list(made(problem["Model"], problem).state_dict().values())


def written(case: Case) -> frozenset[int]:
    """Positions, among all tensor arguments, of the buffers of a case's model. It has been registered."""
    return _registered[case.operator].buffers if case.model is not None else frozenset()


def weight_as_made(case: Case, position: int) -> torch.Tensor:
    """What a case's model makes of one of its weights, on the host."""
    register(case)
    return _registered[case.operator].made()[position]


def weights_file(model: torch.nn.Module) -> SourceFile:
    """What a problem's weights are called, and which are buffers: others need not make the model to know."""
    buffers = dict(model.named_buffers(remove_duplicate=False))
    text = json.dumps({name: name in buffers for name in model.state_dict()})
    return SourceFile(WEIGHTS_FILE, text)


def weights_among(texts: Mapping[str, str]) -> Mapping[str, bool] | None:
    """What that file says, if it is among these."""
    return json.loads(texts[WEIGHTS_FILE]) if WEIGHTS_FILE in texts else None


def _buffers(problem: Mapping[str, Any], known: Mapping[str, bool] | None) -> frozenset[int]:
    if known is not None:
        return frozenset(position for position, is_buffer in enumerate(known.values()) if is_buffer)
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        model = made(problem["Model"], problem)
    buffers = dict(model.named_buffers(remove_duplicate=False))
    return frozenset(position for position, name in enumerate(model.state_dict()) if name in buffers)


def executed(model: SourceFiles) -> dict[str, Any]:
    """What a problem file defines. It belongs to the suite, and is trusted as a suite is."""
    file = model.files[0]
    namespace: dict[str, Any] = {"__name__": "torchstone_problem", "__file__": file.name}
    exec(compile(file.text, file.name, "exec"), namespace)
    for name in ("Model", "get_inputs"):
        if name not in namespace:
            raise UsageError(f"{file.name} defines no '{name}'. A problem has Model, get_inputs and get_init_inputs.")
    return namespace


class ModelFunction:
    """A module class as a function of weights and inputs."""

    def __init__(
        self,
        kind: Callable[..., torch.nn.Module],
        problem: Mapping[str, Any],
        weights: Iterable[str] | None = None,
    ) -> None:
        """``weights`` are the names of those of the problem's own model. None: it is made, to find out."""
        self._kind, self._problem, self._names = kind, problem, weights
        self._instances: dict[torch.device, _Instance] = {}
        self._wanted: Mapping[str, torch.Tensor] | None = None
        """The weights of the problem's own model, without memory."""

    def __call__(self, weights: Sequence[torch.Tensor], *inputs: Any, **named: Any) -> list[Any]:
        """With one instance per device, made at its first call."""
        device = _device_of(weights, inputs)
        if device not in self._instances:
            self._instances[device] = self._instance(device, weights)
        instance = self._instances[device]
        try:
            results = instance.bound(weights, inputs, named)()
            return [result.detach() if isinstance(result, torch.Tensor) else result for result in results]
        finally:
            instance.let_go()

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """The call with these arguments, to be made again and again, with an instance of its own: nothing but the
        module is called then.
        """
        weights, *inputs = args
        return self._instance(_device_of(weights, inputs), weights).bound(weights, inputs, kwargs)

    def _instance(self, device: torch.device, weights: Sequence[torch.Tensor]) -> _Instance:
        with torch.random.fork_rng(devices=[]):
            if self._names is not None:
                wanted: Mapping[str, torch.Tensor] = dict(zip(self._names, weights, strict=True))
            else:
                wanted = self._wanted = self._without_memory() if self._wanted is None else self._wanted
            return _Instance(made(self._kind, self._problem).to(device), wanted)

    def _without_memory(self) -> Mapping[str, torch.Tensor]:
        """Some of what models are made with is written in Python there, and imports torch's compiler: seconds."""
        with torch.device("meta"):
            return made(self._problem["Model"], self._problem).state_dict()


def _device_of(weights: Sequence[torch.Tensor], inputs: Sequence[Any]) -> torch.device:
    return next((t.device for t in (*weights, *inputs) if isinstance(t, torch.Tensor)), torch.device("cpu"))


def made(kind: Callable[..., torch.nn.Module], problem: Mapping[str, Any]) -> torch.nn.Module:
    """An instance, made as the problem says."""
    torch.manual_seed(_SEED)
    return kind(*problem.get("get_init_inputs", list)())


class _Instance:
    """A module whose parameters and buffers can be made those that a call is given: the same memory, not a copy."""

    def __init__(self, module: torch.nn.Module, wanted: Mapping[str, torch.Tensor]) -> None:
        names = _names_like(module, wanted)
        self._module = module.requires_grad_(False)
        tensors = dict(module.named_parameters(remove_duplicate=False))
        buffers = dict(module.named_buffers(remove_duplicate=False))
        self._weights = [(tensors | buffers)[name] for name in names]
        self._buffers = [_Buffer(module, name, buffers[name]) for name in names if name in buffers]

    def bound(self, weights: Sequence[torch.Tensor], inputs: Sequence[Any], named: Mapping[str, Any]) -> Call:
        """The call; weights, whoever refers to them, are the given ones from now on."""
        for own, weight in zip(self._weights, weights, strict=True):
            own.data = weight
        module, buffers = self._module, self._buffers

        def call() -> list[Any]:
            result = module(*inputs, **named)
            for buffer in buffers:
                buffer.keep()
            return list(result) if isinstance(result, list | tuple) else [result]

        return call

    def let_go(self) -> None:
        """Of the memory that weights lie in, until it is given others."""
        for own in self._weights:
            own.data = own.data.new_empty(0)


class _Buffer:
    """A buffer of a module."""

    def __init__(self, module: torch.nn.Module, name: str, tensor: torch.Tensor) -> None:
        path, _, self._leaf = name.rpartition(".")
        self._owner = module.get_submodule(path)._buffers
        self._tensor = tensor

    def keep(self) -> None:
        """A call may put another tensor in its place instead of writing to it."""
        now = self._owner[self._leaf]
        if now is not self._tensor and now is not None:
            self._tensor.copy_(now)
            self._owner[self._leaf] = self._tensor


def _names_like(module: torch.nn.Module, wanted: Mapping[str, torch.Tensor]) -> list[str]:
    """The module's names for the problem's weights: the same ones, or others in the same order with the same shapes."""
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
