"""Speeds on devices of several types: told, and never averaged together."""

from __future__ import annotations

from pathlib import Path

import msgspec

import made_records as making
from torchstone.reports.case_results import evaluate
from torchstone.reports.isolation import isolation_in_force
from torchstone.reports.remarks import remarks
from torchstone.reports.summary import summarise_results
from torchstone.schema import Isolation, Layer, Record

ADD = "aten.add.Tensor"


def timed(model: str, operator: str = "aten.relu.default", size: int = 4, backend: str = "test") -> Record:
    made = making.record(of=making.case(operator, size, timed=True), measured=making.measurement())
    named = msgspec.structs.replace(made.implementation, backend=backend)
    return msgspec.structs.replace(made, device_model=model, implementation=named)


def test_cases_of_one_type_have_an_average() -> None:
    summary = summarise_results(evaluate([timed("H100"), timed("H100", size=8), timed("H100", ADD)]))
    assert summary.geomean_speedup is not None
    assert summary.device_types == {"H100": 3}
    assert not remarks(evaluate([timed("H100")]), (), Path("run"))


def test_cases_of_an_operator_on_two_types_have_none() -> None:
    results = evaluate([timed("H100"), timed("A100", size=8), timed("A100", ADD)])
    summary = summarise_results(results)
    by_name = {item.operator: item for item in summary.operators}
    assert by_name["aten.relu.default"].geomean_speedup is None
    assert by_name["aten.relu.default"].reference_ns is None
    assert by_name[ADD].geomean_speedup is not None, "all its cases are of one type"
    assert summary.geomean_speedup is None
    assert summary.device_types == {"A100": 2, "H100": 1}
    (told,) = remarks(results, (), Path("run"))
    assert "devices of several types: A100 (2), H100 (1); speedups are not averaged" in told


def test_backends_timed_on_different_types_have_no_winner() -> None:
    slow, fast = making.measurement(candidate_ns=9000), making.measurement(candidate_ns=2000)
    one = msgspec.structs.replace(timed("H100", backend="one"), measurement=fast)
    other = msgspec.structs.replace(timed("H100", backend="two"), measurement=slow)
    assert any(item.best for item in summarise_results(evaluate([one, other])).operators)
    elsewhere = msgspec.structs.replace(other, device_model="A100")
    assert not any(item.best for item in summarise_results(evaluate([one, elsewhere])).operators)


def test_what_was_held_by_signals_or_copied_is_told() -> None:
    weak = Isolation("best", (Layer("seccomp", True),), "stopped", "copied")
    records = [making.record(), msgspec.structs.replace(making.record(), isolation=weak)]
    words = isolation_in_force(records).words
    assert "1 case frozen by SIGSTOP" in words
    assert "results of 1 case copied by the worker" in words
