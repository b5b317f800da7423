"""Suites whose cases are found on a node: the question, the source's content, and the answer are text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from torchstone import registry
from torchstone.errors import InfrastructureError, UsageError
from torchstone.executors.node_judge import ask_here
from torchstone.schema import decode, encode
from torchstone.suites import CaseQuery, select_cases
from torchstone.suites.remote_suite import Question, SuiteAtNode, answer, content_of


def at_node(module: str, text: str) -> str:
    assert module == "torchstone.suites.remote_suite"
    return encode(answer(decode(text, Question))).decode()


def test_a_suite_at_a_node_has_the_cases_that_it_has_here() -> None:
    query = CaseQuery(operators=("relu", "add"))
    there = select_cases("smoke", SuiteAtNode("smoke", at_node), query)
    here = select_cases("smoke", registry.suites.factory("smoke")(), query)
    assert there == here
    assert there


def test_a_node_answers_in_a_process_of_its_own() -> None:
    suite = SuiteAtNode("smoke", ask_here)
    assert suite.cases(CaseQuery(operators=("relu",)))
    with pytest.raises(InfrastructureError, match="failed on"):
        ask_here("torchstone.suites.remote_suite", "no question")


def test_the_file_that_a_suite_reads_travels_as_content(tmp_path: Path) -> None:
    source = tmp_path / "calls.txt"
    source.write_text("Operator: aten.relu.default\ncnt: 1, ((T([4, 5], f32),), {})\n")
    asked: list[Question] = []

    def elsewhere(module: str, text: str) -> str:
        asked.append(decode(text, Question))
        source.unlink(missing_ok=True)  # the node has no such file
        return at_node(module, text)

    found = SuiteAtNode("torchbench", elsewhere).cases(CaseQuery(source=str(source)))
    assert [case.operator for case in found] == ["aten.relu.default"]
    assert asked[0].source is not None
    assert list(asked[0].source.files) == [""]


def test_a_folder_travels_with_all_files(tmp_path: Path) -> None:
    (tmp_path / "level1").mkdir()
    (tmp_path / "level1" / "a.py").write_text("x")
    content = content_of(str(tmp_path))
    assert content is not None
    assert content.files == {"level1/a.py": b"x"}
    assert content_of("hf://datasets/a/b/c@0") is None
    with pytest.raises(UsageError, match="cannot be read"):
        content_of(str(tmp_path / "none"))


def test_a_wrong_request_at_a_node_is_a_wrong_request_here() -> None:
    suite = SuiteAtNode("torchbench", lambda module, text: '{"problem":"there is no such file. Name another."}')
    with pytest.raises(UsageError, match="there is no such file"):
        suite.cases(msgspec.structs.replace(CaseQuery(), operators=("relu",)))
