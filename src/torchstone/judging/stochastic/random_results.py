"""Runs all checks of one case's random results, call after call, against torch's own draws of the same calls.

It also finds out whether anything is drawn with the arguments of the case; if not, results are judged by value. Each
result is compared by :mod:`torchstone.judging.stochastic.distribution`. The other checks:

- the candidate's last draw is kept: a draw that is right once and then returned for ever is not random;
- parts of every draw are kept: :mod:`torchstone.judging.stochastic.reused_draws` finds a few draws returned in turn;
- some arguments are repeated: :mod:`torchstone.judging.stochastic.repeated_arguments` finds draws that follow from
  them;
- in the first and in some further calls, :mod:`torchstone.judging.stochastic.dependence` examines what elements depend
  on;
- over all calls, :mod:`torchstone.judging.stochastic.value_rates` counts values above, below and at thresholds;
- in the same calls, :mod:`torchstone.judging.stochastic.result_relations` compares results and inputs with each other.

The first call of a case is judged in full, and so are some others, drawn in secret.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from torchstone import operators, schema
from torchstone.calls.random_arguments import DrawnCall, batched_view
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

_ENOUGH_TO_DIFFER = 1 << 14
"""Elements that torch must draw, all equal, before a result counts as constant: enough to see a rate of 0.001."""
_UNSEEN = 20.0
"""Upper limit of the expected number of events that were not seen at all, except with probability exp(-this)."""
_RARE_EXPONENT = 24.0
"""More elements differ from what torch always draws with a probability of less than exp(-this)."""
_ROUGHLY = 0.02
"""Values that differ by less, relative to the largest, count as rounded differently, not as drawn differently."""

_FINE_RANGE = 1 << 20
"""Integers from a range at least this wide also have their last digits checked."""
_ODD = tuple(range(3, 256, 2))

_ALWAYS, _ONE_IN = 8, 16
_AT_MOST, _DRAWN_AT_FIRST = 16, 1 << 20
"""Most draws of torch's, and most elements of them, for each of the first calls that is not judged in full."""
_AT_FIRST = 3
"""The n-th call is judged in full, which is slow, with probability 1 / (this + n); the first always."""


def _constant(evaluation: Evaluation) -> bool:
    return all(bool((tensor == tensor[:1]).all()) for tensor in evaluation.tensors.values())


def generators() -> list[torch.Tensor]:
    """The state of every generator that an operator without one of its own draws from."""
    devices = torch.cuda.device_count() if torch.cuda.is_initialized() else 0  # type: ignore[no-untyped-call]
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in range(devices))]


class _Drawn(NamedTuple):
    """torch's own draws of one call."""

    evaluation: Evaluation | None
    constant: bool
    """Whether they are all equal."""
    moved: bool
    """Whether a random number generator advanced. If not, nothing is drawn."""


class _Rarity:
    """Judges a result for which torch drew always the same values: other values may be chance, but only rarely."""

    def __init__(self, drawn: int) -> None:
        self._chance = _UNSEEN / max(1, drawn)
        self._looked_at, self._different = 0, 0

    def misfit(self, own: torch.Tensor, got: torch.Tensor) -> str | None:
        """``own``: torch's draw of the same call. Counted over all calls, so that few elements tell as well."""
        expected, result = real_rows(torch.stack([own, got])).to(torch.float64)
        room = _ROUGHLY * float(expected.abs().amax()) if own.dtype.is_floating_point or own.dtype.is_complex else 0.0
        same = (expected == result) | ((expected - result).abs() <= room) | (expected.isnan() & result.isnan())
        self._looked_at += same.numel()
        self._different += int((~same).sum())
        if unlikelihood(self._different, self._chance * self._looked_at) <= _RARE_EXPONENT:
            return None
        return (
            f"{self._different} of {self._looked_at} elements (of all calls) are not what torch always draws there, "
            f"worst by {float((expected - result).abs().amax()):.3g}"
        )


@dataclass(eq=False)
class _Picked:
    """The checks of the elements that a result's indices point at."""

    rates: Rates
    dependence: Dependence
    widened: float = 1.0


def comes_once(case: schema.Case) -> bool:
    """Whether torch promises that no number is drawn twice (``randperm``, sampling without replacement)."""
    given = dict(operators.named_arguments(case.operator, case.args, case.kwargs))
    return operators.traits(case.operator).draws_each_once and given.get("replacement") != schema.Scalar(True)


class RandomResults:
    """One case's random results, call after call."""

    def __init__(self, evaluator: Evaluator, *, all_checks: bool = True) -> None:
        """``all_checks``: also those that find no wrong kernel alone and cost much."""
        self._evaluator = evaluator
        self._all_checks = all_checks
        self._name = evaluator.case.operator
        self._each_once = comes_once(evaluator.case)
        self._last: Tensors = {}
        self._earlier: dict[ResultPosition, Recurrence] = {}
        self._dependences: dict[ResultPosition, Dependence] = {}
        self._rates: dict[ResultPosition, Rates] = {}
        self._moduli = (2, 256, secrets.choice(_ODD))
        self._digits: dict[tuple[ResultPosition, int], Rates] = {}
        self._picked: dict[ResultPosition, _Picked] = {}
        self._relations = Relations()
        self._repeats = Repeats()
        self._calls = 0
        self._widened: dict[ResultPosition, float] = {}
        self._equal = 0
        """Elements that torch drew before any differed; 0: some do."""
        self._rarities: dict[ResultPosition, _Rarity] = {}
        self.idle: bool | None = None
        """Whether nothing is drawn with the arguments of this case, as far as calls judged in full have shown."""

    def with_repeats(self, calls: Sequence[DrawnCall]) -> list[DrawnCall]:
        """The calls of a block, some of them replaced by repeated ones: to find draws that follow from the
        arguments."""
        return list(calls) if self.idle else self._repeats.put_among(calls)

    def wants_all(self) -> bool:
        """Whether the next call is to be judged in full though it need not be: a secret draw for each."""
        self._calls += 1
        return self.idle is None or secrets.randbelow(_AT_FIRST + self._calls) == 0

    def wants_dependence(self) -> bool:
        """Whether dependence is examined in this call: in the first ones, then in some, chosen in secret.

        It takes milliseconds, and a measurement has thousands of calls.
        """
        return self._calls <= _ALWAYS or secrets.randbelow(_ONE_IN) == 0

    def several_draws(self, call: DrawnCall, one: Tensors) -> Tensors:
        """Add further draws of torch's to one of a call: one, or in the first calls as many as cost little.

        Rates are known the better the more draws of torch's there are, and most cases have few calls.
        """
        elements = max((drawn.numel() for drawn in one.values()), default=0)
        times = max(1, min(_AT_MOST, _DRAWN_AT_FIRST // max(1, elements))) if self._calls <= _ALWAYS else 1
        others = self._evaluator.native([call] * times)
        if others is None:
            return one
        return {place: torch.cat([drawn, others.tensors[place]]) for place, drawn in one.items()}

    def draws(self, call: DrawnCall, elements: int) -> Tensors | None:
        """torch's own draws of a call, stacked; None if nothing is drawn, so that values are judged."""
        drawn = self._drawn(call, distribution.count_for(elements))
        if drawn.constant and drawn.moved and 0 < elements < _ENOUGH_TO_DIFFER and self.idle is None:
            drawn = self._drawn(call, -(-_ENOUGH_TO_DIFFER // elements))
        if drawn.evaluation is None:
            return None
        may_differ = elements < FEW_RANDOM_ELEMENTS or operators.traits(self._name).draws_flags
        # If no generator advanced, nothing is drawn, even if bits differ: the order of a sum may depend on the
        # addresses of the arguments.
        idle = not drawn.moved or (drawn.constant and not may_differ)
        if self.idle is None and drawn.constant and not idle:
            self._equal = elements * len(next(iter(drawn.evaluation.tensors.values()), ()))
        self.idle = idle and self.idle is not False
        return None if self.idle else drawn.evaluation.tensors

    def wake_up(self, call: DrawnCall) -> None:
        """Find out whether numbers are drawn for this call though none were so far (rrelu: for negative elements only).

        If so, the next call that is judged is judged in full.
        """
        if self._drawn(call, 1).moved:
            self.idle = None

    def _drawn(self, call: DrawnCall, times: int) -> _Drawn:
        before = generators()
        evaluation = self._evaluator.native([call] * times)
        moved = not all(map(torch.equal, before, generators()))
        return _Drawn(evaluation, evaluation is not None and _constant(evaluation), moved)

    def one_key_misfit(self, call: DrawnCall, outputs: Sequence[Any]) -> str | None:
        """What is wrong with a call that the plan ``attention_dropout_one_key`` has written to. None: nothing."""
        evaluation = self._evaluator.native([call] * attention_dropout_one_key.DRAWS)
        drawn = None if evaluation is None else evaluation.tensors.get(ResultPosition("output", 0))
        return (
            None
            if drawn is None or drawn.shape[1:] != outputs[0].shape
            else attention_dropout_one_key.misfit(drawn, outputs[0])
        )

    def misfit(
        self,
        call: DrawnCall,
        draws: Tensors,
        outputs: Sequence[Any],
        inputs_after: Sequence[torch.Tensor],
        in_full: bool,
    ) -> tuple[ResultPosition, str] | None:
        """The first result that is not drawn as torch draws it, and why; None: all are right. ``draws``: torch's
        draws.
        """
        seen: Tensors = {}
        own: Tensors = {}
        given = self._given(inputs_after)
        for place, drawn in draws.items():
            if self._is_the_argument(place, draws):
                continue
            got = (outputs if place.kind == "output" else inputs_after)[place.position]
            if place.kind == "argument":
                if not self._same_outside(place, drawn[0], got):
                    return place, "elements outside the view changed"
                drawn, got = self._inside(place, drawn), self._inside(place, got.unsqueeze(0))[0]
            text = (
                self._rarely(place, drawn, got)
                or self._repeats.misfit(call, f"{place}", drawn[0], got, self._widened.get(place, 1.0) ** 2)
                or self._text(place, drawn, got, in_full)
                or self._rate(place, drawn, got)
                or self._last_digits(place, drawn, got)
                or self._of_picked(place, drawn, got, given, in_full)
                or self._dependence(place, drawn if in_full else drawn[:2], got)
                or self._repetition(place, drawn, got)
            )
            if text is not None:
                return place, text
            own[place], seen[place] = drawn, got.clone()
        self._last = seen
        return self._unrelated(own, seen, given)

    def _given(self, inputs_after: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """The arguments that are only read."""
        return {
            f"argument {position}": self._inside(ResultPosition("argument", position), storage.unsqueeze(0))[0]
            for position, storage in enumerate(inputs_after)
            if not self._evaluator.is_written(position)
        }

    def _is_the_argument(self, place: ResultPosition, draws: Tensors) -> bool:
        """Whether a result is an argument (in-place, out=), which is judged as such."""
        if place.kind != "output":
            return False
        declared = self._evaluator.contract.returned_arguments
        argument = declared[place.position] if place.position < len(declared) else None
        return argument is not None and ResultPosition("argument", argument) in draws

    def _unrelated(
        self, own: Tensors, got: Tensors, given: dict[str, torch.Tensor]
    ) -> tuple[ResultPosition, str] | None:
        """A result that does not fit the others or the inputs as torch's do. In calls whose dependence is examined."""
        if any(len(drawn) < 2 for drawn in own.values()):
            return None
        names = {f"{place.kind} {place.position}": place for place in got}
        named = [{name: tensors[place] for name, place in names.items()} for tensors in (own, got)]
        found = self._relations.misfit(named[0], named[1], given, max([1.0, *self._widened.values()]))
        return None if found is None else (names[found[0]], found[1])

    def _rarely(self, place: ResultPosition, drawn: torch.Tensor, got: torch.Tensor) -> str | None:
        if not self._equal or not got.numel():
            return None
        return self._rarities.setdefault(place, _Rarity(self._equal)).misfit(drawn[0], got)

    def _text(self, place: ResultPosition, drawn: torch.Tensor, got: torch.Tensor, in_full: bool) -> str | None:
        if in_full:
            widened = max(self._widened.get(place, 1.0), distribution.widening(drawn))
            self._widened[place] = widened
            return distribution.misfit(
                distribution.ReferenceDraws(self._name, drawn, self._last.get(place), widened), got
            )
        return distribution.quick_misfit(self._name, drawn[0], got, self._widened.get(place, 1.0))

    def _rate(self, place: ResultPosition, drawn: torch.Tensor, got: torch.Tensor) -> str | None:
        """Rates of values at thresholds, over all calls. The first call, judged in full, has many draws of torch's."""
        if place not in self._rates:
            self._rates[place] = Rates(self._name, drawn)
        return self._rates[place].misfit(drawn, got, self._widened.get(place, 1.0))

    def _last_digits(self, place: ResultPosition, drawn: torch.Tensor, got: torch.Tensor) -> str | None:
        """Rates of the remainders of integers: a random number of 24 bits, times 2**40, ends in zeros."""
        if got.dtype.is_floating_point or got.dtype.is_complex or got.dtype is torch.bool or not got.numel():
            return None
        if int(drawn.amax()) - int(drawn.amin()) < _FINE_RANGE:
            return None
        for modulus in self._moduli:
            own, left = drawn % modulus, got % modulus
            if (place, modulus) not in self._digits:
                self._digits[place, modulus] = Rates(self._name, own)
            text = self._digits[place, modulus].misfit(own, left)
            if text is not None:
                return f"after division by {modulus}, {text}"
        return None

    def _of_picked(
        self,
        place: ResultPosition,
        drawn: torch.Tensor,
        got: torch.Tensor,
        given: dict[str, torch.Tensor],
        in_full: bool,
    ) -> str | None:
        """If results are indices, whether the values they select are drawn as torch draws them."""
        source = sampled_indices.source_of(drawn, given.values())
        if source is None:
            return None
        text = sampled_indices.outside(source, got)
        if text is not None:
            return text
        own, result = sampled_indices.picked(source, drawn), sampled_indices.picked(source, got.unsqueeze(0))[0]
        if place not in self._picked:
            self._picked[place] = _Picked(Rates(self._name, own), Dependence())
        seen = self._picked[place]
        seen.widened = max(seen.widened, distribution.widening(own) if in_full else 1.0)
        found = seen.rates.misfit(own, result, seen.widened)
        found = found or (seen.dependence.misfit(own if in_full else own[:2], result) if len(own) > 1 else None)
        return None if found is None else f"of the elements that the indices point at: {found}"

    def _dependence(self, place: ResultPosition, drawn: torch.Tensor, got: torch.Tensor) -> str | None:
        if len(drawn) < 2:
            return None
        return self._dependences.setdefault(place, Dependence(each_once=self._each_once)).misfit(drawn, got)

    def _repetition(self, place: ResultPosition, drawn: torch.Tensor, got: torch.Tensor) -> str | None:
        """How the result repeats an earlier call. The first call is judged in full, so that torch's draws are many."""
        if got.numel() < FEW_RANDOM_ELEMENTS:
            return None
        if place not in self._earlier:
            self._earlier[place] = Recurrence(self._name, drawn, all_checks=self._all_checks)
        return self._earlier[place].misfit(drawn[0], got, self._widened.get(place, 1.0) ** 2)

    def _inside(self, place: ResultPosition, storages: torch.Tensor) -> torch.Tensor:
        return batched_view(storages, self._evaluator.recipes[place.position])

    def _same_outside(self, place: ResultPosition, native: torch.Tensor, got: torch.Tensor) -> bool:
        inside = inside_view(self._evaluator, place.position, native)
        return bool(((got == native) | inside | (got.isnan() & native.isnan())).all())
