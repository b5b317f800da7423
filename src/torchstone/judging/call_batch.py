"""Draws, evaluates and compares many calls of one case together, with few kernel launches; for calls in CUDA graphs.

Other modules of this package compare call by call; here all calls are compared at once, on stacked tensors. On CUDA
torch's own operator is captured as a graph once and replayed for every draw, unless another process makes its calls.
Calls that do not come close enough to torch's results are compared in full, one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from torchstone import model_operators, operators, schema
from torchstone.calls.bitwise_equality import are_identical, bits
from torchstone.calls.draw_arguments import DrawnCall, calls_on, draw_storages
from torchstone.calls.reference_calls import Evaluation, ReferenceFailure
from torchstone.calls.torch_errors import operator_errors
from torchstone.chain import LEAST_ELEMENTS, MOST_ELEMENTS, Chain, Moved
from torchstone.chain_arithmetic import Links, selecting_results
from torchstone.judging.compare.agreement import compare_many
from torchstone.judging.compare.screening import all_of_each
from torchstone.judging.comparison_result import UNKNOWN, Agreement, Mismatch
from torchstone.judging.copy_operators import signs_to_keep
from torchstone.judging.plans import Plan
from torchstone.judging.planting.planted_calls import plant_some
from torchstone.judging.reference.case_reference import Reference

_LEAST_RELATIVE_RANGE, _RANGE_MARGIN = 0.25, 0.125
"""For chained calls with uniform values. The first is the least width of their range as a share of its larger bound.
The second is the share of the width that is left out at either end."""

_FLOAT64_INTEGER_LIMIT = 1 << 52
"""Integers of a chained argument are below this: float64 represents them exactly."""
_ALWAYS_THE_SAME = (schema.Given, schema.AsMade)
"""Fills that give the same values in every call. A kernel may precompute what depends on these values alone."""


class UncapturableError(Exception):
    """The calls cannot be recorded as a CUDA graph or compared together."""


class Series:
    """``count`` calls of a reference's case, with new values after each draw."""

    def __init__(self, reference: Reference, count: int) -> None:
        """Raises UncapturableError if torch's operator cannot be captured, or if its results are not compared by
        value.
        """
        if not reference.screens:
            raise UncapturableError("results of this operator are not compared by their values alone")
        self.reference = reference
        self.count = count
        self._seed = 0
        self._planted: Sequence[str] = ()
        self.storages = draw_storages(reference.case, 0, count, reference.device)
        """For each tensor argument, the values of the last draw: a tensor ``(count, extent)``."""
        self._inputs = [storage.clone() for storage in self.storages]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._links: Links | None = None
        self._expected = self._evaluate()
        self._only_moves_values = reference.only_moves(self.calls()[0])
        if can_be_captured(reference.case, reference.device):
            self._graph, self._expected = _captured_graph(self._evaluate)

    def _evaluate(self) -> Evaluation:
        found = self.reference.evaluator.native_on(self._inputs, self.count)
        if found is None:
            raise UncapturableError("the shapes of the results depend on the values")
        return found

    def draw(self, seed: int) -> None:
        """Draw new values, and evaluate torch's operator on them."""
        self.draw_unevaluated(seed)
        self._evaluate_drawn()

    def draw_planted(self, seed: int, plans: Sequence[Plan]) -> None:
        """Draw new values, let input plans write special values into some calls, and evaluate torch's operator."""
        self.draw_unevaluated(seed)
        self._planted = [call.planted for call in plant_some(self.calls(), plans)]
        self._evaluate_drawn()

    def draw_unevaluated(self, seed: int) -> None:
        """Draw new values for chained calls. Calls change later calls' arguments; :meth:`follow` recomputes them."""
        self._seed, self._planted = seed, ()
        self.storages = draw_storages(self.reference.case, seed, self.count, self.reference.device)

    def follow(self, chain: Chain, outputs: Sequence[torch.Tensor]) -> None:
        """Recompute the arguments that chained calls had, from their outputs, and evaluate torch's operator on them.

        All calls of this method must pass the same chain.
        """
        if self._links is None:
            self._links = Links(chain, self.reference.device)
        found = selecting_results(outputs)
        if found:
            places = [moved.position for moved in chain.arguments]
            recomputed = self._links.recomputed_arguments(found, [self.storages[place] for place in places])
            for place, storage in zip(places, recomputed, strict=True):
                self.storages[place] = storage
        self._evaluate_drawn()

    def _evaluate_drawn(self) -> None:
        for given, drawn in zip(self._inputs, self.storages, strict=True):
            given.copy_(drawn)
        if self._graph is None:
            self._expected = self._evaluate()
        else:
            self._graph.replay()

    def compare(self, outputs: Sequence[torch.Tensor], inputs_after: Sequence[torch.Tensor]) -> Agreement | Mismatch:
        """Compare the calls' stacked results, leaf by leaf, and the stacked storages of their arguments."""
        if self._are_all_right(outputs, inputs_after):
            return Agreement(UNKNOWN, self.count)
        rows = [[leaf[index] for leaf in outputs] for index in range(self.count)]
        after = [[storage[index] for storage in inputs_after] for index in range(self.count)]
        return compare_many(self.reference.expect_many(self.calls()), rows, after)

    def chain(self, seed: int) -> Chain | None:
        """A chain: the arguments of each call depend on the results of the call before. None: not possible.

        Every argument that differs from call to call must take part, a model's weights included. Otherwise a kernel
        could compute what depends on the other arguments alone for all calls together. For a gradient, cotangents alone
        do not suffice, because the forward results do not depend on them.
        """
        operator, recipes = self.reference.case.operator, self.reference.evaluator.recipes
        first = operators.tensor_count(self.reference.case.args[0]) if schema.is_gradient(operator) else 0
        given = [(place, recipe) for place, recipe in enumerate(recipes) if math.prod(recipe.shape) > 0]
        drawn = [(place, recipe) for place, recipe in given if not isinstance(recipe.fill, _ALWAYS_THE_SAME)]
        moved = [each for place, recipe in drawn if (each := _chained_argument(place, recipe)) is not None]
        elements = sum(each.elements for each in moved)
        if len(moved) < len(drawn) or elements < LEAST_ELEMENTS or not self._expected.results[0]:
            return None
        if schema.is_gradient(operator) and moved[-1].position < first:
            return None
        return Chain(tuple(moved), seed)

    def calls(self) -> list[DrawnCall]:
        """The calls one by one."""
        case, device = self.reference.case, self.reference.device
        calls = calls_on(case, self.storages, self._seed, self.count, device)
        return [
            replace(call, planted=plan) for call, plan in zip(calls, self._planted or [""] * len(calls), strict=True)
        ]

    def _are_all_right(self, outputs: Sequence[torch.Tensor], inputs_after: Sequence[torch.Tensor]) -> bool:
        """Whether every call is certainly right. Takes one or two transfers from the device."""
        if self._have_same_bits(outputs, inputs_after):
            return True
        passed = torch.ones(self.count, dtype=torch.bool, device=self.reference.device)
        for place, native in self._expected.tensors.items():
            got = (outputs if place.kind == "output" else inputs_after)[place.position]
            if got.shape != native.shape or got.dtype != native.dtype:
                return False
            screen = self.reference.screen(place, native.dtype, native[0].numel())
            passed &= all_of_each(native, got, screen)
        for position, (before, after) in enumerate(zip(self.storages, inputs_after, strict=True)):
            if not self.reference.evaluator.is_written(position) and before.numel():
                passed &= all_of_each(bits(before), bits(after), None)
        return bool(passed.all()) and not self._has_lost_signs(outputs, inputs_after)

    def _have_same_bits(self, outputs: Sequence[torch.Tensor], inputs_after: Sequence[torch.Tensor]) -> bool:
        """Whether all results have the same bits as torch's; on the CPU False. The fastest test for right results."""
        pairs = [
            (native, (outputs if place.kind == "output" else inputs_after)[place.position])
            for place, native in self._expected.tensors.items()
        ]
        pairs += [
            (before, after)
            for position, (before, after) in enumerate(zip(self.storages, inputs_after, strict=True))
            if not self.reference.evaluator.is_written(position)
        ]
        return self.reference.device.type == "cuda" and are_identical(pairs)

    def _has_lost_signs(self, outputs: Sequence[torch.Tensor], inputs_after: Sequence[torch.Tensor]) -> bool:
        signs = signs_to_keep(self._expected.tensors, outputs, inputs_after) if self._only_moves_values else []
        return bool(signs) and bool(torch.stack([each.count() for each in signs]).any())


def _chained_argument(place: int, recipe: schema.Tensor) -> Moved | None:
    """How a chain changes this argument within its recipe's values; None if that is impossible or expensive."""
    elements = math.prod(recipe.shape)
    contiguous = recipe.strides is None and recipe.offset == 0
    dtype = operators.torch_dtype(recipe.dtype)
    if not contiguous or elements > MOST_ELEMENTS or dtype.is_complex:
        return None
    match recipe.fill:
        case schema.Booleans():
            return Moved(place, elements, recipe.dtype, 0, 2)
        case schema.Integers(low=low, high=high) if not dtype.is_floating_point and _can_step(dtype, low, high):
            return Moved(place, elements, recipe.dtype, low, high)
        case schema.Normal(mean=mean, std=std):
            return Moved(place, elements, recipe.dtype, mean - std, mean + std)
        case schema.Uniform(low=low, high=high) if high - low >= _LEAST_RELATIVE_RANGE * max(abs(low), abs(high)):
            # Without the ends of the range: rounding could lead out of it.
            margin = _RANGE_MARGIN * (high - low)
            return Moved(place, elements, recipe.dtype, low + margin, high - margin)
    return None


def _can_step(dtype: torch.dtype, low: int, high: int) -> bool:
    """Whether a value of this range plus a step does not overflow, and the range has more than one value."""
    return 1 < high - low <= torch.iinfo(dtype).max // 2 and abs(low) + abs(high) < _FLOAT64_INTEGER_LIMIT


def can_be_captured(case: schema.Case, device: torch.device) -> bool:
    """Whether the reference runs on CUDA and in this process: a graph cannot hold calls of another process."""
    return device.type == "cuda" and model_operators.host_of(case) is None


def _captured_graph(evaluate: Any) -> tuple[torch.cuda.CUDAGraph, Evaluation]:
    """The evaluation recorded as a CUDA graph, whose results lie in the same memory after each replay."""
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    try:
        with torch.cuda.stream(stream):
            evaluate()  # libraries initialize themselves at the first use of a stream
            torch.cuda.synchronize()
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                evaluation = evaluate()
            finally:
                graph.capture_end()
    except ReferenceFailure as error:
        raise _uncapturable(error) from error
    except operator_errors() as error:
        raise _uncapturable(error) from error
    finally:
        torch.cuda.synchronize()
    return graph, evaluation


def _uncapturable(error: Exception) -> UncapturableError:
    return UncapturableError(str(error).splitlines()[0] if str(error) else type(error).__name__)
