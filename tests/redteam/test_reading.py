"""Headers of fixtures are read as data, what they lack is said, and findings say who was credited."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator

import pytest

from torchstone.cli import main
from torchstone.errors import UsageError
from torchstone.executors import FakeExecutor
from torchstone.redteam import Expectation, Fixture, FixtureResult, judge_corpus, read_corpus, run
from torchstone.redteam.corpus import parse
from torchstone.schema import Agrees, Cheated, Disagrees, ErrorStatistics, Unjudged, Verdict

GOOD = """# title: a thing
# family: 2, 39
# kind: cheat
# case: relu -> disagrees/values | crashed
# case: mm -> no-credit
# twin: h_twin_relu
# deadline: 2
def kernel(x): ...
"""
AGREES = Agrees(ErrorStatistics(), 5)


def test_a_header_is_read() -> None:
    fixture = parse("x", GOOD)
    assert fixture.families == (2, 39)
    assert fixture.expected["relu"] == (Expectation("disagrees", "values"), Expectation("crashed"))
    assert fixture.expected["mm"] == (Expectation("no-credit"),)
    assert (fixture.twin, fixture.deadline_seconds, fixture.device) == ("h_twin_relu", 2.0, "cpu")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("# title: a thing\n", "", "no 'title'"),
        ("kind: cheat", "kind: nice", "not one of cheat, honest, reported"),
        ("case: relu", "case: rleu", "unknown case 'rleu'"),
        ("disagrees/values", "disagree", "unknown verdict 'disagree'"),
        (" -> no-credit", "", "says nothing"),
        ("# twin:", "# title:", "stands twice"),
        ("# twin:", "# twins:", "unknown header line 'twins'"),
    ],
)
def test_what_is_wrong_in_a_header_is_said(old: str, new: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse("x", GOOD.replace(old, new))


def test_the_corpus_has_every_family_and_enough_of_both_kinds() -> None:
    corpus = read_corpus()
    families = {number for fixture in corpus for number in fixture.families}
    assert families == set(range(1, 59))
    on_cpu = [fixture for fixture in corpus if fixture.device == "cpu"]
    assert sum(fixture.kind == "cheat" for fixture in on_cpu) >= 45
    assert sum(fixture.kind == "honest" for fixture in on_cpu) >= 11


@pytest.mark.parametrize("fixture", read_corpus(), ids=lambda fixture: fixture.id)
def test_every_fixture_parses_and_defines_its_kernel(fixture: Fixture) -> None:
    tree = ast.parse(fixture.text)
    assert any(isinstance(node, ast.FunctionDef) and node.name == "kernel" for node in tree.body)


@pytest.mark.parametrize(
    ("name", "verdict", "status"),
    [
        ("f44_constant", AGREES, "credited"),
        ("f44_constant", Disagrees("check", "values", ""), "stopped"),
        ("f44_constant", Cheated("check", "reply", ""), "other verdict"),
        ("f44_constant", Unjudged("no luck"), "unjudged"),
        ("h_several_kernels", AGREES, "agrees"),
        ("h_several_kernels", Disagrees("check", "values", ""), "refused"),
        ("a08_patched_clock", AGREES, "no credit"),
        ("g58_children_outlive", AGREES, "agrees"),
        ("f50_decoy", AGREES, "agrees"),
    ],
)
def test_a_finding_says_who_was_credited(name: str, verdict: Verdict, status: str) -> None:
    found = list(judge_corpus("cpu", [name], executor=FakeExecutor(lambda _: verdict)))
    assert [finding.status for finding in found] == [status]


def test_repeats_are_counted_and_unknown_names_refused() -> None:
    executor = FakeExecutor(lambda _: AGREES)
    assert [f.repeat for f in judge_corpus("cpu", ["f50_decoy"], 3, executor)] == [0, 1, 2]
    with pytest.raises(
        UsageError, match=r"unknown fixture 'nonsense'\. \d+ names are known; 'torchstone redteam --list'"
    ):
        list(judge_corpus("cpu", ["nonsense"], executor=executor))
    with pytest.raises(UsageError, match="runs on cuda"):
        list(judge_corpus("cuda", ["f50_decoy"], executor=executor))


@pytest.mark.parametrize(("credits", "status"), [((5.0, 1.0), "no credit"), ((5.0, 5.0, 5.0), "credited")])
def test_credit_counts_if_it_comes_again(
    credits: tuple[float, ...], status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A twin that was slow for once makes any kernel look fast."""
    left = list(credits)

    def judge(chosen: list[Fixture], *_: object) -> Iterator[FixtureResult]:
        credit = left.pop(0)
        yield FixtureResult(
            fixture=chosen[0].id,
            title="",
            kind="cheat",
            families=(),
            case="relu_timed",
            repeat=0,
            verdict="agrees",
            expected="no-credit",
            status="credited" if credit > 1.1 else "no credit",
            credit=credit,
            message="",
            seconds=0.0,
        )

    monkeypatch.setattr(run, "_judge", judge)
    (found,) = judge_corpus("cpu", ["a12_slow_only_later"], executor=FakeExecutor(lambda _: AGREES))
    assert found.status == status
    assert left == []


def test_fixtures_are_listed_without_being_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "LocalExecutor", None)
    assert main(["redteam", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines] == [fixture.id for fixture in read_corpus()]
    assert "h_twin_relu\thonest\tcpu\tthe operator, called plainly" in lines
    assert main(["redteam", "--list", "--device", "cuda", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["fixtures"]
    assert {fixture["device"] for fixture in told} == {"cuda"}
    assert main(["redteam", "--only", "h_twin_rel"]) == 2
    said = capsys.readouterr().err
    assert "Did you mean 'h_twin_relu'?" in said
    assert said.endswith("names are known; 'torchstone redteam --list' lists them.\n")
