"""What an author is told: about real records of the commonest failures, and never about more than may be told."""

from __future__ import annotations

import os
import random
import types
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from feedback.common_failures import HERE, KERNELS, judged, stored_feedback, stored_records
from torchstone import Judge
from torchstone.errors import UsageError
from torchstone.feedback import FeedbackInfo, feedback_of
from torchstone.feedback.arguments import gradient_names
from torchstone.feedback.failed_cases import REJECTED
from torchstone.feedback.text import BYTES_PER_TOKEN, LEAST_TOKENS
from torchstone.schema import (
    Agrees,
    Case,
    Cheated,
    Crashed,
    Disagrees,
    Given,
    Normal,
    Profile,
    ProfiledKernel,
    ProfilerResult,
    Record,
    Replay,
    Scalar,
    Sequence,
    Tensor,
    TimedOut,
    Unjudged,
    Unsupported,
    WrongResult,
    encode,
)
from torchstone.suites import input_bytes

ARGUMENT = {"name", "dtype", "shape", "strides", "storage_offset", "contiguous", "value"}
ALLOWED = {
    "ArgumentShape": ARGUMENT,
    "CasePerformance": {
        "operator", "arguments", "kernel_ns", "reference_ns", "speedup", "speedup_low", "speedup_high", "outcome",
        "of_limit_percent", "reference_of_limit_percent", "bound", "notes",
    },
    "CompileError": {"message", "file", "line", "source_line", "output", "cases"},
    "FailedCase": {
        "operator", "problem", "message", "during", "arguments", "is_variant", "values", "wrong", "max_abs_error",
        "max_rel_error", "times_allowed", "file", "line", "source_line", "cases", "also_with",
    },
    "FeedbackInfo": {
        "operator", "right", "cases", "right_cases", "excused_cases", "right_with", "rejected", "compile_errors",
        "failed_cases", "performance", "overall_speedup", "overall_speedup_low", "overall_speedup_high", "profile",
    },
    "ProfiledWork": {"name", "kind", "launches", "share_percent"},
    "WrongElements": {
        "result", "shape", "wrong", "elements", "worst_index", "first_wrong", "last_wrong", "got", "expected", "inputs",
    },
}  # fmt: skip
"""Everything that may be told. A new field belongs here once it is sure that no seed and no hidden value is in it."""
SEED = 8675309_1234567
KINDS = {"NaN", "inf", "-inf", "zero", "positive", "negative", "True", "False", "complex", "a value"}


def structs_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for hint in get_type_hints(kind).values():
            yield from structs_in(hint)
    elif not isinstance(kind, types.NoneType):
        for part in get_args(kind):
            yield from structs_in(part)


def test_feedback_has_the_allowed_fields_and_no_others() -> None:
    assert {kind.__name__: set(kind.__struct_fields__) for kind in structs_in(FeedbackInfo)} == ALLOWED


# ---- the commonest failures


@pytest.mark.parametrize("name", KERNELS)
def test_the_feedback_of_a_common_failure_reads_as_agreed(name: str) -> None:
    path = HERE / "golden" / f"{name}.txt"
    text = stored_feedback(name).to_text() + "\n"
    if os.environ.get("TORCHSTONE_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def problems(info: FeedbackInfo) -> set[str]:
    return {case.problem for case in info.failed_cases}


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(device="cpu", effort="quick") as made:
        yield made


def telling_case(name: str) -> Case:
    """One that the kernel fails whatever is drawn; of a kernel that is right, the timed one."""
    failed = [record for record in stored_records(name) if not isinstance(record.verdict, Agrees)]
    if not failed:
        return next(record.case for record in stored_records(name) if record.case.timed)
    return min(failed, key=lambda each: (each.verdict.stage == "check", -input_bytes(each.case))).case


@pytest.mark.parametrize("name", KERNELS)
def test_the_engine_still_finds_what_the_stored_records_say(judge: Judge, name: str) -> None:
    """On one case: the stored ones are of all."""
    case = telling_case(name)
    kernel, info = KERNELS[name], feedback_of(judged(judge, name, cases=(case,)))
    assert (kernel.problem in problems(info)) == bool(kernel.problem)
    assert bool(info.compile_errors) == (name in ("compile_error", "missing_entry"))
    assert info.right == (name == "slow_but_right")


def test_a_compile_error_names_the_line() -> None:
    (error,) = stored_feedback("compile_error").compile_errors
    assert (error.file, error.line, error.cases) == ("kernel.py", 6, 6)
    assert error.source_line == "return torch.where((x > 0) | torch.isnan(x), x, zeros"


def test_a_wrong_tail_is_told_by_where_it_lies() -> None:
    wrong = stored_feedback("wrong_tail").failed_cases[0].wrong
    assert wrong is not None
    assert wrong.first_wrong is not None
    assert wrong.first_wrong >= wrong.elements // 8 * 8
    assert "all in the last" in stored_feedback("wrong_tail").to_text()


def test_a_slow_kernel_is_told_its_times_its_limit_and_what_it_calls() -> None:
    info = stored_feedback("slow_but_right")
    (case,) = info.performance
    assert info.right
    assert info.overall_speedup == pytest.approx(case.speedup)
    assert case.bound == "memory"
    assert case.of_limit_percent is not None
    assert any("aten._to_copy.default" in note for note in case.notes)


# ---- what may not be told


def test_a_cheat_is_told_that_it_is_rejected_and_nothing_else() -> None:
    info = stored_feedback("cheat")
    assert any(isinstance(record.verdict, Cheated) for record in stored_records("cheat"))
    assert info.rejected
    for case in info.failed_cases:
        assert case == msgspec.structs.replace(case, message=REJECTED, arguments=(), during=None, wrong=None)
    for record in stored_records("cheat"):
        if isinstance(record.verdict, Cheated):
            assert record.verdict.guard not in info.to_text()
            assert record.verdict.message not in info.to_text()


@pytest.mark.parametrize("name", KERNELS)
def test_no_seed_and_no_value_of_a_hidden_call_is_told(name: str) -> None:
    told = encode(stored_feedback(name)).decode()
    for record in stored_records(name):
        replay = getattr(record.verdict, "replay", None)
        if replay is None:
            continue
        assert str(replay.seed) not in told
        if replay.case != record.case or replay.planted:
            wrong = getattr(record.verdict, "wrong", None) or WrongResult()
            for value in (wrong.got, wrong.expected, *wrong.inputs.values()):
                assert len(value) < 4 or f'"{value}"' not in told


def hidden(verdict: Any) -> Record:
    """The first record of relu, with a verdict about a variant of its case."""
    return msgspec.structs.replace(stored_records("wrong_on_nan")[-1], verdict=verdict)


def variant_of(record: Record) -> Replay:
    (tensor,) = record.case.args
    case = msgspec.structs.replace(record.case, args=(msgspec.structs.replace(tensor, shape=(5, 7)), Scalar(0.8125)))
    return Replay(case, SEED)


def told_of(verdict: Any) -> FeedbackInfo:
    return feedback_of([hidden(verdict)])


def test_values_of_a_hidden_call_are_told_by_their_kind() -> None:
    record = stored_records("wrong_on_nan")[-1]
    wrong = WrongResult("output", 0, "", (5, 7), 35, 2, 3, 30, (0, 3), "0.337", "0.4471", {"self": "-0.2239"})
    verdict = Disagrees("check", "values", "…", replay=variant_of(record), wrong=wrong)
    (case,) = told_of(verdict).failed_cases
    assert case.is_variant
    assert case.wrong is not None
    assert {case.wrong.got, case.wrong.expected, *case.wrong.inputs.values()} <= KINDS
    assert case.arguments[0].shape == (5, 7)
    assert case.arguments[1].value == "a float (positive)"
    assert case.max_abs_error is None
    told = encode(case).decode()
    assert not any(secret in told for secret in ("0.337", "0.4471", "0.2239", "0.8125", str(SEED)))


def test_an_exception_in_a_hidden_call_keeps_its_words_and_loses_its_numbers() -> None:
    record = stored_records("wrong_on_nan")[-1]
    trace = (
        'Traceback (most recent call last):\n  File "/scratch/kernel/kernel.py", line 5, in relu_kernel_impl\n'
        "    raise ValueError(x)\nValueError: bad value -0.33719 for 5 rows\n"
    )
    verdict = Crashed("check", "exception", "ValueError: …", trace, replay=variant_of(record))
    (case,) = told_of(verdict).failed_cases
    assert case.message == "ValueError: bad value … for 5 rows"
    assert (case.file, case.line, case.source_line) == ("kernel.py", 5, "raise ValueError(x)")
    loop = msgspec.structs.replace(verdict, traceback=trace.replace("raise ValueError(x)", "for row in rows():"))
    assert told_of(loop).to_text().endswith("\n  at kernel.py, line 5: for row in rows():")


def test_statistics_of_a_hidden_random_result_are_told_without_their_numbers() -> None:
    record = stored_records("wrong_on_nan")[-1]
    wrong = WrongResult(text="the mean is 0.3321; the mean of 24 draws of torch is 0.5, allowed difference 0.013")
    (case,) = told_of(Disagrees("check", "values", "…", replay=variant_of(record), wrong=wrong)).failed_cases
    assert case.message == "output 0: the mean is …; the mean of 24 draws of torch is …, allowed difference …"


def test_what_the_kernel_printed_is_not_told() -> None:
    """It could print the arguments of hidden calls."""
    record = msgspec.structs.replace(stored_records("wrong_on_nan")[-1], log_tail="secret 0.123456")
    assert "0.123456" not in feedback_of([record]).to_text()


def test_given_values_of_arguments_are_not_told() -> None:
    record = stored_records("wrong_on_nan")[-1]
    (tensor,) = record.case.args
    case = msgspec.structs.replace(record.case, args=(msgspec.structs.replace(tensor, fill=Given((41.75,))),))
    assert "41.75" not in encode(feedback_of([msgspec.structs.replace(record, case=case)])).decode()


# ---- the fold


def test_the_order_of_the_records_makes_no_difference() -> None:
    records = stored_records("wrong_on_strides")
    shuffled = random.Random(3).sample(records, len(records))
    assert feedback_of(shuffled) == feedback_of(records)


def test_a_case_that_torch_cannot_compute_says_nothing_about_the_kernel() -> None:
    *records, last = stored_records("slow_but_right")
    info = feedback_of(
        [*records, msgspec.structs.replace(last, verdict=Unsupported("reference", "no"), measurement=None)]
    )
    assert info.right
    assert info.excused_cases == 1


def test_a_case_that_was_not_judged_is_no_fault_of_the_kernel_but_it_is_not_right_either() -> None:
    *records, last = stored_records("slow_but_right")
    info = feedback_of([*records, msgspec.structs.replace(last, verdict=Unjudged("…"), measurement=None)])
    assert not info.right
    assert "says nothing about the kernel" in info.to_text()


def test_a_gradient_is_named_in_words_that_its_author_knows() -> None:
    records = stored_records("wrong_on_nan")
    backward = msgspec.structs.replace(records[-1].case, operator="torchstone_grad.relu.default")
    text = feedback_of([*records, msgspec.structs.replace(records[-1], case=backward)]).to_text()
    assert text.startswith("aten.relu.default: not right.")
    assert "gradient of aten.relu.default): " in text


def test_a_time_out_names_the_limit() -> None:
    (case,) = told_of(TimedOut("check", 60.0, 60.2)).failed_cases
    assert case.message == "the check was not finished after 60 s, and the kernel was stopped"


def test_no_record_is_an_error_in_one_line() -> None:
    with pytest.raises(UsageError, match="no case of the suite was judged"):
        feedback_of([])


def test_a_profile_is_told_by_shares() -> None:
    records = stored_records("slow_but_right")
    kernels = (ProfiledKernel("aten::where", "operator", 10, 3000), ProfiledKernel("aten::isnan", "operator", 5, 1000))
    profile = Profile(
        records[0].case, records[0].implementation, "cpu", 5, 1, 1, "best",
        (ProfilerResult("torch", "profiled", kernels=kernels),), "m", 0, 1,
    )  # fmt: skip
    info = feedback_of(records, profile=profile)
    assert [work.share_percent for work in info.profile] == [75.0, 25.0]
    assert "75.0 % operator aten::where, 10 launches" in info.to_text()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("tokens", [1, LEAST_TOKENS, 100, 150, 400])
def test_the_text_fits_the_allowed_length_and_still_says_what_is_wrong(name: str, tokens: int) -> None:
    info = stored_feedback(name)
    text = info.to_text(tokens)
    assert len(text.encode()) <= max(tokens, LEAST_TOKENS) * BYTES_PER_TOKEN
    assert text.startswith(info.operator)
    assert len(text.split("\n\n")) > 1


def test_an_old_record_without_the_fields_still_gives_feedback() -> None:
    records = [msgspec.structs.replace(each, argument_names=()) for each in stored_records("wrong_on_nan")]
    old = [
        msgspec.structs.replace(each, verdict=msgspec.structs.replace(each.verdict, wrong=None))
        if isinstance(each.verdict, Disagrees)
        else each
        for each in records
    ]
    (case,) = feedback_of(old).failed_cases
    assert case.message == "a wrong result (nonfinite)"
    assert case.arguments[0].name == "argument 0"


def test_a_gradient_is_named_after_its_argument() -> None:
    tensor = Tensor((4,), "float32", Normal())
    case = Case("mine", "torchstone_grad.mul.Tensor", (Sequence((tensor,)), tensor, tensor))
    names = ("cotangents", "self", "other")
    record = msgspec.structs.replace(stored_records("slow_but_right")[0], case=case, argument_names=names)
    assert gradient_names(record, case) == (1, ("self", "other"))
    frozen = msgspec.structs.replace(case, kwargs={"asking": Sequence((Scalar(1),))})
    assert gradient_names(record, frozen) == (1, ("other",))
    forward = Case("mine", "aten.mul.Tensor", (tensor, tensor))
    assert gradient_names(record, forward) == (0, ())
