"""Runs KernelBench problem files in a sandboxed process, to make test cases of their models."""

from __future__ import annotations

import gc
import socket
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from torch.utils._pytree import tree_leaves

from torchstone import model_operators, operators, schema
from torchstone.calls.draw_arguments import draw_call
from torchstone.calls.reference_calls import OPERATOR_ERRORS
from torchstone.calls.torch_errors import is_out_of_memory
from torchstone.errors import UsageError
from torchstone.processes.msgpack_framing import receive, send
from torchstone.suites.case_cache import Exclusion
from torchstone.suites.case_from_recorded_call import Unfit, choices, fit
from torchstone.suites.kernelbench import ProblemOrder, Read
from torchstone.suites.recorder import Unrecordable, ValueProperties, properties_of, write_down
from torchstone.suites.state_left_by_calls import inputs_of, results_without_state, same, written_buffers

SUITE = "kernelbench"
_CPU = torch.device("cpu")
_DRAWS = 2
"""Draws (seeds) on which a case of a small problem is tried."""
_MANY_ELEMENTS = 1 << 20
"""Elements of inputs and results. Larger problems are run once on the device, not a dozen times on the host."""
_SMALL_INPUT_ELEMENTS = 1 << 18
"""Elements of the inputs below which a problem counts as small and is not run on the meta device first. That may import
torch's compiler, which takes seconds."""
_MEMORY_FACTOR = 2
"""Memory for reading a problem, in multiples of the bytes of inputs, weights and results. Measured: 1.3 to 2.3, with
temporaries. A problem that needs more is read again with twice as much."""
_MAX_WAIT_FOR_FREE_SECONDS = 10.0
"""Longest wait until reserved device memory is free. The driver frees an ended process's memory with a delay."""
_POLL_SECONDS = 0.2
_OUT_OF_MEMORY_TEXTS = ("out of memory", "allocate")
"""Parts of torch's messages that tell of lacking memory, besides the messages of CUDA's libraries."""
_MAX_NON_FINITE_SHARE = 0.02
"""Largest share of NaN and infinities that a large problem's results may have on drawn values."""
_SEED = 11
_PIECE_ELEMENTS = 1 << 22
"""Elements of a result that are checked together, so that the check needs little memory beside the result."""


class MoreNeeded(Unfit):
    """The problem cannot be read with the memory that was granted."""

    def __init__(self, wanted_bytes: int) -> None:
        super().__init__("more memory is needed")
        self.wanted_bytes = wanted_bytes


class TooLarge(Unfit):
    """The problem needs more memory than there is."""

    def __init__(self, needed_bytes: int, reason: str) -> None:
        super().__init__(reason)
        self.needed_bytes = needed_bytes


def serve(connection: socket.socket) -> None:
    """Read problems on request, until the suite closes the connection."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with connection.makefile("rb") as orders, connection.makefile("wb") as answers:
        while (order := receive(orders, ProblemOrder)) is not None:
            answer = _read(order)
            _free_cached_device_memory()  # before the answer: with it the reservation ends
            send(answers, answer)


def _free_cached_device_memory() -> None:
    """Free the device memory that torch caches. Otherwise all readers would count it as in use."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        gc.collect()
        torch.cuda.empty_cache()


def _read(order: ProblemOrder) -> Read:
    needed_bytes = 0
    try:
        return Read(_case(order))
    except MoreNeeded as error:
        return Read(wanted_bytes=error.wanted_bytes)
    except TooLarge as error:
        reason, needed_bytes = str(error), error.needed_bytes
    except (UsageError, Unfit, Unrecordable) as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - problem files raise what they like
        text = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    return Read(exclusion=Exclusion(order.operator, reason, order.name, needed_bytes=needed_bytes))


def _case(order: ProblemOrder) -> schema.Case:
    source = schema.SourceFiles((schema.SourceFile(order.name, order.text),), "Model", order.name)
    problem = model_operators.executed_problem(source)
    size = _size_of_call(problem)
    if size is not None and size.elements > _MANY_ELEMENTS:
        try:
            _require_memory(size, order)
            return _large_case(order, source, problem)
        except (RuntimeError, MemoryError) as error:
            if not _is_memory_error(error):
                raise
            lacking = str(error).strip().partition("\n")[0]
        raise _more_than_granted(order, lacking)
    unsaved = model_operators.unsaved_buffers(model_operators.new_instance(problem["Model"], problem))
    constants = unsaved - written_buffers(problem)
    case = _case_with(order, source, problem, constants)
    written = _constants_written_to(case) if constants else constants
    return _case_with(order, source, problem, constants - written) if written else case


class _Size(NamedTuple):
    """Size of a call."""

    elements: int
    """Elements of inputs and results."""
    size_bytes: int
    """Bytes of inputs, results and weights."""


def _size_of_call(problem: Mapping[str, Any]) -> _Size | None:
    """Size of a call, from a run on the meta device. None: the model does not run there, or its inputs are small."""
    try:
        with torch.device("meta"), torch.no_grad(), torch.random.fork_rng(devices=[]):
            inputs = inputs_of(problem, 0)
            if (
                sum(leaf.numel() for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor))
                < _SMALL_INPUT_ELEMENTS
            ):
                return None
            model = model_operators.new_instance(problem["Model"], problem)
            results = model(*inputs)
    except Exception:  # noqa: BLE001 - problem files raise what they like, and not all of torch runs there
        return None
    tensors = [leaf for leaf in tree_leaves([inputs, results]) if isinstance(leaf, torch.Tensor)]
    weights = model_operators.named_weights(model).values()
    return _Size(sum(each.numel() for each in tensors), sum(each.nbytes for each in (*tensors, *weights)))


def _require_memory(size: _Size, order: ProblemOrder) -> None:
    """Raise `MoreNeeded` or `TooLarge` before anything is allocated: a failed allocation may end processes."""
    needed, most = _MEMORY_FACTOR * size.size_bytes, order.most_bytes
    if order.device_type == "cuda" and needed <= order.granted_bytes:
        most = min(most, _limit_device_memory(order.granted_bytes))
        if needed > most and not order.is_reserved:
            raise MoreNeeded(order.granted_bytes + 1)  # a reservation of its own
    if needed > most:
        raise TooLarge(
            needed,
            f"needs about {_gib(needed)} to be read ({_MEMORY_FACTOR} x {_gib(size.size_bytes)} of inputs, weights and "
            f"results), {_gib(most)} can be used for it",
        )
    if needed > order.granted_bytes:
        raise MoreNeeded(needed)


def _limit_device_memory(granted_bytes: int) -> int:
    """Limit torch to the granted bytes of the device, and return how many bytes of the device are free."""
    until = time.monotonic() + _MAX_WAIT_FOR_FREE_SECONDS
    free, total = torch.cuda.mem_get_info()
    while free < granted_bytes and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
        free, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(min(1.0, granted_bytes / total))
    return int(free)


def _more_than_granted(order: ProblemOrder, lacking: str) -> Unfit:
    """The error for a problem that needs more than was granted. It requests twice as much, up to all usable memory."""
    wanted = 2 * order.granted_bytes
    if order.granted_bytes < order.most_bytes:
        return MoreNeeded(min(wanted, order.most_bytes))
    return TooLarge(wanted, f"needs more than {_gib(order.granted_bytes)} to be read, all that can be used: {lacking}")


def _is_memory_error(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or is_out_of_memory(error):
        return True
    return any(text in str(error) for text in _OUT_OF_MEMORY_TEXTS)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"


def _large_case(order: ProblemOrder, source: schema.SourceFiles, problem: Mapping[str, Any]) -> schema.Case:
    """The case of a large problem, from one call on drawn values; more calls only while results are NaN or infinite."""
    device = torch.device(order.device_type)
    model = model_operators.new_instance(problem["Model"], problem)
    kinds = model_operators.weight_kinds(model)
    source = msgspec.structs.replace(source, files=(*source.files, model_operators.weights_file(kinds)))
    weights = [weight.detach().clone() for weight in model_operators.named_weights(model).values()]
    del model
    with device:  # on a GPU a billion numbers take no time
        inputs = [value.to(device) if isinstance(value, torch.Tensor) else value for value in inputs_of(problem, 0)]
    written = write_down(order.operator, [weights, *inputs], {})
    properties = tuple(properties_of(tensor) for tensor in written.tensors)
    call = msgspec.structs.replace(written.call, properties=properties)
    del written, inputs
    plain = schema.Case(SUITE, order.operator, call.args, jitter=False, timed=True, model=source)
    fills = [
        schema.AsMade(place) if _stays_as_made(weight, kind) else kind
        for place, (weight, kind) in enumerate(zip(weights, kinds.values(), strict=True))
    ]
    model_operators.register(plain)
    function = model_operators.ModelFunction(problem["Model"], problem, kinds)
    reason = "no values were tried"
    for fitted in choices(call, SUITE):
        for signs in (True, False):
            case = _with_weights(plain, fitted, properties, fills, signs=signs)
            share = _largest_non_finite_share(function, case, device)
            if share <= _MAX_NON_FINITE_SHARE:
                return case
            reason = f"{share:.0%} of the results are NaN or infinite for all values that were tried"
    raise Unfit(reason)


def _largest_non_finite_share(
    function: model_operators.ModelFunction, case: schema.Case, device: torch.device
) -> float:
    """The largest share of NaN and infinities in a result of one call on drawn values. 1: the model raises."""
    drawn = draw_call(case, _SEED, device)
    weights, *inputs = drawn.args
    model, call = function.instance_for(weights, inputs)
    try:
        results = results_without_state(model, call)
    except OPERATOR_ERRORS as error:
        if _is_memory_error(error):
            raise
        return 1.0
    shares = [_non_finite_share(result) for result in results if isinstance(result, torch.Tensor) and result.numel()]
    return max(shares, default=0.0)


def _case_with(
    order: ProblemOrder, source: schema.SourceFiles, problem: Mapping[str, Any], constants: frozenset[str]
) -> schema.Case:
    model = model_operators.new_instance(problem["Model"], problem)
    kinds = model_operators.weight_kinds(model, constants)
    source = msgspec.structs.replace(source, files=(*source.files, model_operators.weights_file(kinds)))
    weights = [_as_argument(weight, kinds[name]) for name, weight in model_operators.named_weights(model).items()]
    inputs = inputs_of(problem, 0)
    written = write_down(order.operator, [weights, *inputs], {})
    properties = tuple(properties_of(tensor) for tensor in written.tensors)
    call = msgspec.structs.replace(written.call, properties=properties)
    plain = schema.Case(SUITE, order.operator, call.args, jitter=False, timed=True, model=source)
    model_operators.register(plain)
    _require_determinism(model_operators.ModelFunction(problem["Model"], problem, kinds), weights, inputs)
    fitted = fit(call, SUITE, {}, _CPU)
    fills = [
        schema.AsMade(place) if _stays_as_made(weight, kind) else kind
        for place, (weight, kind) in enumerate(zip(weights, kinds.values(), strict=True))
    ]
    both_signs, as_stated = (_with_weights(plain, fitted, properties, fills, signs=signs) for signs in (True, False))
    return both_signs if _is_at_least_as_finite(both_signs, as_stated) else as_stated


def _as_argument(weight: torch.Tensor, kind: model_operators.WeightKind) -> torch.Tensor:
    """The weight as an argument. A constant may be expanded (stride 0) and is made contiguous."""
    return weight.detach().contiguous() if kind == "constant" else weight.detach()


def _stays_as_made(weight: torch.Tensor, kind: model_operators.WeightKind) -> bool:
    return kind == "constant" or (kind == "buffer" and _holds_table(weight))


def _constants_written_to(case: schema.Case) -> frozenset[str]:
    """Names of the model's constants that a call writes to if the values of its arguments are drawn at random.

    A constant is a buffer that the model does not save, and that calls on the problem's own inputs do not write to. The
    caller makes the case again, with these names as ordinary buffers.
    """
    assert case.model is not None
    kinds = model_operators.weights_among({file.name: file.text for file in case.model.files}) or {}
    found: set[str] = set()
    for seed in range(_DRAWS):
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
    properties: Sequence[ValueProperties],
    kinds: Sequence[model_operators.WeightKind | schema.AsMade],
    *,
    signs: bool,
) -> schema.Case:
    """The case with a fill for every weight. ``signs``: draw both signs for parameters that are initialized positive.

    The scale of a norm is such a parameter; training may make it negative.
    """
    listed = fitted.args[0]
    assert isinstance(listed, schema.Sequence)
    drawn = []
    for tensor, kind, seen in zip(listed.items, kinds, properties, strict=False):
        assert isinstance(tensor, schema.Tensor)
        fill: schema.Fill | None = None  # integers keep the fill that was found for them
        if isinstance(kind, schema.AsMade):
            fill = kind
        elif operators.torch_dtype(tensor.dtype).is_floating_point:
            fill = _weight_fill(seen, signs and kind == "parameter")
        drawn.append(tensor if fill is None else msgspec.structs.replace(tensor, fill=fill))
    args = (schema.Sequence(tuple(drawn)), *fitted.args[1:])
    return msgspec.structs.replace(plain, args=args, indistinct=fitted.indistinct)


def _is_at_least_as_finite(one: schema.Case, other: schema.Case) -> bool:
    """Whether the first case gives at least as many finite results. A logarithm of a weight needs positive values."""
    try:
        return one == other or _finite_elements_of_draws(one) >= _finite_elements_of_draws(other)
    except Exception:  # noqa: BLE001 - problem files raise what they like, also for negative weights
        return False


def _finite_elements_of_draws(case: schema.Case) -> int:
    return sum(_finite_elements(case, seed) for seed in range(_DRAWS))


def _finite_elements(case: schema.Case, seed: int) -> int:
    with torch.no_grad():
        result = operators.resolve(case.operator)(*draw_call(case, seed, _CPU).args)
    leaves = operators.flatten_outputs(result)
    return sum(int(torch.isfinite(leaf).sum()) for leaf in leaves if isinstance(leaf, torch.Tensor))


def _non_finite_share(result: torch.Tensor) -> float:
    """The share of NaN and infinities in a result, counted in pieces."""
    if not (result.is_floating_point() or result.is_complex()):
        return 0.0
    flat, count = result.reshape(-1), 0
    for begin in range(0, flat.numel(), _PIECE_ELEMENTS):
        count += int(torch.isfinite(flat[begin : begin + _PIECE_ELEMENTS]).sum())
    return 1.0 - count / flat.numel()


def _require_determinism(function: Callable[..., list[Any]], weights: list[torch.Tensor], inputs: list[Any]) -> None:
    """Raise :class:`Unfit` if two equal calls give different results, as with dropout in training mode."""
    with torch.no_grad():
        first, second = (function([weight.clone() for weight in weights], *inputs) for _ in range(2))
    if not all(torch.equal(a, b) for a, b in zip(first, second, strict=True) if isinstance(a, torch.Tensor)):
        raise Unfit("the model returns a different result each time (dropout, random numbers)")


def _holds_table(buffer: torch.Tensor) -> bool:
    """Whether a buffer holds a mask or a table. Untrained statistics have one value everywhere."""
    return buffer.numel() > 1 and (buffer.dtype is torch.bool or not bool((buffer == buffer.flatten()[0]).all()))


def _weight_fill(properties: ValueProperties, signs: bool) -> schema.Fill | None:
    """A fill with the magnitude of the initialized weight, on which deep networks depend. None: keep the usual fill.

    ``signs``: draw both signs, though the weight was initialized positive.
    """
    if not properties.seen or (
        properties.values is not None and not any(isinstance(value, float) for value in properties.values)
    ):
        return None
    reach = max(abs(properties.least), abs(properties.greatest))
    if properties.least >= 0 and reach > 0 and signs:
        return schema.Uniform(-reach * 1.5, reach * 1.5)
    if properties.least >= 0 and reach > 0:  # scales and variances
        return schema.Uniform(max(properties.least, reach / 2) / 1.5, reach * 1.5)
    return schema.Uniform(-reach, reach) if reach > 0 else schema.Normal(0.0, 0.1)
