"""Small nouns for the tests of runs, reports and the command line."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.schema import (
    Agrees,
    Block,
    Case,
    Cheated,
    Crashed,
    Disagrees,
    ErrorStatistics,
    Implementation,
    Isolation,
    Job,
    Layer,
    Measurement,
    Missing,
    Normal,
    Record,
    SourceFile,
    SourceFiles,
    Tensor,
    TimedOut,
    Unjudged,
    Unsupported,
    Verdict,
)
from torchstone.suites.case_cache import Entry, Index, Part, PlacedCase, Prepared
from torchstone.suites.opinfo import OpInfoSuite

AGREES = Agrees(ErrorStatistics(1e-6, 2e-6, 0.25, 0.2), calls_verified=3)
VERDICTS: tuple[Verdict, ...] = (
    AGREES,
    Disagrees("check", "values", "at [0]: got 1, expected 2", ErrorStatistics(1.0, 0.5, 1e4, 0.2)),
    Cheated("measure", "clock", "claimed 1 ns, the slope says 100 ns"),
    Crashed("check", "exception", "ValueError: no", traceback="Traceback …\nValueError: no"),
    TimedOut("compile", 10.0, 10.5),
    Unsupported("candidate", "no float64"),
    Unsupported("reference", "not on this device"),
    Missing("backend 'x' offers nothing"),
    Unjudged("the judge died twice"),
)


def keep_opinfo(*cases: Case) -> None:
    """Lay these cases down as if they were all that OpInfo's samples call, on the CPU in float32."""
    by_operator: dict[str, list[PlacedCase]] = {}
    for number, item in enumerate(cases):
        by_operator.setdefault(item.operator, []).append(PlacedCase(item, (0, 0, number)))
    parts = {name: Part(name, tuple(placed)) for name, placed in by_operator.items()}
    index = Index((Entry("made", 0, tuple(by_operator)),))
    OpInfoSuite()._cached_catalogue("cpu", "float32").write(Prepared(index, parts))


def case(operator: str = "aten.relu.default", size: int = 4, timed: bool = False) -> Case:
    return Case("listed", operator, (Tensor((size,), "float32", Normal()),), timed=timed)


def implementation(operator: str = "aten.relu.default", text: str = "def f(x): return x") -> Implementation:
    return Implementation("listed", operator, SourceFiles((SourceFile("f.py", text),), "f", "f.py"))


def measurement(candidate_ns: float = 5000, reference_ns: float = 10000, rounds: int = 5) -> Measurement:
    """Blocks whose slopes, with a shim of 1000 ns taken off, are the given times."""
    blocks = [
        Block(number, party, calls, round(20_000 + calls * (own + 1000)), round(calls * own))
        for number in range(rounds)
        for party, own in (("candidate", candidate_ns), ("reference", reference_ns), ("shim", 0))
        for calls in (1, 24)
    ]
    return Measurement("blocks-less-shim", tuple(blocks), 1, 2, threads=1, distinct_inputs=2, bytes_per_call=32)


def record(
    verdict: Verdict = AGREES,
    *,
    of: Case | None = None,
    measured: Measurement | None = None,
    layers: Sequence[str] = ("processes",),
) -> Record:
    chosen = of or case()
    job = Job(chosen, implementation(chosen.operator))
    return Record(
        job_key=job.key,
        case=chosen,
        implementation=job.implementation.reference,
        verdict=verdict,
        manifest_key="manifest",
        device="cpu",
        isolation=Isolation("best", tuple(Layer(name, True) for name in layers)),
        measurement=measured,
    )
