"""Planning puts every case in exactly one place."""

from __future__ import annotations

import itertools

import msgspec
from hypothesis import given
from hypothesis import strategies as st

import made_records as making
from torchstone.runs.plan import Terms, make_plan
from torchstone.schema import Case, Deadlines, Job, Missing, Unjudged, content_key

OPERATORS = ("aten.relu.default", "aten.add.Tensor", "aten.sum.default")
TERMS = Terms("listed")
OFFERS = {OPERATORS[0]: making.implementation(OPERATORS[0]), OPERATORS[1]: making.implementation(OPERATORS[1])}
OFFERS_AND_GAP = {**OFFERS, OPERATORS[2]: None}

chosen_cases = st.lists(st.builds(making.case, st.sampled_from(OPERATORS), st.integers(1, 4)), max_size=12)


@given(chosen_cases, st.sets(st.integers(0, 11)))
def test_every_case_is_a_job_missing_or_done_exactly_once(cases: list[Case], judged: set[int]) -> None:
    fresh = make_plan(cases, OFFERS_AND_GAP, TERMS)
    held = [making.record(of=job.case) for number, job in enumerate(fresh.jobs) if number in judged]
    plan = make_plan(cases, OFFERS_AND_GAP, TERMS, [*held, *fresh.missing[:1]])
    found = [*(job.case.key for job in plan.jobs), *(item.case.key for item in (*plan.missing, *plan.done))]
    assert sorted(found) == sorted({case.key for case in cases})
    assert plan.keys == fresh.keys
    assert plan.total == fresh.total == len(plan.keys)


@given(chosen_cases)
def test_the_jobs_of_an_implementation_follow_each_other(cases: list[Case]) -> None:
    order = [job.implementation.key for job in make_plan(cases, OFFERS_AND_GAP, TERMS).jobs]
    changes = sum(before != after for before, after in itertools.pairwise(order))
    assert changes == max(len(set(order)) - 1, 0)


def test_an_operator_that_the_backend_lacks_gives_one_missing_record_per_case() -> None:
    cases = [making.case(OPERATORS[2], size) for size in (1, 2)]
    plan = make_plan(cases, OFFERS_AND_GAP, TERMS)
    assert plan.jobs == ()
    assert [record.job_key for record in plan.missing] == [content_key("missing", "listed", c.key) for c in cases]
    assert all(isinstance(record.verdict, Missing) for record in plan.missing)
    assert "aten.sum.default" in plan.missing[0].verdict.reason  # type: ignore[union-attr]


def test_an_unjudged_record_is_planned_again() -> None:
    held = making.record(Unjudged("the judge died"))
    plan = make_plan([held.case], OFFERS_AND_GAP, TERMS, [held])
    assert [job.key for job in plan.jobs] == [held.job_key]
    assert plan.done == ()


def test_a_changed_kernel_is_judged_again() -> None:
    held = making.record()
    offers = {OPERATORS[0]: making.implementation(text="def f(x): return x.relu()")}
    plan = make_plan([held.case], offers, TERMS, [held])
    assert len(plan.jobs) == 1
    assert held.job_key not in plan.keys


def test_raising_a_deadline_makes_no_new_job() -> None:
    held = making.record()
    terms = Terms("listed", deadlines=Deadlines(check_seconds=999))
    assert make_plan([held.case], OFFERS_AND_GAP, terms, [held]).jobs == ()


def test_jobs_carry_the_terms_of_the_run() -> None:
    terms = Terms("listed", effort="quick", measured=False)
    (job,) = make_plan([making.case()], OFFERS_AND_GAP, terms).jobs
    assert job == Job(making.case(), OFFERS[OPERATORS[0]], "quick", measured=False)


def test_what_is_judged_is_part_of_a_key_only_where_it_is_not_usual() -> None:
    """Records of earlier versions still count when a run is resumed."""
    case = making.case("aten.relu.default", 8)
    implementation = making.implementation("aten.relu.default")
    usual = Job(case, implementation)
    assert usual.key == content_key(case.key, implementation.key, "normal", True, False)
    others = [Job(case, implementation, shapes="stated"), Job(case, implementation, non_finite="ignore")]
    assert len({usual.key, *(job.key for job in others)}) == 3
    terms = msgspec.structs.replace(TERMS, shapes="stated", non_finite="ignore")
    (job,) = make_plan([case], {case.operator: implementation}, terms).jobs
    assert (job.shapes, job.non_finite) == ("stated", "ignore")
