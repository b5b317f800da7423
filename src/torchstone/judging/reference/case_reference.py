"""The reference of one case: torch's own results for many calls, and on request exact results with error bounds.

torch's own results are evaluated for many calls together. Most right results are so close to them that they are
accepted at once (:meth:`Reference.screen`). Other calls, and calls with bounds, are evaluated in float64 and probed:
evaluated again on moved inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall
from torchstone.calls.random_or_undefined_results import draws_random_numbers, leaves_values_undefined
from torchstone.calls.reference_calls import (
    Evaluator,
    ResultPosition,
    first_line,
    inside_view,
    is_continuous,
)
from torchstone.calls.torch_errors import operator_errors
from torchstone.judging.copy_operators import only_moves
from torchstone.judging.effort_budget import BUDGETS
from torchstone.judging.plans import plan_of
from torchstone.judging.reference import bounds
from torchstone.judging.reference.expected import Batch, Expected, ExpectedValues, Screen
from torchstone.judging.reference.float64 import Float64Probe, piece_elements, probe
from torchstone.judging.reference.native_noise import NativeNoise, roughness
from torchstone.judging.stochastic.random_results import RandomResults
from torchstone.judging.variant_tag import HIDDEN

_PLANTED_MULTIPLE = 16.0
"""Factor on the bound of planted calls. Rows with a planted value are worse conditioned than slopes can show, so
precision is judged on ordinary values only."""
_FLOAT64_NOISE = 2.0**-41
"""Added to the bound of planted calls: the error of float64 itself at values up to 100, some hundred roundings."""


class Reference:
    """The reference for one case on one device. Create one per case and keep it: it stores what calls have shown."""

    def __init__(
        self,
        case: schema.Case,
        device: torch.device,
        arithmetic_device: torch.device | None = None,
        stated: Reference | None = None,
        effort: schema.Effort = "thorough",
    ) -> None:
        """``arithmetic_device``: where calls are drawn and compared; by default ``device``.

        ``stated``: the stated case's reference, if ``case`` is a hidden variant of it. Its effort applies here too.
        """
        self.effort: schema.Effort = effort if stated is None else stated.effort
        """How much of the case is checked."""
        self.case = case
        self.device = device if arithmetic_device is None else arithmetic_device
        """Where calls are drawn and compared (:mod:`torchstone.judging.arithmetic_device`). torch's own operator runs
        on ``device``."""
        self.runs_on_host = device.type == "cpu"
        """Whether torch's own operator runs on the CPU. There it raises on invalid values, which on a GPU may end the
        process."""
        self.float64_failure: str | None = None
        """Torch's error message if the operator does not run in float64; else None."""
        self._evaluator = Evaluator(case, device, arithmetic_device)
        self._stated = stated
        self._only_moves: bool | None = None
        self._calibrations: dict[ResultPosition, bounds.Calibration] = {}
        self._stated_calibrations = {} if stated is None else stated._calibrations
        """Calibrations of the stated case. A variant alone may mislead: a product of one factor looks as if the
        operator only moved values."""
        self._inside: dict[ResultPosition, torch.Tensor] = {}
        self.errors_known = HIDDEN in case.tags
        """Whether torch's own error, which goes into the record, is known from a full comparison. Not needed for hidden
        variants."""
        self._elements = sum(operators.storage_extent(recipe) for recipe in self._evaluator.recipes)
        """Elements of a call's arguments, or of its results once these are known to have more."""
        self.undefined = leaves_values_undefined(self._evaluator)
        """Whether the operator leaves values undefined (``empty``): then only metadata and unchanged arguments are
        judged."""
        self.random_results = self._random_results()
        """Checks of random results; None if the operator cannot draw random numbers."""

    def _random_results(self) -> RandomResults | None:
        if not draws_random_numbers(self._evaluator):
            return None
        return RandomResults(self._evaluator, all_checks=BUDGETS[self.effort].all_checks)

    @property
    def evaluator(self) -> Evaluator:
        """The object that calls torch's own operator."""
        return self._evaluator

    @property
    def screens(self) -> bool:
        """Whether results can be screened against torch's own: neither undefined nor random."""
        return not self.undefined and (self.random_results is None or bool(self.random_results.draws_nothing))

    @property
    def contract(self) -> operators.Contract:
        """What the operator's schema promises for this case."""
        return self._evaluator.contract

    def only_moves(self, call: DrawnCall) -> bool:
        """Whether the operator only moves bits. Found out once, on the first call.

        If it computes in the stated case, it counts as computing in variants too: a sum over one number only moves it.
        """
        if self._only_moves is None and self._stated is not None and self._stated._only_moves is False:
            self._only_moves = False
        if self._only_moves is None and self.screens and self.random_results is None:
            self._only_moves = only_moves(self._evaluator, call)
        return bool(self._only_moves)

    def expect(self, call: DrawnCall) -> Expected:
        """The expected result of one call, with bounds."""
        return self.expect_many([call], with_bounds=True)[0]

    def expect_many(self, calls: Sequence[DrawnCall], *, with_bounds: bool = False) -> list[Expected]:
        """The expected results of these calls, evaluated in batches.

        With bounds, a call is compared in full (a float64 evaluation and one to three pairs of probes) unless its
        results equal torch's own. The first is always compared in full, so that errors are known. Without bounds, only
        calls whose results are not close to torch's own are compared in full. How close is determined by calls that are
        compared in full. Before the first of these, results must be equal.
        """
        size = self._calls_together
        groups = [calls[start : start + size] for start in range(0, len(calls), size)]
        batches = [batch for group in groups for batch in self._batches(group)]
        return [Expected(batch, index, with_bounds) for batch in batches for index in range(len(batch.calls))]

    def precompute(self, calls: Sequence[DrawnCall]) -> None:
        """Evaluate these calls together in advance. Does nothing for random operators, or if they are too large."""
        if self.random_results is None and 0 < len(calls) <= self._calls_together:
            self._evaluator.precompute(calls)

    @property
    def _calls_together(self) -> int:
        """How many calls are evaluated together."""
        return max(1, piece_elements(self.device) // max(1, self._elements))

    def bounded(
        self, call: DrawnCall, native: dict[ResultPosition, torch.Tensor], *, closely: bool = False
    ) -> dict[ResultPosition, ExpectedValues]:
        """Exact results and bounds for torch's own results of one call."""
        self.errors_known = self.errors_known or not call.planted
        judged = {p: t for p, t in native.items() if is_continuous(t.dtype) and t.numel()}
        probed = self._probed(call, closely) if judged else {}
        unprobed = {p: t for p, t in judged.items() if p not in probed or probed[p].exact.shape != t.shape}
        rough = roughness(self._evaluator, call, unprobed, closely=closely) if unprobed else {}
        known = probed | {place: rough.get(place) for place in unprobed}
        plan = plan_of(call)
        if plan is None:
            return {place: self._bounded(place, tensor, known.get(place)) for place, tensor in native.items()}
        noise = 0.0 if plan.policy.keeps_digits else _FLOAT64_NOISE
        return {
            place: self._bounded_planted(place, tensor, known.get(place), noise) for place, tensor in native.items()
        }

    def screen(self, place: ResultPosition, dtype: torch.dtype, elements: int) -> Screen | None:
        """How close to torch's own a result must be to pass without a float64 evaluation. None: it must be equal.

        A bound is never narrower: it contains ``share * (|e| + level)`` and twice torch's own error, wherever a result
        depends on the inputs at all. The level is that of the latest probed call.
        """
        known = self._calibrations.get(place)
        if known is None or not is_continuous(dtype):
            return None
        level = torch.where(known.moves, torch.nan, known.level)
        terms = self._terms(elements)
        independent = elements * self._independent_share(elements, terms)
        rms = bounds.TYPICAL_SHARE * (1.0 + bounds.chance(elements))
        bias = bounds.TYPICAL_SHARE * (bounds.BIAS_SHARE + bounds.chance(independent))
        return Screen(bounds.share(dtype, terms), level, self._inside.get(place), rms, bias)

    def _batches(self, calls: Sequence[DrawnCall]) -> list[Batch]:
        """The calls as one batch, or as several if the shapes of their results differ."""
        left = iter(calls)
        batches = []
        for evaluation in self._evaluator.natives(calls):
            returned = sum(tensor[0].numel() for tensor in evaluation.tensors.values())
            self._elements = max(self._elements, returned)
            batches.append(Batch(self, tuple(itertools.islice(left, len(evaluation.results))), evaluation))
        return batches

    def _probed(self, call: DrawnCall, closely: bool) -> dict[ResultPosition, Float64Probe]:
        """Exact values and slopes; empty, in all later calls too, if the operator does not run in float64."""
        if self.float64_failure is not None:
            return {}
        try:
            return probe(self._evaluator, call, closely=closely)
        except operator_errors() as error:
            self.float64_failure = first_line(error)
            return {}

    def _bounded(
        self, place: ResultPosition, native: torch.Tensor, known: Float64Probe | NativeNoise | None
    ) -> ExpectedValues:
        """Bounds for one result of an ordinary call. What it shows is stored for later calls."""
        if not is_continuous(native.dtype):
            return ExpectedValues(native, None, None)
        inside = self._inside_of(place, native)
        terms = self._terms(native.numel())
        if known is None:
            return ExpectedValues(native, None, bounds.bound_without_exact(native, terms) * inside)
        limits = self._limits(place, native, known, terms)
        calibration = self._calibrations[place] = limits.seen.merged(
            self._calibrations.get(place, self._stated_calibrations.get(place))
        )
        exact = _centre(native, known, calibration)
        return ExpectedValues(native, exact, limits.bound.mul_(inside & ~calibration.moves), limits.spread)

    def _bounded_planted(
        self, place: ResultPosition, native: torch.Tensor, known: Float64Probe | NativeNoise | None, noise: float
    ) -> ExpectedValues:
        """Bounds for a planted call: wider, so that only gross errors count. Nothing is stored for later calls.

        ``noise`` is added, because float64 itself is not exact where large planted values cancel.
        """
        if not is_continuous(native.dtype):
            return ExpectedValues(native, None, None)
        inside, terms = self._inside_of(place, native), self._terms(native.numel())
        if known is None:
            return ExpectedValues(native, None, _PLANTED_MULTIPLE * bounds.bound_without_exact(native, terms) * inside)
        bound = self._limits(place, native, known, terms).bound.mul_(_PLANTED_MULTIPLE).add_(noise)
        bound.mul_(inside)
        calibration = self._calibrations.get(place)
        return ExpectedValues(
            native,
            _centre(native, known, calibration),
            bound if calibration is None else bound.mul_(~calibration.moves),
        )

    def _limits(
        self, place: ResultPosition, native: torch.Tensor, known: Float64Probe | NativeNoise, terms: int
    ) -> bounds.ElementBounds:
        """Bounds from a probe. For a written argument, storage outside the view counts as 0, and there is no spread."""
        independent = self._independent_share(native.numel(), terms) if place.kind == "output" else None
        if place.kind == "argument":
            inside = self._inside_of(place, native)
            native = native * inside
            known = Float64Probe(known.exact * inside, known.slope) if isinstance(known, Float64Probe) else known
        if isinstance(known, Float64Probe):
            return bounds.limits(native, known, terms, independent)
        return bounds.limits_without_exact(native, known, terms, independent)

    def _inside_of(self, place: ResultPosition, native: torch.Tensor) -> torch.Tensor:
        """Which elements may differ at all: all of an output; of a written storage, those of the view."""
        if place.kind == "output":
            return torch.ones((), dtype=torch.bool, device=native.device)
        if place not in self._inside:
            self._inside[place] = inside_view(self._evaluator, place.position, native)
        return self._inside[place]

    def _independent_share(self, elements: int, terms: int) -> float:
        """The share of a result's errors that are independent: less than 1 where one sum enters many elements."""
        read = sum(operators.storage_extent(recipe) for recipe in self._evaluator.recipes)
        return 1.0 if terms <= 1 or read >= elements * terms else 1.0 / terms

    def _terms(self, elements: int) -> int:
        """An upper estimate of how many values are summed into one element of a result; 1 for pointwise operators."""
        if operators.traits(self.case.operator).pointwise:
            return 1
        recipes = self._evaluator.recipes
        sizes = [size for recipe in recipes for size in recipe.shape]
        shares = [operators.storage_extent(recipe) // max(1, elements) for recipe in recipes]
        return max([1, *sizes, *shares])


def _centre(
    native: torch.Tensor, known: Float64Probe | NativeNoise, calibration: bounds.Calibration | None
) -> torch.Tensor | None:
    """The exact values; torch's own if the operator only moves values or steps in the dtype (``nextafter``)."""
    if not isinstance(known, Float64Probe):
        return None
    if calibration is None or known.exact.shape != native.shape:  # the host's result of an operator for devices only
        return known.exact
    return torch.where(calibration.moves, native.to(known.exact.dtype), known.exact)
