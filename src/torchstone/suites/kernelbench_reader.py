"""The process that runs problem files, to learn what their models take. Started by the suite, one file a line."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from torch.utils._pytree import tree_leaves

from torchstone import models, operators, schema
from torchstone.calls.drawing import draw_call
from torchstone.errors import UsageError
from torchstone.suites.catalogue import Exclusion
from torchstone.suites.fitting import Unfit, fit, fit_in_one_pass
from torchstone.suites.kernelbench import ProblemOrder, Read
from torchstone.suites.model_state import inputs_of, require_no_state_after_one_call, same, written_buffers
from torchstone.suites.recorder import Facts, Unrecordable, facts_of, write_down

SUITE = "kernelbench"
_CPU = torch.device("cpu")
_LOOKS = 2
_MANY_ELEMENTS = 1 << 24
"""Of inputs and results: larger problems are run twice, on the device, instead of a dozen times on the host."""
_FEW_INPUTS = 1 << 18
"""Elements of the inputs below which a problem counts as small, and is run at once. Running a model on the meta device
may import torch's compiler, which takes seconds."""
_COPIES = 4
"""Inputs and results of a problem that exist at once while it is read, weights and temporaries apart."""


def main() -> None:
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever problems print is no reply
    warnings.simplefilter("ignore")
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=ProblemOrder)
        replies.write(msgspec.json.encode(_read(order)) + b"\n")


def _read(order: ProblemOrder) -> Read:
    try:
        return Read(_case(order))
    except (UsageError, Unfit, Unrecordable) as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - problem files raise what they like
        text = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    return Read(exclusion=Exclusion(order.operator, reason, order.name))


def _case(order: ProblemOrder) -> schema.Case:
    source = schema.SourceFiles((schema.SourceFile(order.name, order.text),), "Model", order.name)
    problem = models.executed(source)
    size = _size_of_call(problem)
    if size is not None and size.elements > _MANY_ELEMENTS:
        _require_memory(size, order)
        return _large_case(order, source, problem)
    constants = models.unsaved_buffers(models.made(problem["Model"], problem)) - written_buffers(problem)
    case = _case_with(order, source, problem, constants)
    written = _constants_written_to(case) if constants else constants
    return _case_with(order, source, problem, constants - written) if written else case


class _Size(NamedTuple):
    """Of all inputs and results of a call."""

    elements: int
    size_bytes: int


def _size_of_call(problem: Mapping[str, Any]) -> _Size | None:
    """From the meta device, where nothing is computed. None: it does not run there, or is small."""
    try:
        with torch.device("meta"), torch.no_grad(), torch.random.fork_rng(devices=[]):
            inputs = inputs_of(problem, 0)
            if sum(leaf.numel() for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor)) < _FEW_INPUTS:
                return None
            results = models.made(problem["Model"], problem)(*inputs)
    except Exception:  # noqa: BLE001 - problem files raise what they like, and not all of torch runs there
        return None
    tensors = [leaf for leaf in tree_leaves([inputs, results]) if isinstance(leaf, torch.Tensor)]
    return _Size(sum(tensor.numel() for tensor in tensors), sum(tensor.nbytes for tensor in tensors))


def _require_memory(size: _Size, order: ProblemOrder) -> None:
    """Refuse before anything is allocated: an allocation that fails may end the process, or others."""
    needed, free = _COPIES * size.size_bytes, _free_bytes(order.device_type) // order.readers
    if needed > free:
        raise Unfit(
            f"needs about {needed / 2**30:.1f} GiB to be read ({_COPIES} x {size.size_bytes / 2**30:.1f} GiB of inputs "
            f"and results), {free / 2**30:.1f} GiB are free for it"
        )


def _free_bytes(device_type: str) -> int:
    if device_type == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _large_case(order: ProblemOrder, source: schema.SourceFiles, problem: Mapping[str, Any]) -> schema.Case:
    """With one call on the problem's own inputs, one on drawn values, and two more if weights may have other signs."""
    device = torch.device(order.device_type)
    model = models.made(problem["Model"], problem)
    kinds = models.weight_kinds(model)
    source = msgspec.structs.replace(source, files=(*source.files, models.weights_file(kinds)))
    weights = [weight.detach().clone() for weight in models.named_weights(model).values()]
    with device:
        inputs = [value.to(device) if isinstance(value, torch.Tensor) else value for value in inputs_of(problem, 0)]
    require_no_state_after_one_call(model.to(device), inputs)
    written = write_down(order.operator, [weights, *inputs], {})
    facts = tuple(facts_of(tensor) for tensor in written.tensors)
    call = msgspec.structs.replace(written.call, facts=facts)
    del inputs, written, model
    plain = schema.Case(SUITE, order.operator, call.args, jitter=False, timed=True, model=source)
    models.register(plain)
    fitted = fit_in_one_pass(call, SUITE, device)
    fills = [
        schema.AsMade(place) if _stays_as_made(weight, kind) else kind
        for place, (weight, kind) in enumerate(zip(weights, kinds.values(), strict=True))
    ]
    both_signs, as_stated = (_with_weights(plain, fitted, facts, fills, signs=signs) for signs in (True, False))
    return both_signs if _is_as_finite(both_signs, as_stated, device, looks=1) else as_stated


def _case_with(
    order: ProblemOrder, source: schema.SourceFiles, problem: Mapping[str, Any], constants: frozenset[str]
) -> schema.Case:
    model = models.made(problem["Model"], problem)
    kinds = models.weight_kinds(model, constants)
    source = msgspec.structs.replace(source, files=(*source.files, models.weights_file(kinds)))
    weights = [_as_argument(weight, kinds[name]) for name, weight in models.named_weights(model).items()]
    inputs = inputs_of(problem, 0)
    written = write_down(order.operator, [weights, *inputs], {})
    facts = tuple(facts_of(tensor) for tensor in written.tensors)
    call = msgspec.structs.replace(written.call, facts=facts)
    plain = schema.Case(SUITE, order.operator, call.args, jitter=False, timed=True, model=source)
    models.register(plain)
    _require_one_answer(models.ModelFunction(problem["Model"], problem, kinds), weights, inputs)
    fitted = fit(call, SUITE, {}, _CPU)
    fills = [
        schema.AsMade(place) if _stays_as_made(weight, kind) else kind
        for place, (weight, kind) in enumerate(zip(weights, kinds.values(), strict=True))
    ]
    both_signs, as_stated = (_with_weights(plain, fitted, facts, fills, signs=signs) for signs in (True, False))
    return both_signs if _is_as_finite(both_signs, as_stated) else as_stated


def _as_argument(weight: torch.Tensor, kind: models.WeightKind) -> torch.Tensor:
    """A table may repeat itself in memory; as an argument it is written there element by element."""
    return weight.detach().contiguous() if kind == "constant" else weight.detach()


def _stays_as_made(weight: torch.Tensor, kind: models.WeightKind) -> bool:
    return kind == "constant" or (kind == "buffer" and _means_something(weight))


def _constants_written_to(case: schema.Case) -> frozenset[str]:
    """By calls of the case, though not by the problem's own: a model may look at its state (a count) before it does."""
    assert case.model is not None
    kinds = models.weights_among({file.name: file.text for file in case.model.files}) or {}
    found: set[str] = set()
    for seed in range(_LOOKS):
        drawn = draw_call(case, seed, _CPU)
        weights = {name: tensor.view for name, tensor in zip(kinds, drawn.tensors, strict=False)}
        before = {name: weights[name].clone() for name, kind in kinds.items() if kind == "constant"}
        with torch.no_grad():
            operators.resolve(case.operator)(*drawn.args)
        found.update(name for name, weight in before.items() if not same(weight, weights[name]))
    return frozenset(found)


def _with_weights(
    plain: schema.Case,
    fitted: schema.Case,
    facts: Sequence[Facts],
    kinds: Sequence[models.WeightKind | schema.AsMade],
    *,
    signs: bool,
) -> schema.Case:
    """``signs``: parameters that are made positive (the scale of a norm) are drawn of both signs, as training may."""
    listed = fitted.args[0]
    assert isinstance(listed, schema.Sequence)
    drawn = []
    for tensor, kind, seen in zip(listed.items, kinds, facts, strict=False):
        assert isinstance(tensor, schema.Tensor)
        fill: schema.Fill | None = None  # whole numbers: as any other argument
        if isinstance(kind, schema.AsMade):
            fill = kind
        elif operators.torch_dtype(tensor.dtype).is_floating_point:
            fill = _weight(seen, signs and kind == "parameter")
        drawn.append(tensor if fill is None else msgspec.structs.replace(tensor, fill=fill))
    args = (schema.Sequence(tuple(drawn)), *fitted.args[1:])
    return msgspec.structs.replace(plain, args=args, indistinct=fitted.indistinct)


def _is_as_finite(one: schema.Case, other: schema.Case, device: torch.device = _CPU, looks: int = _LOOKS) -> bool:
    """Whether a model gives no fewer numbers on the values of the one: a logarithm of a weight asks for its sign."""
    try:
        return one == other or _finite_results(one, device, looks) >= _finite_results(other, device, looks)
    except Exception:  # noqa: BLE001 - some ask for it by an error, and problem files raise what they like
        return False


def _finite_results(case: schema.Case, device: torch.device, looks: int) -> int:
    return sum(_finite_in(case, seed, device) for seed in range(looks))


def _finite_in(case: schema.Case, seed: int, device: torch.device) -> int:
    with torch.no_grad():
        result = operators.resolve(case.operator)(*draw_call(case, seed, device).args)
    leaves = operators.flatten_outputs(result)
    return sum(int(torch.isfinite(leaf).sum()) for leaf in leaves if isinstance(leaf, torch.Tensor))


def _require_one_answer(function: Callable[..., list[Any]], weights: list[torch.Tensor], inputs: list[Any]) -> None:
    """A model with dropout in training mode has no right answer."""
    with torch.no_grad():
        first, second = (function([weight.clone() for weight in weights], *inputs) for _ in range(2))
    if not all(torch.equal(a, b) for a, b in zip(first, second, strict=True) if isinstance(a, torch.Tensor)):
        raise Unfit("the model gives another answer each time (dropout, random numbers)")


def _means_something(buffer: torch.Tensor) -> bool:
    """A mask, a table of angles: not what is the same everywhere, as statistics are before they are any."""
    return buffer.numel() > 1 and (buffer.dtype is torch.bool or not bool((buffer == buffer.flatten()[0]).all()))


def _weight(facts: Facts, signs: bool) -> schema.Fill | None:
    """Of the size that the model was made with: the depth of a network hangs on it. None: as any other argument.

    ``signs``: of both, though it was made positive.
    """
    if not facts.seen or (facts.values is not None and not any(isinstance(value, float) for value in facts.values)):
        return None
    reach = max(abs(facts.least), abs(facts.greatest))
    if facts.least >= 0 and reach > 0 and signs:
        return schema.Uniform(-reach * 1.5, reach * 1.5)
    if facts.least >= 0 and reach > 0:  # scales and variances
        return schema.Uniform(max(facts.least, reach / 2) / 1.5, reach * 1.5)
    return schema.Uniform(-reach, reach) if reach > 0 else schema.Normal(0.0, 0.1)


if __name__ == "__main__":
    main()
