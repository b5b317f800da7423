"""Builds the feedback on one kernel from its records, the results of its cases."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from torchstone.api import Evaluation
from torchstone.errors import UsageError
from torchstone.feedback.arguments import arguments_of
from torchstone.feedback.compile_errors import compile_errors, is_compile_error
from torchstone.feedback.failed_cases import failed_cases
from torchstone.feedback.feedback_fields import ArgumentShape, FeedbackInfo
from torchstone.feedback.performance import performance_of, profiled_work
from torchstone.reports import evaluate
from torchstone.schema import Agrees, Cheated, Profile, Record, SourceFiles, Unsupported, tensors_of

_MOST_RIGHT_CASES = 3
"""Most right cases whose arguments are listed if other cases are wrong."""


def feedback_of(
    records: Iterable[Record], *, source: SourceFiles | None = None, profile: Profile | None = None
) -> FeedbackInfo:
    """The feedback on one kernel, for records in any order. ``source`` provides the text of source lines."""
    results = evaluate(records)
    if not results:
        raise UsageError("there is no record: no case of the suite was judged. Choose an operator that the suite has.")
    known = [item.record for item in results]
    right = [record for record in known if isinstance(record.verdict, Agrees)]
    failed = [record for record in known if not isinstance(record.verdict, Agrees) and not _is_excused(record)]
    not_built = [record for record in failed if is_compile_error(record)]
    info = FeedbackInfo(
        operator=known[0].implementation.operator,
        right=bool(right) and not failed,
        cases=len(known),
        right_cases=len(right),
        excused_cases=len(known) - len(right) - len(failed),
        rejected=any(isinstance(record.verdict, Cheated) for record in failed),
        compile_errors=compile_errors(not_built, source),
        failed_cases=failed_cases((record for record in failed if record not in not_built), source),
        right_with=_largest(right) if failed else (),
        performance=performance_of(results),
        profile=profiled_work(profile),
    )
    return _with_speedup(info, right) if info.right else info


def _with_speedup(info: FeedbackInfo, right: list[Record]) -> FeedbackInfo:
    together = Evaluation(info.operator, tuple(right))
    return msgspec.structs.replace(
        info,
        overall_speedup=together.speedup,
        overall_speedup_low=together.speedup_low,
        overall_speedup_high=together.speedup_high,
    )


def _is_excused(record: Record) -> bool:
    return isinstance(record.verdict, Unsupported) and record.verdict.by != "candidate"


def _largest(right: list[Record]) -> tuple[tuple[ArgumentShape, ...], ...]:
    """The arguments of the largest right cases: small ones may be right by chance, and empty ones show nothing."""
    sizes = {record.job_key: sum(math.prod(each.shape) for each in tensors_of(record.case)) for record in right}
    ordered = sorted((record for record in right if sizes[record.job_key]), key=lambda each: -sizes[each.job_key])
    return tuple(arguments_of(record, record.case) for record in ordered[:_MOST_RIGHT_CASES])
