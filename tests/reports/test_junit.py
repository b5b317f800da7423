"""The JUnit XML of a run can be parsed, counts what it holds, and says of every case what came of it."""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec

import made_records as making
from torchstone.reports import make_report
from torchstone.reports.junit import junit_xml
from torchstone.schema import (
    Crashed,
    Hardware,
    Manifest,
    Missing,
    PlannedCases,
    PlannedRun,
    Record,
    RunDescription,
    RunPart,
    Software,
    Unjudged,
    Unsupported,
)

RELU, ADD = "aten.relu.default", "aten.add.Tensor"
CRASH = Crashed("check", "exception", "ValueError: \x1b[2Jno", traceback="Traceback …\n  in f\nValueError: \x07no")
RECORDS = [
    msgspec.structs.replace(making.record(of=making.case(RELU, 1)), stage_seconds={"load": 1.5, "check": 0.25}),
    msgspec.structs.replace(making.record(CRASH, of=making.case(RELU, 2)), log_tail="print\x00ed\nlines"),
    making.record(Unjudged("the judge died twice"), of=making.case(RELU, 3)),
    making.record(Unsupported("reference", "not here"), of=making.case(RELU, 4)),
    making.record(Unsupported("candidate", "no float64"), of=making.case(RELU, 5)),
    making.record(Missing("nothing"), of=making.case(ADD, 1)),
]


def described(backend: str | list[str], cases: tuple[PlannedCases, ...]) -> RunDescription:
    configuration = {"suite": "listed", "backend": backend, "device": "cpu"}
    manifest = Manifest(Hardware("cpu", 1, 1), Software("0", "3", "linux"), None, {}, {}, configuration)
    return RunDescription(manifest, PlannedRun(cases, (RunPart(10**18),)))


def parsed(records: list[Record], about: RunDescription | None = None) -> ElementTree.Element:
    return ElementTree.fromstring(junit_xml(make_report(records, (), about)))


def outcomes(suite: ElementTree.Element) -> list[str]:
    return [child.tag for case in suite for child in case if child.tag != "system-out"]


def test_every_case_is_a_test_case_with_its_outcome() -> None:
    root = parsed(RECORDS)
    add, relu = root
    assert (add.get("name"), relu.get("name")) == (ADD, RELU)
    assert outcomes(relu) == ["failure", "error", "skipped", "failure"]
    assert outcomes(add) == ["skipped"]
    assert [relu.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["5", "2", "1", "1"]
    assert [root.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["6", "2", "1", "2"]
    assert (relu[0].get("name"), relu[0].get("time"), relu.get("time")) == ("T([1], f32)", "1.750000", "1.750000")


def test_messages_traceback_and_output_are_there_and_printable() -> None:
    case = parsed(RECORDS)[1][1]
    failure, output = case
    assert failure.get("message") == "check: ValueError: \\x1b[2Jno"
    assert failure.get("type") == "crashed"
    assert failure.text == "Traceback …\n  in f\nValueError: \\x07no"
    assert output.text == "print\\x00ed\nlines"


def test_cases_that_were_not_judged_are_an_error() -> None:
    planned = (
        PlannedCases("listed", RELU, 7),
        PlannedCases("listed", ADD, 1),
        PlannedCases("listed", "aten.mm.default", 3),
    )
    root = parsed(RECORDS, described("listed", planned))
    assert [suite.get("errors") for suite in root] == ["0", "1", "2"]
    assert root[1][0].get("name") == "3 cases not judged"
    assert root[0].get("timestamp") == "2001-09-09T01:46:40+00:00"


def test_several_backends_have_test_suites_of_their_own() -> None:
    first = making.record(of=making.case(RELU, 1))
    reference = msgspec.structs.replace(first.implementation, backend="other")
    second = msgspec.structs.replace(first, job_key="other", implementation=reference)
    root = parsed([first, second])
    assert [suite.get("name") for suite in root] == [f"{RELU} [listed]", f"{RELU} [other]"]
    assert [suite.get("tests") for suite in root] == ["1", "1"]
