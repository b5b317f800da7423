"""Models as operators: a KernelBench problem's ``Model`` gets an operator name and is called with weights and inputs.

``kernelbench.level1__19_ReLU.default`` takes the model's weights (:func:`named_weights`) and the arguments of
``forward``, and returns the list of its results.

- Weights are arguments: drawn for every call, so that no candidate knows them beforehand.
- Buffers are arguments that it writes to: their values after a call (running statistics) are compared.
- Constants are buffers that are neither saved nor written to (positions, masks). They follow from how a model is made,
  so a solution makes its own, or none.

The judge (trusted) and the worker (runs the candidate) share this module, because both must make the same calls.
Problem files are third-party code: a judge has them run in a sandboxed process (:func:`set_model_host`), and executes
none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol

import torch

from torchstone.errors import UsageError
from torchstone.schema import WEIGHTS_FILE, Argument, Case, Scalar, SourceFile, SourceFiles, Tensor
from torchstone.schema import Sequence as Listed

_SEED = 42
"""Seed for random numbers that a model draws while it is made: the same for reference and candidate."""


class ModelHost(Protocol):
    """Runs problem files for this process, in a sandboxed one."""

    def function(self, case: Case) -> Callable[..., list[Any]]:
        """The case's model as a function of weights and inputs."""
        ...

    def weights(self, case: Case) -> list[torch.Tensor]:
        """The initial weights of the model, on the CPU."""
        ...

    def flops(self, case: Case) -> int | None:
        """Floating-point operations of a call; None: not known."""
        ...

    def peak_bytes(self, case: Case, args: Sequence[Any]) -> int | None:
        """The memory that a call needs beyond its arguments; None: not known."""
        ...

    def operators_called(self, case: Case, args: Sequence[Any]) -> frozenset[str]:
        """The operators that compute the results of a call, by their full names; no views."""
        ...


Call = Callable[[], list[Any]]
WeightKind = Literal["parameter", "buffer", "constant"]


class _Registered(NamedTuple):
    model: SourceFiles
    library: torch.library.Library
    buffers: frozenset[int]
    make_weights: Callable[[], list[torch.Tensor]]
    """Returns the initial weights of the model."""


_registered: dict[str, _Registered] = {}
_host: ModelHost | None = None


def set_model_host(host: ModelHost) -> None:
    """Set the host that runs the models of cases. From then on this process runs none."""
    global _host
    _host = host


def host_of(case: Case) -> ModelHost | None:
    """The host that runs the case's model; None: this process does, or the case has no model."""
    return None if case.model is None else _host


def register(case: Case) -> None:
    """Make the name of a case's model resolvable. Registering twice is allowed."""
    if case.model is None:
        return
    known = _registered.get(case.operator)
    if known is not None and known.model == case.model:
        return
    namespace, name, _ = case.operator.split(".")
    if known is not None:
        known.library._destroy()  # type: ignore[no-untyped-call]
    library = torch.library.Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
    inputs = "".join(f", {_type_of(recipe)} x{place}" for place, recipe in enumerate(case.args[1:]))
    library.define(f"{name}(Tensor[] weights{inputs}) -> Tensor[]")  # type: ignore[no-untyped-call]
    kinds, function, made_weights = (
        _resolved_in_process(case.model) if _host is None else _resolved_by_host(case, _host)
    )
    library.impl(name, function, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
    buffers = frozenset(position for position, kind in enumerate(kinds.values()) if kind == "buffer")
    _registered[case.operator] = _Registered(case.model, library, buffers, cache(made_weights))


_Resolved = tuple[Mapping[str, WeightKind], Callable[..., list[Any]], Callable[[], list[torch.Tensor]]]
"""The kind of each weight of a model, the model's function, and a function that returns its initial weights."""


def _resolved_in_process(model: SourceFiles) -> _Resolved:
    problem = executed_problem(model)
    kinds = weights_among({file.name: file.text for file in model.files})
    kinds = _kinds_without_memory(problem) if kinds is None else kinds
    return kinds, ModelFunction(problem["Model"], problem, kinds), lambda: _weights_of(problem)


def _resolved_by_host(case: Case, host: ModelHost) -> _Resolved:
    assert case.model is not None
    kinds = weights_among({file.name: file.text for file in case.model.files})
    if kinds is None:
        raise UsageError(
            f"{case.operator} does not say what its weights are, as cases of earlier versions do not. "
            "Make the case again: run the suite kernelbench."
        )
    return kinds, host.function(case), lambda: host.weights(case)


def _weights_of(problem: Mapping[str, Any]) -> list[torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        return [weight.detach() for weight in named_weights(new_instance(problem["Model"], problem)).values()]


def named_weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and buffers by name, also those that ``state_dict`` leaves out: calls read and write them too.

    They are in the order of ``state_dict``. A tied weight is listed under each of its names.
    """
    found: dict[str, torch.Tensor] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        found.update(part.named_parameters(path, recurse=False, remove_duplicate=False))
        found.update(part.named_buffers(path, recurse=False, remove_duplicate=False))
    return found


def unsaved_buffers(module: torch.nn.Module) -> frozenset[str]:
    """Names of the buffers that ``state_dict`` leaves out, and that are therefore never loaded."""
    return frozenset(
        f"{path}.{name}" if path else name
        for path, part in module.named_modules(remove_duplicate=False)
        for name in part._non_persistent_buffers_set
    )


def weight_kinds(model: torch.nn.Module, constants: Collection[str] = ()) -> dict[str, WeightKind]:
    """The kind of each weight of a problem's model: parameter, buffer or constant."""
    buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    return {
        name: "constant" if name in constants else "buffer" if name in buffers else "parameter"
        for name in named_weights(model)
    }


def written(case: Case) -> frozenset[int]:
    """Positions, among all tensor arguments, of the buffers that a case's model writes to. It must be registered."""
    return _registered[case.operator].buffers if case.model is not None else frozenset()


def weight_as_made(case: Case, position: int) -> torch.Tensor:
    """One initial weight of the case's model, on the CPU."""
    register(case)
    return _registered[case.operator].make_weights()[position]


def weights_file(kinds: Mapping[str, WeightKind]) -> SourceFile:
    """A file with the name and kind of each weight of a problem. Its readers need not construct the model."""
    return SourceFile(WEIGHTS_FILE, json.dumps(kinds))


def weights_among(texts: Mapping[str, str]) -> Mapping[str, WeightKind] | None:
    """The weights' kinds by name, from the weights file among these texts (by file name); None: it is not there."""
    return json.loads(texts[WEIGHTS_FILE]) if WEIGHTS_FILE in texts else None


def _kinds_without_memory(problem: Mapping[str, Any]) -> Mapping[str, WeightKind]:
    """The kinds of the weights of a problem without a weights file. Constructs the model on the meta device.

    This may take seconds, because some operators then import torch's compiler.
    """
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return weight_kinds(new_instance(problem["Model"], problem))


def executed_problem(model: SourceFiles) -> dict[str, Any]:
    """Execute a problem file in this process and return its globals. The file is trusted as much as its suite."""
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
        weights: Mapping[str, WeightKind] | None = None,
    ) -> None:
        """``weights``: name -> kind of each weight of the problem's model. None: found by constructing the model."""
        self._kind, self._problem, self._weights = kind, problem, weights
        self._instances: dict[torch.device, _Instance] = {}

    def __call__(self, weights: Sequence[torch.Tensor], *inputs: Any, **named: Any) -> list[Any]:
        """Call the model. There is one instance per device, made at the first call."""
        device = _device_of(weights, inputs)
        if device not in self._instances:
            self._instances[device] = self._instance(device, weights)
        instance = self._instances[device]
        try:
            results = instance.bound(weights, inputs, named)()
            return [result.detach() if isinstance(result, torch.Tensor) else result for result in results]
        finally:
            instance.release_weights()

    def weights_as_made(self) -> list[torch.Tensor]:
        """The initial weights of the problem's model."""
        return _weights_of(self._problem)

    def instance_for(self, weights: Sequence[torch.Tensor], inputs: Sequence[Any]) -> tuple[torch.nn.Module, Call]:
        """A new instance of the module, and a function that calls it with these arguments."""
        instance = self._instance(_device_of(weights, inputs), weights)
        return instance.module, instance.bound(weights, inputs, {})

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """A function that calls a new instance with these arguments, for repeated use without other work."""
        weights, *inputs = args
        return self._instance(_device_of(weights, inputs), weights).bound(weights, inputs, kwargs)

    def _instance(self, device: torch.device, weights: Sequence[torch.Tensor]) -> _Instance:
        if self._weights is None:
            self._weights = _kinds_without_memory(self._problem)
        given = dict(zip(self._weights, weights, strict=True))
        constants = {name for name, kind in self._weights.items() if kind == "constant"}
        with torch.random.fork_rng(devices=[]):
            module = new_instance(self._kind, self._problem).to(device)
        return _Instance(module, given, frozenset() if self._kind is self._problem["Model"] else constants)


def _device_of(weights: Sequence[torch.Tensor], inputs: Sequence[Any]) -> torch.device:
    return next((t.device for t in (*weights, *inputs) if isinstance(t, torch.Tensor)), torch.device("cpu"))


def new_instance(kind: Callable[..., torch.nn.Module], problem: Mapping[str, Any]) -> torch.nn.Module:
    """An instance with the problem's ``get_init_inputs()``, after seeding torch."""
    torch.manual_seed(_SEED)
    return kind(*problem.get("get_init_inputs", list)())


class _Instance:
    """A module whose parameters and buffers use the memory of the weights that a call is given."""

    def __init__(
        self, module: torch.nn.Module, given: Mapping[str, torch.Tensor], own: Collection[str] = frozenset()
    ) -> None:
        """``given``: the weights of the problem's model by name. Those in ``own`` are not used: the module makes them
        itself. A solution may keep a table in another form under the same name.
        """
        self._positions = [place for place, name in enumerate(given) if name not in own]
        names = _matching_names(module, {name: weight for name, weight in given.items() if name not in own}, own)
        self.module = module.requires_grad_(False)
        tensors = named_weights(module)
        buffers = dict(module.named_buffers(remove_duplicate=False))
        self._weights = [tensors[name] for name in names]
        self._buffers = [_Buffer(module, name, buffers[name]) for name in names if name in buffers]

    def bound(self, weights: Sequence[torch.Tensor], inputs: Sequence[Any], named: Mapping[str, Any]) -> Call:
        """A function that calls the module with these arguments. Puts the given weights into the module now."""
        for own, place in zip(self._weights, self._positions, strict=True):
            own.data = weights[place]
        module, buffers = self.module, self._buffers

        def call() -> list[Any]:
            result = module(*inputs, **named)
            for buffer in buffers:
                buffer.restore_tensor()
            return list(result) if isinstance(result, list | tuple) else [result]

        return call

    def release_weights(self) -> None:
        """Release the memory of the weights; :meth:`bound` gives the module others."""
        for own in self._weights:
            own.data = own.data.new_empty(0)


class _Buffer:
    """A buffer of a module, which stays in the memory that the caller gave."""

    def __init__(self, module: torch.nn.Module, name: str, tensor: torch.Tensor) -> None:
        path, _, self._leaf = name.rpartition(".")
        self._owner = module.get_submodule(path)._buffers
        self._tensor = tensor

    def restore_tensor(self) -> None:
        """If a call has replaced the tensor instead of writing to it, copy the new value into it and put it back."""
        now = self._owner[self._leaf]
        if now is not self._tensor and now is not None:
            self._tensor.copy_(now)
            self._owner[self._leaf] = self._tensor


def _matching_names(module: torch.nn.Module, wanted: Mapping[str, torch.Tensor], own: Collection[str]) -> list[str]:
    """The module's names for the problem's weights: the same names, or others in the same order with the same shapes.

    Unsaved buffers whose names the problem does not have are used only if the shapes do not match without them.
    """
    everything = {name: weight for name, weight in named_weights(module).items() if name not in own}
    unsaved = unsaved_buffers(module) - wanted.keys()
    saved = {name: weight for name, weight in everything.items() if name not in unsaved}
    if saved.keys() == wanted.keys():
        return list(wanted)
    for found in (saved, everything):
        if [tensor.shape for tensor in found.values()] == [tensor.shape for tensor in wanted.values()]:
            return list(found)
    raise NotImplementedError(
        f"the weights are not those of Model: got {_shapes(everything)}, expected {_shapes(wanted)}. "
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
