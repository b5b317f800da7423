"""Decides whether the result of a call agrees with the expected one.

Checked in this order; the first difference is the answer:

1. metadata: number and kind of outputs, dtype, shape;
2. positions of NaN and infinities;
3. values, against the bounds of :mod:`torchstone.judging.reference.bounds`;
4. the arguments that the operator writes to;
5. everything that it must not change, bit for bit;
6. the signs of zeros, if the operator only moves values.

Random results are compared by distribution instead of steps 2 to 4.

Many calls are first compared with torch's own results together (screening). Only calls that are not close are compared
in full, one by one. Aliasing of outputs is reported by the worker and judged in the trial. Strides are judged only if
the case has a ``memory_format``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from torchstone.calls.reference_calls import ResultPosition
from torchstone.judging.compare import ties
from torchstone.judging.compare.continuity import may_be_discontinuous, with_reference_at_jumps
from torchstone.judging.compare.reference_trust import (
    excuses_numbers,
    plan_accepts_any_result,
    reference_is_consistent,
    with_reference_where_excused,
    with_reference_where_inconsistent,
)
from torchstone.judging.compare.screening import screened
from torchstone.judging.compare.structure import metadata_mismatch
from torchstone.judging.compare.untouched_arguments import Change, kept
from torchstone.judging.compare.values import (
    TALLIED,
    Subject,
    closer_look,
    judge_errors_together,
    statistics_of,
    subjects_of,
    tally,
)
from torchstone.judging.comparison_result import UNKNOWN, Agreement, Mismatch, Reason, worst_of
from torchstone.judging.copy_operators import LostSigns, signs_to_keep
from torchstone.judging.plans import When, plan_of
from torchstone.judging.reference.expected import Expected, ExpectedValues
from torchstone.schema import ErrorStatistics, WrongResult

_REASONS_BY_BOUND: tuple[Reason, ...] = ("values", "precision", "mutation")
"""Reasons of a mismatch that may be false because a bound was too narrow."""


def compare(
    expected: Expected,
    outputs: Sequence[Any],
    inputs_after: Sequence[torch.Tensor],
    values: dict[ResultPosition, ExpectedValues] | None = None,
) -> Agreement | Mismatch:
    """Compare one call in full: its flattened outputs, and the flat storage of every tensor argument after it.

    All tensors lie on the reference's device. There is one transfer from it, unless a result needs a closer look.
    ``values``: the values of ``expected``, if several results are compared with the same call. Without them, a small
    call that is wrong is compared once more, with bounds from more probes: few probes may miss that terms cancel.
    """
    found = _compared(expected, outputs, inputs_after, expected.values if values is None else lambda: values)
    if (
        values is None
        and isinstance(found, Mismatch)
        and found.reason in _REASONS_BY_BOUND
        and expected.gains_by_looking_closely
    ):
        return _compared(expected, outputs, inputs_after, partial(expected.values, closely=True))
    return found


def _compared(
    expected: Expected,
    outputs: Sequence[Any],
    inputs_after: Sequence[torch.Tensor],
    values: Callable[[], dict[ResultPosition, ExpectedValues]],
) -> Agreement | Mismatch:
    """Compare one call in full. ``values`` is called only if results are judged by value."""
    mismatch = metadata_mismatch(expected.outputs, outputs)
    if mismatch is not None:
        return mismatch
    random = _random_mismatch(expected, outputs, inputs_after)
    if isinstance(random, Mismatch):
        return random
    wanted = {} if random or expected.batch.reference.undefined else values()
    subjects = list(subjects_of(expected.call, wanted, outputs, inputs_after))
    changes: list[Change | LostSigns] = [
        *(Change(position, expected, inputs_after[position]) for position in kept(expected)),
        *_signs_to_keep(expected, outputs, inputs_after),
    ]
    tallies = [tally(subject) for subject in subjects]
    counts = [torch.nn.functional.pad(change.count().reshape(1), (0, TALLIED - 1)) for change in changes]
    rows = torch.stack([*tallies, *counts]).tolist() if subjects or changes else []
    errors = ErrorStatistics(0.0, 0.0, 0.0, 0.0)
    for subject, (beyond, *statistics, rms, bias) in zip(subjects, rows, strict=False):
        if beyond and _is_right_among_ties(expected, subject, outputs):
            continue
        found = statistics_of(*statistics) if beyond == 0 else closer_look(subject)
        found = judge_errors_together(subject, found, rms, bias) if isinstance(found, ErrorStatistics) else found
        if isinstance(found, Mismatch):
            return found
        errors = worst_of(errors, found)
    for change, row in zip(changes, rows[len(subjects) :], strict=True):
        if row[0]:
            return change.mismatch()
    return Agreement(errors)


def compare_many(
    expected: Sequence[Expected], outputs: Sequence[Sequence[Any]], inputs_after: Sequence[Sequence[torch.Tensor]]
) -> Agreement | Mismatch:
    """Compare several calls of one case. Calls whose results are close to torch's need no full comparison.

    A difference on planted values counts only if torch agrees with itself there. A difference in a gradient counts only
    where no slope jumps. Slopes jump at equal values, for example, which may also be drawn.
    """
    errors = UNKNOWN
    for call in _calls_to_compare(expected, outputs, inputs_after):
        _check_whether_it_draws(expected[call])
        found = compare(expected[call], outputs[call], inputs_after[call])
        got: Sequence[Any] | None = outputs[call]
        if isinstance(found, Mismatch) and may_be_discontinuous(expected[call]):
            got = with_reference_at_jumps(expected[call], outputs[call])
            found = found if got is None else compare(expected[call], got, inputs_after[call])
        if isinstance(found, Mismatch) and expected[call].call.planted and not _has_random_plan(expected[call]):
            found = Agreement(UNKNOWN) if got is None else _reconsidered(found, expected[call], got, inputs_after[call])
        if isinstance(found, Mismatch):
            return replace(found, call=call)
        errors = worst_of(errors, found.errors)
    return Agreement(errors, len(expected))


def _reconsidered(
    found: Mismatch, expected: Expected, outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor]
) -> Agreement | Mismatch:
    """Compare a mismatch on planted values again, without elements where torch disagrees with itself or is excused."""
    if plan_accepts_any_result(expected):
        return Agreement(UNKNOWN)
    if not reference_is_consistent(expected):
        consistent = with_reference_where_inconsistent(expected, outputs, inputs_after)
        if consistent is None:
            return Agreement(UNKNOWN)
        outputs, inputs_after = consistent
        again = compare(expected, outputs, inputs_after)
        if isinstance(again, Agreement):
            return again
        found = again
    if found.reason not in ("nonfinite", "mutation") and not excuses_numbers(expected):
        return found
    return compare(expected, *with_reference_where_excused(expected, outputs, inputs_after))


def _calls_to_compare(
    expected: Sequence[Expected], outputs: Sequence[Sequence[Any]], inputs_after: Sequence[Sequence[torch.Tensor]]
) -> list[int]:
    """Indices of the calls that screening does not accept, to be compared in full.

    It waits for a device twice, whatever the number of calls and results.
    """
    passed = list(screened(expected, outputs, inputs_after))
    signs = {
        call: _signs_to_keep(expected[call], outputs[call], inputs_after[call])
        for call, right in enumerate(passed)
        if right
    }
    checks = [(call, each) for call, all_signs in signs.items() for each in all_signs]
    counts = torch.stack([each.count() for _, each in checks]).tolist() if checks else []
    lost = {call for (call, _), count in zip(checks, counts, strict=True) if count}
    return [call for call, right in enumerate(passed) if not right or call in lost]


def _signs_to_keep(expected: Expected, outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor]) -> list[LostSigns]:
    """Checks that zeros keep their sign, for operators that only move values. Empty for calls with planted values."""
    if expected.call.planted or not expected.batch.reference.only_moves(expected.call):
        return []
    native = {place: tensor[expected.index] for place, tensor in expected.batch.evaluation.tensors.items()}
    return signs_to_keep(native, outputs, inputs_after)


def _is_right_among_ties(expected: Expected, subject: Subject, outputs: Sequence[Any]) -> bool:
    """Whether a result that differs is another right choice among equal values."""
    first = outputs[0] if outputs else None
    return ties.accepts(expected.call, subject.place, subject.got, subject.values.native, first)


def _check_whether_it_draws(expected: Expected) -> None:
    """Find out whether the reference draws random numbers in this call, although it did not in earlier calls.

    If a random result were compared by value, torch's own result would also differ from its float64 result, and this
    difference would widen the bound.
    """
    random_results = expected.batch.reference.random_results
    if random_results is not None and random_results.draws_nothing:
        random_results.check_draws_nothing_again(expected.call)


def _has_random_plan(expected: Expected) -> bool:
    """Whether the call has a plan for random results, which are compared with draws of the reference."""
    plan = plan_of(expected.call)
    return plan is not None and plan.policy.when is When.RANDOM_RESULTS


def _random_mismatch(
    expected: Expected, outputs: Sequence[Any], inputs_after: Sequence[torch.Tensor]
) -> Mismatch | bool:
    """Judge random results. Return a mismatch; True if they are right; False if no random numbers are drawn."""
    random_results, tensors = expected.batch.reference.random_results, expected.batch.evaluation.tensors
    if random_results is None or random_results.draws_nothing:
        return False
    if _has_random_plan(expected):
        text = random_results.attention_dropout_mismatch_text(expected.call, outputs)
        return True if text is None else Mismatch("values", f"output 0: {text}", wrong=WrongResult(text=text))
    in_full = random_results.next_call_in_full() or expected.with_bounds
    elements = max((tensor[0].numel() for tensor in tensors.values()), default=0)
    if in_full:
        draws = random_results.draws(expected.call, elements)
    else:
        one = {place: tensor[expected.index].unsqueeze(0) for place, tensor in tensors.items()}
        draws = random_results.with_further_draws(expected.call, one) if random_results.examines_dependence() else one
    if draws is None:
        return False
    found = random_results.mismatch_text(expected.call, draws, outputs, inputs_after, in_full)
    if found is None:
        return True
    place, text = found
    reason: Reason = "values" if place.kind == "output" else "mutation"
    wrong = WrongResult(kind=place.kind, position=place.position, text=text)
    return Mismatch(reason, f"{place.kind} {place.position}: {text}", wrong=wrong)
