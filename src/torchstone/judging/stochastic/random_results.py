"""Runs all checks of one case's random results, call after call, against torch's own draws of the same calls.

It also finds out whether random numbers are drawn with the arguments of the case. If not, results are judged by value.
If they are, :mod:`torchstone.judging.stochastic.distribution` compares the distribution of each result with torch's,
and the result with the candidate's previous one: a draw that is returned in every call is not random. The other checks:

- :mod:`torchstone.judging.stochastic.reused_draws` finds kernels that return a few stored draws in turn;
- :mod:`torchstone.judging.stochastic.repeated_arguments` repeats some arguments and finds draws that are a function of
  the arguments;
- :mod:`torchstone.judging.stochastic.dependence` examines what elements depend on, in the first and some further
  calls;
- :mod:`torchstone.judging.stochastic.value_rates` counts values above, below and at thresholds over all calls;
- :mod:`torchstone.judging.stochastic.result_relations` compares results and inputs with each other, in the same calls
  as `dependence`.

The first call of a case is judged in full: against many draws of torch's. So are some later calls, chosen in secret.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, batched_view
from torchstone.calls.random_or_undefined_results import FEW_RANDOM_ELEMENTS
from torchstone.calls.reference_calls import Evaluation, Evaluator, ResultPosition, Tensors, inside_view
from torchstone.judging.plans import attention_dropout_one_key
from torchstone.judging.stochastic import distribution, sampled_indices
from torchstone.judging.stochastic.dependence import Dependence
from torchstone.judging.stochastic.repeated_arguments import Repeats
from torchstone.judging.stochastic.result_relations import Relations
from torchstone.judging.stochastic.results_as_numbers import real_rows
from torchstone.judging.stochastic.reused_draws import Recurrence
from torchstone.judging.stochastic.value_rates import Rates
from torchstone.judging.tail_bound import unlikelihood

_LEAST_EQUAL_ELEMENTS = 1 << 14
"""Elements that torch must draw, all equal, before a result counts as constant: enough to see a rate of 0.001."""
_MOST_EXPECTED_UNSEEN = 20.0
"""An event that did not occur at all has an expected count below this, except with probability exp(-this)."""
_RARE_EXPONENT = 24.0
"""Elements that differ from what torch always draws raise a false alarm with a probability of less than exp(-this)."""
_ROUNDING_DIFFERENCE = 0.02
"""Values that differ by less, relative to the largest, count as rounded differently, not as drawn differently."""

_LEAST_RANGE_FOR_REMAINDERS = 1 << 20
"""Integer results with a range at least this wide also have their remainders checked."""
_ODD_DIVISORS = tuple(range(3, 256, 2))
"""Odd divisors, one of which is drawn for the check of remainders, besides 2 and 256."""

_FIRST_CALLS, _DEPENDENCE_ONE_IN_CALLS = 8, 16
"""Dependence is examined in this many first calls, then in one of this many calls."""
_MOST_EXTRA_DRAWS, _MOST_EXTRA_ELEMENTS = 16, 1 << 20
"""For each of the first calls that is not judged in full: most further draws of torch's, most elements of them."""
_FULL_CALLS_OFFSET = 3
"""The n-th call is judged in full, which is slow, with probability 1 / (this + n); the first always."""


def _are_all_equal(evaluation: Evaluation) -> bool:
    """Whether all draws of torch's are equal."""
    return all(bool((tensor == tensor[:1]).all()) for tensor in evaluation.tensors.values())


def generators() -> list[torch.Tensor]:
    """The state of each default generator: operators draw from these unless a generator is passed."""
    devices = torch.cuda.device_count() if torch.cuda.is_initialized() else 0  # type: ignore[no-untyped-call]
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in range(devices))]


class _ReferenceDraws(NamedTuple):
    """torch's own draws of one call."""

    evaluation: Evaluation | None
    constant: bool
    """Whether they are all equal."""
    moved: bool
    """Whether a random number generator advanced. If not, nothing is drawn."""


class _ConstantResult:
    """Judges a result for which torch always drew the same values: other values may be chance, but only rarely."""

    def __init__(self, drawn: int) -> None:
        """``drawn``: how many elements torch drew, all equal."""
        self._chance = _MOST_EXPECTED_UNSEEN / max(1, drawn)
        self._examined, self._different = 0, 0

    def mismatch_text(self, own: torch.Tensor, got: torch.Tensor) -> str | None:
        """Return a message if too many elements differ from ``own``, torch's draw for the same call; else None.

        Elements are counted over all calls, so that small results are judged too.
        """
        expected, result = real_rows(torch.stack([own, got])).to(torch.float64)
        allowed = (
            _ROUNDING_DIFFERENCE * float(expected.abs().amax())
            if own.dtype.is_floating_point or own.dtype.is_complex
            else 0.0
        )
        same = (expected == result) | ((expected - result).abs() <= allowed) | (expected.isnan() & result.isnan())
        self._examined += same.numel()
        self._different += int((~same).sum())
        if unlikelihood(self._different, self._chance * self._examined) <= _RARE_EXPONENT:
            return None
        return (
            f"{self._different} of {self._examined} elements (of all calls) differ from the value that torch always "
            f"draws there, the worst by {float((expected - result).abs().amax()):.3g}"
        )


@dataclass(eq=False)
class _SelectedValueChecks:
    """The checks of the values that a result's indices select from an argument."""

    rates: Rates
    dependence: Dependence
    widened: float = 1.0


def draws_each_value_once(case: schema.Case) -> bool:
    """Whether torch promises that no number is drawn twice (``randperm``, sampling without replacement)."""
    given = dict(operators.named_arguments(case.operator, case.args, case.kwargs))
    return operators.traits(case.operator).draws_each_once and given.get("replacement") != schema.Scalar(True)


class RandomResults:
    """Judges the random results of one case, call after call."""

    def __init__(self, evaluator: Evaluator, *, all_checks: bool = True) -> None:
        """``all_checks``: also those that cost much and find no kernel of the corpus that no other check finds."""
        self._evaluator = evaluator
        self._all_checks = all_checks
        self._name = evaluator.case.operator
        self._each_once = draws_each_value_once(evaluator.case)
        self._previous: Tensors = {}
        self._reuse_checks: dict[ResultPosition, Recurrence] = {}
        self._dependences: dict[ResultPosition, Dependence] = {}
        self._rates: dict[ResultPosition, Rates] = {}
        self._moduli = (2, 256, secrets.choice(_ODD_DIVISORS))
        self._remainder_rates: dict[tuple[ResultPosition, int], Rates] = {}
        self._selected_value_checks: dict[ResultPosition, _SelectedValueChecks] = {}
        self._relations = Relations()
        self._repeats = Repeats()
        self._calls = 0
        self._widened: dict[ResultPosition, float] = {}
        self._equal_elements = 0
        """How many elements torch drew if all draws were equal; 0 if some differed."""
        self._constant_results: dict[ResultPosition, _ConstantResult] = {}
        self.draws_nothing: bool | None = None
        """Whether no random numbers are drawn with the arguments of this case. None: no call has shown it yet."""

    def with_inserted_repeats(self, calls: Sequence[DrawnCall]) -> list[DrawnCall]:
        """The calls of a block, some of them replaced by repeated ones.

        Repeated calls show whether a kernel's draws are a function of the arguments.
        """
        return list(calls) if self.draws_nothing else self._repeats.insert_repeats(calls)

    def next_call_in_full(self) -> bool:
        """Count the next call, and decide, partly by a secret draw, whether it is judged in full."""
        self._calls += 1
        return self.draws_nothing is None or secrets.randbelow(_FULL_CALLS_OFFSET + self._calls) == 0

    def examines_dependence(self) -> bool:
        """Whether dependence is examined in this call: in the first ones, then in some, chosen in secret.

        It takes milliseconds, and a measurement has thousands of calls.
        """
        return self._calls <= _FIRST_CALLS or secrets.randbelow(_DEPENDENCE_ONE_IN_CALLS) == 0

    def with_further_draws(self, call: DrawnCall, one: Tensors) -> Tensors:
        """Add further draws of torch's to ``one``: a single one, or in the first calls as many as cost little.

        More draws of torch's give more precise rates, and most cases have few calls.
        """
        elements = max((drawn.numel() for drawn in one.values()), default=0)
        times = (
            max(1, min(_MOST_EXTRA_DRAWS, _MOST_EXTRA_ELEMENTS // max(1, elements)))
            if self._calls <= _FIRST_CALLS
            else 1
        )
        others = self._evaluator.native([call] * times)
        if others is None:
            return one
        return {place: torch.cat([drawn, others.tensors[place]]) for place, drawn in one.items()}

    def draws(self, call: DrawnCall, elements: int) -> Tensors | None:
        """torch's own draws for a call, stacked. None: no random numbers are drawn, so results are judged by value."""
        drawn = self._reference_draws(call, distribution.count_for(elements))
        if drawn.constant and drawn.moved and 0 < elements < _LEAST_EQUAL_ELEMENTS and self.draws_nothing is None:
            drawn = self._reference_draws(call, -(-_LEAST_EQUAL_ELEMENTS // elements))
        if drawn.evaluation is None:
            return None
        may_differ = elements < FEW_RANDOM_ELEMENTS or operators.traits(self._name).draws_flags
        # If no generator advanced, nothing is drawn, even if bits differ: the order of a sum may depend on the
        # addresses of the arguments.
        draws_nothing = not drawn.moved or (drawn.constant and not may_differ)
        if self.draws_nothing is None and drawn.constant and not draws_nothing:
            self._equal_elements = elements * len(next(iter(drawn.evaluation.tensors.values()), ()))
        self.draws_nothing = draws_nothing and self.draws_nothing is not False
        return None if self.draws_nothing else drawn.evaluation.tensors

    def check_draws_nothing_again(self, call: DrawnCall) -> None:
        """Reset `draws_nothing` if random numbers are drawn for this call, though none were drawn for earlier ones.

        Example: rrelu draws for negative elements only. The next call is then judged in full.
        """
        if self._reference_draws(call, 1).moved:
            self.draws_nothing = None

    def _reference_draws(self, call: DrawnCall, times: int) -> _ReferenceDraws:
        """Call torch ``times`` times."""
        before = generators()
        evaluation = self._evaluator.native([call] * times)
        moved = not all(map(torch.equal, before, generators()))
        return _ReferenceDraws(evaluation, evaluation is not None and _are_all_equal(evaluation), moved)

    def attention_dropout_mismatch_text(self, call: DrawnCall, outputs: Sequence[Any]) -> str | None:
        """Judge a call that the plan ``attention_dropout_one_key`` has written to: a message, or None if right."""
        evaluation = self._evaluator.native([call] * attention_dropout_one_key.DRAWS)
        drawn = None if evaluation is None else evaluation.tensors.get(ResultPosition("output", 0))
        return (
            None
            if drawn is None or drawn.shape[1:] != outputs[0].shape
            else attention_dropout_one_key.dropout_mismatch_text(drawn, outputs[0])
        )

    def mismatch_text(
        self,
        call: DrawnCall,
        draws: Tensors,
        outputs: Sequence[Any],
        inputs_after: Sequence[torch.Tensor],
        in_full: bool,
    ) -> tuple[ResultPosition, str] | None:
        """Return the first result that is not drawn as torch draws it, and why; None if all are right.

        ``draws``: torch's draws for the same call.
        """
        seen: Tensors = {}
        own: Tensors = {}
        given = self._read_only_arguments(inputs_after)
        for place, drawn in draws.items():
            if self._is_the_argument(place, draws):
                continue
            got = (outputs if place.kind == "output" else inputs_after)[place.position]
            if place.kind == "argument":
                if not self._same_outside(place, drawn[0], got):
                    return place, "elements outside the view changed"
                drawn, got = self._inside(place, drawn), self._inside(place, got.unsqueeze(0))[0]
            text = (
                self._constant_mismatch_text(place, drawn, got)
                or self._repeats.mismatch_text(call, f"{place}", drawn[0], got, self._widened.get(place, 1.0) ** 2)
                or self._distribution_mismatch_text(place, drawn, got, in_full)
                or self._rate_mismatch_text(place, drawn, got)
                or self._remainder_mismatch_text(place, drawn, got)
                or self._selected_values_mismatch_text(place, drawn, got, given, in_full)
                or self._dependence_mismatch_text(place, drawn if in_full else drawn[:2], got)
                or self._reuse_mismatch_text(place, drawn, got)
            )
            if text is not None:
                return place, text
            own[place], seen[place] = drawn, got.clone()
        self._previous = seen
        return self._relation_mismatch_text(own, seen, given)

    def _read_only_arguments(self, inputs_after: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """The arguments that are only read."""
        return {
            f"argument {position}": self._inside(ResultPosition("argument", position), storage.unsqueeze(0))[0]
            for position, storage in enumerate(inputs_after)
            if not self._evaluator.is_written(position)
        }

    def _is_the_argument(self, place: ResultPosition, draws: Tensors) -> bool:
        """Whether a returned tensor is a written argument (in-place, out=), which is judged as an argument."""
        if place.kind != "output":
            return False
        declared = self._evaluator.contract.returned_arguments
        argument = declared[place.position] if place.position < len(declared) else None
        return argument is not None and ResultPosition("argument", argument) in draws

    def _relation_mismatch_text(
        self, own: Tensors, got: Tensors, given: dict[str, torch.Tensor]
    ) -> tuple[ResultPosition, str] | None:
        """Return a result whose relations to other results and inputs torch's draws never show, and why; else None.

        Only in calls with several draws of torch's: those whose dependence is examined.
        """
        if any(len(drawn) < 2 for drawn in own.values()):
            return None
        names = {f"{place.kind} {place.position}": place for place in got}
        named = [{name: tensors[place] for name, place in names.items()} for tensors in (own, got)]
        found = self._relations.mismatch_text(named[0], named[1], given, max([1.0, *self._widened.values()]))
        return None if found is None else (names[found[0]], found[1])

    def _constant_mismatch_text(self, place: ResultPosition, drawn: torch.Tensor, got: torch.Tensor) -> str | None:
        """If torch always drew the same values: a message if the candidate has others too often."""
        if not self._equal_elements or not got.numel():
            return None
        return self._constant_results.setdefault(place, _ConstantResult(self._equal_elements)).mismatch_text(
            drawn[0], got
        )

    def _distribution_mismatch_text(
        self, place: ResultPosition, drawn: torch.Tensor, got: torch.Tensor, in_full: bool
    ) -> str | None:
        """Compare the distribution of the result with that of torch's draws."""
        if in_full:
            widened = max(self._widened.get(place, 1.0), distribution.widening(drawn))
            self._widened[place] = widened
            return distribution.mismatch_text(
                distribution.ReferenceDraws(self._name, drawn, self._previous.get(place), widened), got
            )
        return distribution.quick_mismatch_text(self._name, drawn[0], got, self._widened.get(place, 1.0))

    def _rate_mismatch_text(self, place: ResultPosition, drawn: torch.Tensor, got: torch.Tensor) -> str | None:
        """Compare rates of values at thresholds, over all calls.

        The thresholds come from the first call, which is judged in full and so has many draws of torch's.
        """
        if place not in self._rates:
            self._rates[place] = Rates(self._name, drawn)
        return self._rates[place].mismatch_text(drawn, got, self._widened.get(place, 1.0))

    def _remainder_mismatch_text(self, place: ResultPosition, drawn: torch.Tensor, got: torch.Tensor) -> str | None:
        """Compare rates of the remainders of integers: a 24-bit random number times 2**40 ends in zero bits."""
        if got.dtype.is_floating_point or got.dtype.is_complex or got.dtype is torch.bool or not got.numel():
            return None
        if int(drawn.amax()) - int(drawn.amin()) < _LEAST_RANGE_FOR_REMAINDERS:
            return None
        for modulus in self._moduli:
            own, left = drawn % modulus, got % modulus
            if (place, modulus) not in self._remainder_rates:
                self._remainder_rates[place, modulus] = Rates(self._name, own)
            text = self._remainder_rates[place, modulus].mismatch_text(own, left)
            if text is not None:
                return f"remainders after division by {modulus}: {text}"
        return None

    def _selected_values_mismatch_text(
        self,
        place: ResultPosition,
        drawn: torch.Tensor,
        got: torch.Tensor,
        given: dict[str, torch.Tensor],
        in_full: bool,
    ) -> str | None:
        """If results are indices into an argument: judge the values that they select."""
        source = sampled_indices.source_of(drawn, given.values())
        if source is None:
            return None
        text = sampled_indices.range_message(source, got)
        if text is not None:
            return text
        own, result = (
            sampled_indices.selected_values(source, drawn),
            sampled_indices.selected_values(source, got.unsqueeze(0))[0],
        )
        if place not in self._selected_value_checks:
            self._selected_value_checks[place] = _SelectedValueChecks(Rates(self._name, own), Dependence())
        seen = self._selected_value_checks[place]
        seen.widened = max(seen.widened, distribution.widening(own) if in_full else 1.0)
        found = seen.rates.mismatch_text(own, result, seen.widened)
        found = found or (seen.dependence.mismatch_text(own if in_full else own[:2], result) if len(own) > 1 else None)
        return None if found is None else f"of the elements that the indices point at: {found}"

    def _dependence_mismatch_text(self, place: ResultPosition, drawn: torch.Tensor, got: torch.Tensor) -> str | None:
        if len(drawn) < 2:
            return None
        return self._dependences.setdefault(place, Dependence(each_once=self._each_once)).mismatch_text(drawn, got)

    def _reuse_mismatch_text(self, place: ResultPosition, drawn: torch.Tensor, got: torch.Tensor) -> str | None:
        """Return how the result repeats an earlier one, or None.

        The first call is judged in full, so that there are many draws of torch's to learn from.
        """
        if got.numel() < FEW_RANDOM_ELEMENTS:
            return None
        if place not in self._reuse_checks:
            self._reuse_checks[place] = Recurrence(self._name, drawn, all_checks=self._all_checks)
        return self._reuse_checks[place].mismatch_text(drawn[0], got, self._widened.get(place, 1.0) ** 2)

    def _inside(self, place: ResultPosition, storages: torch.Tensor) -> torch.Tensor:
        return batched_view(storages, self._evaluator.recipes[place.position])

    def _same_outside(self, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> bool:
        inside = inside_view(self._evaluator, place.position, native)
        return bool(((got == native) | inside | (got.isnan() & native.isnan())).all())
