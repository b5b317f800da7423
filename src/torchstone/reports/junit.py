"""Formats a run as JUnit XML for CI servers: a test suite per operator and backend, a test case per judged case."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree

from torchstone.reports.case_results import CaseResult
from torchstone.reports.operator_summary import OperatorSummary
from torchstone.reports.report import RunReport
from torchstone.reports.safe_text import counted, one_line, printable_lines
from torchstone.reports.slowest_cases import seconds_of
from torchstone.schema import Agrees, Crashed, Missing, Record, Unjudged, Unsupported, Verdict, explain, verdict_name

_OUTCOMES = ("failure", "error", "skipped")


def junit_xml(report: RunReport) -> bytes:
    """The document as bytes. Control characters in texts of kernels are escaped, because XML cannot contain them."""
    root = ElementTree.Element("testsuites", name="torchstone")
    compares = report.summary.compares
    for item in report.summary.operators:
        root.append(_suite(item, [result for result in report.results if _belongs(result, item, compares)], compares))
    _count(root, root.iter("testcase"))
    if report.summary.run is not None and report.summary.run.began is not None:
        for suite in root:
            suite.set("timestamp", report.summary.run.began)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _belongs(result: CaseResult, item: OperatorSummary, compares: bool) -> bool:
    backend = result.record.implementation.backend
    return result.record.case.operator == item.operator and (not compares or backend == item.backend)


def _suite(item: OperatorSummary, results: Iterable[CaseResult], compares: bool) -> ElementTree.Element:
    name = f"{item.operator} [{item.backend}]" if compares else item.operator
    suite = ElementTree.Element("testsuite", name=one_line(name))
    for result in results:
        suite.append(_case(result.record, name))
    if item.not_judged:
        what = f"{counted(item.not_judged, 'case')} not judged"
        case = ElementTree.SubElement(suite, "testcase", classname=one_line(name), name=what, time="0")
        ElementTree.SubElement(case, "error", message=f"{what}: the run was stopped before", type="not judged")
    _count(suite, suite.iter("testcase"))
    return suite


def _case(record: Record, suite: str) -> ElementTree.Element:
    time = f"{seconds_of(record):.6f}"
    case = ElementTree.Element("testcase", classname=one_line(suite), name=one_line(record.case.label), time=time)
    verdict = record.verdict
    if not isinstance(verdict, Agrees):
        attributes = {"message": one_line(explain(verdict), limit=1000), "type": verdict_name(verdict)}
        outcome = ElementTree.SubElement(case, _outcome(verdict), attributes)
        if isinstance(verdict, Crashed) and verdict.traceback:
            outcome.text = "\n".join(printable_lines(verdict.traceback))
    if record.log_tail:
        ElementTree.SubElement(case, "system-out").text = "\n".join(printable_lines(record.log_tail))
    return case


def _outcome(verdict: Verdict) -> str:
    """The JUnit element: `failure` of a kernel, `error` of Torchstone, `skipped` for cases that test no kernel."""
    match verdict:
        case Unjudged():
            return "error"
        case Missing() | Unsupported(by="reference" | "device"):
            return "skipped"
        case _:
            return "failure"


def _count(parent: ElementTree.Element, cases: Iterable[ElementTree.Element]) -> None:
    """Set the attributes that CI servers read: the number of tests, the number of each outcome, and the seconds."""
    listed = list(cases)
    parent.set("tests", str(len(listed)))
    for outcome, attribute in zip(_OUTCOMES, ("failures", "errors", "skipped"), strict=True):
        parent.set(attribute, str(sum(case.find(outcome) is not None for case in listed)))
    parent.set("time", f"{sum(float(case.get('time', '0')) for case in listed):.6f}")
