"""Whether each check is worth its cost: what input plans, variants and checks of random draws take, and what they find.

    python benchmarks/plans.py cost [--source PATH] [--device cpu|cuda] [--effort quick]
    python benchmarks/plans.py catches [--only ID,ID] [--json PATH]

``cost`` judges 40 cases of torch against itself: recorded calls of models if ``--source`` names their file, else cases
of the suite smoke. It prints the time of a check, how often a job meets each plan and each kind of variant, and the
time of one use. On the CPU that is the judge's own processor time, on CUDA elapsed time.

``catches`` calls the wrong kernels of the red-team corpus on the CPU with every plan that applies, every kind of
variant and every check of random draws, without stopping at the first mismatch. A kernel counts for a check if no
other check finds it, nor the plain calls. A check finds a kernel if three of four of its uses do, since a job has about
one. Each kernel runs in a process of its own and without a sandbox. So only
families are judged whose kernels compute something wrong or draw nothing new; the others are for guards to find.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import multiprocessing
import os
import random
import secrets
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import torch

from torchstone import operators, schema
from torchstone.calls.draw_arguments import DrawnCall, draw_calls
from torchstone.errors import TorchstoneError
from torchstone.judge_process import variant_checks
from torchstone.judge_process.job_retries import judge
from torchstone.judge_process.measuring_lane import MeasuringLane
from torchstone.judge_process.resources import JudgeResources
from torchstone.judging import Agreement, Expected, Reference, ReferenceFailure, compare_many, draw_call
from torchstone.judging.plans import PLANS, Plan
from torchstone.judging.planting import planted_calls as planting
from torchstone.judging.planting.tiny_calls import TinyCall
from torchstone.judging.stochastic import dependence, distribution, repeated_arguments, result_relations, reused_draws
from torchstone.judging.stochastic.value_rates import Rates
from torchstone.judging.variants import pool, sizes
from torchstone.judging.variants.expanded_memory import expanded
from torchstone.judging.variants.gradient_variants import with_varied_cotangents
from torchstone.judging.variants.scalars import rescalings
from torchstone.judging.variants.unequal_sizes import more_and_fewer_keys
from torchstone.judging.variants.validity import is_valid
from torchstone.measuring.ceilings import DeviceCeilings
from torchstone.measuring.device_state import DeviceProbe
from torchstone.measuring.kept_ceilings import KeptCeilings
from torchstone.redteam import Fixture, read_corpus
from torchstone.redteam.fixture_inputs import CASES
from torchstone.suites.base import CaseQuery
from torchstone.suites.smoke import SmokeSuite
from torchstone.suites.torchbench import TraceSuite
from torchstone.supervisor.worker_pool import WorkerOptions, WorkerPool
from torchstone.worker.loading import load

CPU = torch.device("cpu")
CASES_TIMED = 40
MOST_ELEMENTS = 1 << 18
"""Elements of a recorded call that is timed here: larger ones take minutes on a CPU."""
_USES = 3
"""Uses of a check that are timed for each case."""
_SEEDS = 4
"""Uses of each plan, and of each kind of variant, that a wrong kernel meets."""
_FINDS = 3
"""Of these uses, so many must find it."""
_PLAIN_CALLS = 8
_RANDOM_BLOCKS = 8
_SECONDS_OF_KERNEL = 120
_FAMILIES = frozenset({18, 42, 44, 45, 46, 47, 52})
"""Of the corpus: reused draws, quick ways for large shapes, constants, precision, work left out, other inputs …"""
PLAIN = "plain calls"
_RANDOM_CHECKS: dict[str, tuple[Any, str]] = {
    "distribution": (distribution, "mismatch_text"),
    "value rates": (Rates, "mismatch_text"),
    "dependence": (dependence.Dependence, "mismatch_text"),
    "relations": (result_relations.Relations, "mismatch_text"),
    "repeated arguments": (repeated_arguments.Repeats, "mismatch_text"),
    "reused: likeness": (reused_draws._Likeness, "mismatch_text"),
    "reused: neighbours": (reused_draws._Neighbours, "mismatch_text"),
    "reused: values": (reused_draws._Values, "mismatch_text"),
}
"""Checks of random operators, by where they are."""


# What checks take.


def timed_cases(source: str | None) -> list[schema.Case]:
    """Of each operator the largest case that is small enough, for as many operators as are asked for."""
    query = CaseQuery(source=source)
    cases = TraceSuite().cases(query) if source else SmokeSuite().cases(query)
    by_operator: dict[str, list[schema.Case]] = defaultdict(list)
    for case in cases:
        by_operator[case.operator].append(case)
    most = math.inf if source is None else MOST_ELEMENTS
    small = [[case for case in found if _elements(case) <= most] for found in by_operator.values()]
    chosen = [max(found, key=lambda case: (_elements(case), case.key)) for found in small if found]
    every = max(1, len(chosen) // CASES_TIMED)
    return sorted(chosen, key=lambda case: case.operator)[::every][:CASES_TIMED]


def _elements(case: schema.Case) -> int:
    return sum(math.prod(recipe.shape) for recipe in schema.tensors_of(case))


class Clock:
    """Processor time of this process on the CPU, elapsed time on a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def now(self) -> float:
        if self._device.type == "cpu":
            return time.process_time()
        torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def milliseconds(self, action: Callable[[], object]) -> float:
        action()  # what is done once per process
        took = []
        for _ in range(_USES):
            began = self.now()
            action()
            took.append((self.now() - began) * 1e3)
        return statistics.median(took)


@contextlib.contextmanager
def opened(device_type: str) -> Iterator[JudgeResources]:
    """A judge in this process."""
    workers = WorkerPool(WorkerOptions(device_type=device_type))
    workers.start()
    device = CPU if device_type == "cpu" else torch.device("cuda", 0)
    ceilings = DeviceCeilings(device, 1, (), KeptCeilings(None))
    resources = JudgeResources(workers, MeasuringLane(device_type), device, 1, DeviceProbe(device_type), ceilings)
    try:
        yield resources
    finally:
        resources.close()


@contextlib.contextmanager
def counted(uses: Counter[str], spent: Counter[str], clock: Clock) -> Iterator[None]:
    """How often jobs meet each plan and kind of variant; how long all variants take, and each check of random draws."""
    schedule, one = planting.schedule, pool.VariantPool._variant_of_kind

    def timed(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            began = clock.now()
            try:
                return original(*given, **named)
            finally:
                spent[name] += (clock.now() - began) * 1e3
                uses[name] += 1

        return call

    def chosen(*given: Any, **named: Any) -> list[Plan]:
        found = schedule(*given, **named)
        uses.update(f"plan {plan.name}" for plan in found)
        return found

    def variant(self: Any, case: schema.Case, kind: sizes.Kind, *given: Any, **named: Any) -> schema.Case | None:
        found = one(self, case, kind, *given, **named)
        uses[_kind_name(kind)] += found is not None
        return found

    patches: list[tuple[Any, str, Any]] = [
        (planting, "schedule", chosen),
        (pool.VariantPool, "_variant_of_kind", variant),
        (
            variant_checks.HiddenVariants,
            "_evaluate",
            timed("answers of a variant", variant_checks.HiddenVariants._evaluate),
        ),
        (variant_checks, "hidden_cases", timed("making variants", variant_checks.hidden_cases)),
    ]
    patches += [(owner, name, timed(check, getattr(owner, name))) for check, (owner, name) in _RANDOM_CHECKS.items()]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(mock.patch.object(*patch))
        yield


def _kind_name(kind: sizes.Kind) -> str:
    return f"variant {kind.__name__.strip('_')}"


def time_checks(
    resources: JudgeResources, cases: Sequence[schema.Case], effort: schema.Effort
) -> dict[str, list[float]]:
    """Milliseconds of the stage ``check`` and of the whole job, and the uses of each check in it."""
    uses: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    found: dict[str, list[float]] = defaultdict(list)
    clock = Clock(resources.device)
    for case in cases:
        native = schema.Implementation(
            "aten", case.operator, schema.ImportPath("torch", f"ops.{case.operator}"), "aten"
        )
        with counted(uses, spent, clock):
            began = clock.now()
            record = judge(schema.Job(case, native, effort=effort, measured=False), resources, "benchmark", "", "best")
        if isinstance(record.verdict, schema.Agrees):
            found["job"].append((clock.now() - began) * 1e3)
            found[f"check {case.operator} {case.key}"] = [record.stage_seconds["check"] * 1e3]
    jobs = len(found["job"])
    found |= {f"spent {name}": [took / jobs] for name, took in spent.items()}
    return found | {f"uses {name}": [count / jobs] for name, count in uses.items()}


def cost_of_uses(case: schema.Case, device: torch.device) -> Iterator[tuple[str, float]]:
    """Milliseconds of one use of each plan and kind of variant on a case, its two evaluations by torch included."""
    clock = Clock(device)
    reference = Reference(case, device)
    try:
        usual = reference.expect(draw_call(case, 1, device))
    except ReferenceFailure:
        return
    yield PLAIN, clock.milliseconds(lambda: _agrees(reference, draw_calls(case, secrets.randbits(63), 1, device)))
    for plan in _applying(usual):
        yield f"plan {plan.name}", clock.milliseconds(lambda plan=plan: _planted(reference, plan))  # type: ignore[misc]
    for name, make in variant_makers(case).items():
        yield f"variant {name}", clock.milliseconds(lambda make=make: _judged_variant(make, usual))  # type: ignore[misc]


def _applying(usual: Expected) -> list[Plan]:
    facts = planting.facts_of(usual.call.case, usual)
    return [] if usual.batch.reference.undefined else [*PLANS.applying(facts), *PLANS.on_request(facts)]


def _agrees(reference: Reference, calls: Sequence[DrawnCall]) -> None:
    with contextlib.suppress(ReferenceFailure):
        expected = reference.expect_many(calls)
        again = reference.expect_many(calls)
        outputs = [[output.native for output in each.outputs] for each in again]
        compare_many(expected, outputs, [each.inputs_after for each in again])


def _planted(reference: Reference, plan: Plan) -> None:
    seed = secrets.randbits(63)
    if plan.makes_own_call:
        TinyCall(reference, seed).expected_results()
    else:
        _agrees(reference, [plan.plant(draw_call(reference.case, seed, reference.device))])


def _judged_variant(make: Callable[[random.Random], list[schema.Case]], usual: Expected) -> None:
    """Made, tried, and called twice, the first time in full."""
    stated = usual.batch.reference
    for variant in make(random.Random(secrets.randbits(63)))[:1]:
        reference = Reference(variant, stated.device, stated=stated)
        with contextlib.suppress(TorchstoneError):
            _agrees(reference, draw_calls(variant, secrets.randbits(63), 2, stated.device))


def print_costs(source: str | None, device_type: str, effort: schema.Effort) -> None:
    """A table of what a job meets, and what it takes."""
    cases = timed_cases(source)
    with opened(device_type) as resources:
        time_checks(resources, cases[:4], effort)  # what is done once per process
        found = time_checks(resources, cases, effort)
        uses_ms: dict[str, list[float]] = defaultdict(list)
        for case in cases:
            for name, took in cost_of_uses(case, resources.device):
                uses_ms[name].append(took)
        draws = time_checks(resources, _random_cases(), effort)
    whole = _print_totals(found, effort)
    print(
        "| check | cases | ms a use | uses a job | ms a job | share of a check |\n| --- | --- | --- | --- | --- | --- |"
    )
    for name, times in uses_ms.items():
        mean = statistics.fmean(times)
        _print_row(name, len(times), mean, found.get(f"uses {name}", [0.0])[0], whole)
    for name in ("answers of a variant", "making variants"):
        _print_spent(name, found, whole)
    print("\nrandom operators: ", end="")
    whole = _print_totals(draws, effort)
    for name in _RANDOM_CHECKS:
        _print_spent(name, draws, whole)


def _random_cases() -> list[schema.Case]:
    """Those of the corpus whose operators draw."""
    found = (case for case in CASES.values() if case.model is None and operators.traits(case.operator).may_draw)
    return [msgspec.structs.replace(case, suite="plans") for case in found]


def _print_totals(found: Mapping[str, Sequence[float]], effort: schema.Effort) -> float:
    """Mean milliseconds of a check."""
    checks = {name: times[0] for name, times in found.items() if name.startswith("check ")}
    others = [took for name, took in checks.items() if "convolution_backward" not in name]
    print(
        f"{len(checks)} cases, effort {effort}: check median {statistics.median(checks.values()):.1f} ms, "
        f"total without convolution_backward {sum(others):.0f} ms, whole job {statistics.median(found['job']):.1f} ms"
    )
    return statistics.fmean(checks.values())


def _print_spent(name: str, found: Mapping[str, Sequence[float]], whole: float) -> None:
    uses, spent = found.get(f"uses {name}", [0.0])[0], found.get(f"spent {name}", [0.0])[0]
    _print_row(name, len(found["job"]), spent / uses if uses else 0.0, uses, whole)


def _print_row(name: str, cases: int, use_ms: float, uses: float, whole_ms: float) -> None:
    job_ms = uses * use_ms
    print(f"| {name} | {cases} | {use_ms:.2f} | {uses:.2f} | {job_ms:.2f} | {job_ms / whole_ms:.1%} |")


# What checks find.


def variant_makers(case: schema.Case) -> dict[str, Callable[[random.Random], list[schema.Case]]]:
    """For each way to vary a case, what makes variants that torch takes."""

    def of_kind(kind: sizes.Kind) -> Callable[[random.Random], list[schema.Case]]:
        return lambda random_: _valid(sizes.options(case, kind, random_), random_)

    makers = {_kind_name(kind).removeprefix("variant "): of_kind(kind) for kind in (*sizes.ALWAYS, *sizes.KINDS)}
    makers["other numbers"] = lambda random_: _valid(rescalings(case, random_, boldly=True), random_)
    makers["expanded"] = lambda random_: _valid([each for each in (expanded(case, random_),) if each], random_)
    if schema.is_gradient(case.operator):
        makers["cotangents"] = lambda random_: _valid([with_varied_cotangents(case, random_, frozen=True)], random_)
    makers["causal keys"] = lambda random_: _valid(more_and_fewer_keys(case, random_), random_)
    makers["stated magnitude"] = lambda random_: [
        way for ways in pool.stated_size_cases(case, random_) for way in _valid(ways, random_)
    ]
    return makers


def _valid(options: Sequence[schema.Case], random_: random.Random) -> list[schema.Case]:
    return [pool.hidden(each) for each in options if is_valid(each, random_.getrandbits(63))][:1]


class Candidate:
    """A wrong kernel in this process."""

    def __init__(self, fixture: Fixture, case: schema.Case, folder: Path) -> None:
        source = schema.SourceFiles((schema.SourceFile(f"{fixture.id}.py", fixture.text),), "kernel", fixture.id)
        origin = source if case.model is None else schema.with_problem(source, case.model)
        self._call = load(schema.Implementation("redteam", case.operator, origin), folder)

    def is_caught(self, expected: Sequence[Expected]) -> bool:
        """Whether it raises, or one of its results is not what it must be."""
        found: list[list[Any]] = []
        after: list[list[torch.Tensor]] = []
        for each in expected:
            storages = [tensor.storage.clone() for tensor in each.call.tensors]
            views = [
                operators.view_of(*pair) for pair in zip(storages, each.batch.reference.evaluator.recipes, strict=True)
            ]
            args, kwargs = operators.build_arguments(each.call.case, views, CPU)
            try:
                outputs = operators.flatten_outputs(self._call(*args, **kwargs))
            except Exception:  # noqa: BLE001 - whatever a wrong kernel raises
                return True
            # Not detached: a clone, as the judge copies results before it compares.
            found.append([leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in outputs])
            after.append(storages)
        return not isinstance(compare_many(expected, found, after), Agreement)


def caught_by(fixture: Fixture, name: str) -> set[str]:
    """The checks that find a wrong kernel on a case of the corpus."""
    case = CASES[name]
    found: set[str] = set()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        reference = Reference(case, CPU)  # registers models and gradients
        candidate = Candidate(fixture, case, Path(folder))
        if reference.random_results is not None:
            return _caught_by_random_checks(reference, candidate)
        usual = reference.expect(draw_call(case, 1, CPU))
        for seed in range(_PLAIN_CALLS):
            expected = reference.expect_many(draw_calls(case, 100 + seed, 2, CPU), with_bounds=True)
            found |= {PLAIN} if candidate.is_caught(expected) else set()
        found |= {f"plan {plan.name}" for plan in _applying(usual) if _finds(plan, reference, candidate)}
        for way, make in variant_makers(case).items():
            found |= _caught_on(way, make, usual, candidate, known=frozenset(found))
    return found


def _finds(plan: Plan, reference: Reference, candidate: Candidate) -> bool:
    found = 0
    for seed in range(_SEEDS):
        if plan.makes_own_call:
            expected = TinyCall(reference, seed).expected_results()
        else:
            expected = planting._expected_results(reference, [plan.plant(draw_call(reference.case, seed, CPU))])
        found += candidate.is_caught(expected)
    return found >= _FINDS


def _caught_on(
    way: str,
    make: Callable[[random.Random], list[schema.Case]],
    usual: Expected,
    candidate: Candidate,
    known: frozenset[str],
) -> set[str]:
    """Of variants, plain calls first; a plan counts there only if nothing finds the kernel on the stated case."""
    plain = 0
    planted: Counter[str] = Counter()
    for seed in range(_SEEDS):
        for variant in make(random.Random(seed)):
            reference = Reference(variant, CPU, stated=usual.batch.reference)
            with contextlib.suppress(TorchstoneError):
                expected = reference.expect_many(draw_calls(variant, seed, 2, CPU), with_bounds=True)
                plain += candidate.is_caught(expected)
                plans = [] if known or plain else _applying(expected[0])
                planted.update(plan.name for plan in plans if _finds(plan, reference, candidate))
    if plain >= _FINDS:
        return {f"variant {way}"}
    return {f"variant {way} and plan {name}" for name, count in planted.items() if count >= _FINDS}


def _caught_by_random_checks(reference: Reference, candidate: Candidate) -> set[str]:
    """Every check of random draws sees every call."""
    found: set[str] = set()

    def seen_by(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def check(*given: Any, **named: Any) -> None:
            if original(*given, **named) is not None:
                found.add(f"random {name}")

        return check

    with contextlib.ExitStack() as stack:
        for name, (owner, method) in _RANDOM_CHECKS.items():
            stack.enter_context(mock.patch.object(owner, method, seen_by(name, getattr(owner, method))))
        for block in range(_RANDOM_BLOCKS):
            calls = draw_calls(reference.case, block, 4, CPU)
            assert reference.random_results is not None
            expected = reference.expect_many(reference.random_results.with_inserted_repeats(calls), with_bounds=True)
            if candidate.is_caught(expected):
                found.add("random others")
            planted = planting.planted_calls(expected[0], block)
            if planted and candidate.is_caught(planted):
                found.add(f"plan {PLANS.named(planted[0].call.planted).name}")
    return found


def judged_fixtures(only: str | None) -> list[tuple[Fixture, str]]:
    """The wrong kernels that can be called without a sandbox, with their cases."""
    ids = None if only is None else set(only.split(","))
    return [
        (fixture, name)
        for fixture in read_corpus()
        if fixture.device == "cpu"
        and fixture.kind == "cheat"
        and (ids is None or fixture.id in ids)
        and not _FAMILIES.isdisjoint(fixture.families)
        for name, expected in fixture.expected.items()
        if expected[0].verdict == "disagrees"
    ]


def _in_a_process(pair: tuple[str, str], answers: Any) -> None:
    torch.set_num_threads(1)
    fixture = next(each for each in read_corpus() if each.id == pair[0])
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a kernel prints
    answers.put(sorted(caught_by(fixture, pair[1])))


def print_catches(only: str | None, target: Path | None) -> None:
    """A table of the kernels that each check finds, and finds alone."""
    context = multiprocessing.get_context("fork")
    found: dict[str, list[str]] = {}
    for fixture, name in judged_fixtures(only):
        answers = context.SimpleQueue()
        process = context.Process(target=_in_a_process, args=((fixture.id, name), answers), daemon=True)
        process.start()
        process.join(_SECONDS_OF_KERNEL)
        process.kill()
        found[f"{fixture.id} {name}"] = answers.get() if not answers.empty() else ["crashed"]
        print(f"{fixture.id} {name}: {', '.join(found[f'{fixture.id} {name}'])}", flush=True)
    if target is not None:
        target.write_bytes(msgspec.json.encode(found))
    for row in rows_of(found):
        print(row)


def rows_of(found: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A find on a planted variant counts for the plan and for the variant: without either there would be none."""
    alone: dict[str, list[str]] = defaultdict(list)
    together: Counter[str] = Counter()
    for kernel, checks in found.items():
        parts = [frozenset(check.split(" and ")) for check in checks]
        together.update(frozenset().union(*parts))
        for part in frozenset.intersection(*parts) if parts else ():
            alone[part].append(kernel)
    yield "| check | wrong kernels found | found by nothing else |\n| --- | --- | --- |"
    for check, count in together.most_common():
        yield f"| {check} | {count} | {len(alone[check])}: {', '.join(alone[check])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cost", "catches"])
    parser.add_argument("--source", help="file of recorded calls, as of the suite torchbench")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--effort", choices=["quick", "normal", "thorough"], default="quick")
    parser.add_argument("--only", help="ids of fixtures, with commas between them")
    parser.add_argument("--json", type=Path, help="file for what each wrong kernel is found by")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "cost":
        print_costs(options.source, options.device, options.effort)
    else:
        print_catches(options.only, options.json)


if __name__ == "__main__":
    main()
