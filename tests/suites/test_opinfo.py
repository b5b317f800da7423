"""OpInfo's samples as a suite: cases made by real processes, for the operators asked for, and what is kept of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchstone.errors import UsageError
from torchstone.schema import Case, Normal, Tensor
from torchstone.suites import CaseQuery, operators_of, opinfo, opinfo_catalogue, selects
from torchstone.suites.case_cache import (
    Catalogue,
    Entry,
    Exclusion,
    Index,
    KeptCatalogue,
    Part,
    PlacedCase,
    Prepared,
    merged,
)
from torchstone.suites.opinfo import OpInfoSuite
from torchstone.suites.opinfo_catalogue import Enlarge, Sample

WORLD = (
    "nn.functional.linear",
    "index_select",
    "_segment_reduce.lengths",
    "to_sparse",
    "jiterator_unary",
    "nn.functional.relu",
    "nn.functional.softmin",
    "neg",
    "addmm",
)
"""Of OpInfo's database: two of them call `aten.neg.default`, two `aten.addmm.default`."""
JITERATOR = "Jiterator is only supported"


class Asked:
    """A suite of the world with a cache of its own, and what it said while it prepared."""

    def __init__(self, entries: tuple[str, ...] | None = WORLD) -> None:
        self.suite = OpInfoSuite(entries)
        self.steps: list[tuple[int, int, str]] = []
        self.suite.report_progress_to(lambda *step: self.steps.append(step))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    pytest.importorskip("expecttest")
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("whole")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def whole(cache: Path) -> OpInfoSuite:
    """Everything prepared at once."""
    asked = Asked()
    asked.suite.cases(CaseQuery())
    assert asked.steps[len(WORLD) - 1] == (len(WORLD), len(WORLD), "all OpInfo entries")
    return asked.suite


@pytest.fixture(scope="module")
def catalogue(whole: OpInfoSuite) -> Catalogue:
    return Catalogue(whole.cases(CaseQuery()), whole.exclusions(CaseQuery()))


def test_every_overload_that_a_sample_comes_down_to_is_there(catalogue: Catalogue) -> None:
    seen = {case.operator for case in catalogue.cases}
    assert {"aten.addmm.default", "aten.index_select.default", "aten.segment_reduce.default"} <= seen
    assert len({case.key for case in catalogue.cases}) == len(catalogue.cases)


def test_each_operator_with_work_of_its_own_has_a_large_case(catalogue: Catalogue) -> None:
    timed = {case.operator: case for case in catalogue.cases if case.timed}
    assert {"aten.addmm.default", "aten.index_select.default"} <= set(timed)
    assert "aten.view.default" not in timed
    assert all(not case.indistinct for case in timed.values())
    assert catalogue.cases[-len(timed) :] == tuple(timed.values())


def test_what_is_no_case_has_its_reason(catalogue: Catalogue) -> None:
    reasons = {item.source: item.reason for item in catalogue.exclusions}
    assert "not strided" in reasons["to_sparse"]
    assert "the sample fails in torch itself" in reasons["jiterator_unary"]


def test_any_request_has_the_cases_of_the_whole_catalogue_and_prepares_what_is_missing(
    whole: OpInfoSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = whole.cases(CaseQuery())
    assert len({case.tags[0] for case in everything if case.operator == "aten.neg.default"}) > 1
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = "all OpInfo entries for neg, aten.addmm.default"
    second = "OpInfo entries for aten.relu.default, aten.view.default"
    for names, step in (
        (("neg", "aten.addmm.default"), (len(WORLD), first)),
        (("relu", "view", "neg"), (2, second)),
        (None, None),
    ):
        query, asked = CaseQuery(names), Asked()
        assert asked.suite.cases(query) == tuple(case for case in everything if selects(query, case.operator))
        assert asked.suite.exclusions(query) == whole.exclusions(query)
        assert asked.steps[0][1:] == (step or asked.steps[0][1:])
        again = Asked()
        again.suite.cases(query)
        assert not again.steps


def test_notes_are_about_what_was_asked_for(whole: OpInfoSuite) -> None:
    def told(*names: str) -> str:
        return " ".join(whole.left_out(CaseQuery(names or None)))

    assert JITERATOR in told()
    assert JITERATOR in told("jiterator_unary")
    assert "not strided" in told()
    assert "not strided" in told("_to_sparse")
    assert told("relu", "addmm", "aten.neg") == ""


def test_operators_are_known_without_their_cases(whole: OpInfoSuite, cache: Path) -> None:
    asked = Asked()
    found = operators_of(asked.suite, CaseQuery(("nosuch",)))
    assert found == ()
    found = operators_of(OpInfoSuite(WORLD), CaseQuery(("neg", "addmm")))
    assert found == ("aten.addmm.default", "aten.neg.default")
    assert not asked.steps


@pytest.mark.slow
def test_a_request_has_the_cases_of_the_catalogue_of_all_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = CaseQuery(("relu", "add", "sum", "_softmax", "argmax"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "part"))
    few = [case for case in Asked(None).suite.cases(query) if not case.timed]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "whole"))
    everything = Asked(None).suite.cases(CaseQuery())
    assert few == [case for case in everything if selects(query, case.operator) and not case.timed]


def case_of(operator: str) -> Case:
    return Case("opinfo", operator, (Tensor((3,), "float32", Normal()),))


def prepared(*operators: str) -> Prepared:
    """One entry that calls these operators, with a case of each."""
    index = Index((Entry("x", 0, operators, (Exclusion("", "a reason", "x"),)),))
    placed = {name: (PlacedCase(case_of(name), (0, 0, number)),) for number, name in enumerate(operators)}
    return Prepared(index, {name: Part(name, cases) for name, cases in placed.items()})


def kept(folder: Path) -> KeptCatalogue:
    book = OpInfoSuite()._cached_catalogue("cpu", "float32")
    assert book.folder is not None
    assert folder in book.folder.parents
    return book


def test_what_is_kept_is_used_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = (
        "import sys\nfrom torchstone.suites import CaseQuery\nfrom torchstone.suites.opinfo import OpInfoSuite\n"
        "print(len(OpInfoSuite().cases(CaseQuery(('relu',), ('float32',), 'cpu'))), 'torch' in sys.modules)"
    )
    kept(tmp_path).write(prepared("aten.relu.default", "aten.exp.default"))
    told = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == "1 False\n"


def test_a_torn_part_is_prepared_again_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    orders: list[tuple[str, ...] | None] = []
    fresh = prepared("aten.relu.default", "aten.exp.default")

    def prepare(device: str, dtype: str, progress: object, names: tuple[str, ...] | None, *rest: object) -> Prepared:
        orders.append(names)
        return Prepared(fresh.index, {name: fresh.parts[name] for name in names or fresh.parts})

    monkeypatch.setattr(opinfo_catalogue, "prepare", prepare)
    book = kept(tmp_path)
    book.write(fresh)
    torn = book.path("part-aten.exp.default")
    assert torn is not None
    torn.write_bytes(torn.read_bytes()[:-9])
    both = (case_of("aten.relu.default"), case_of("aten.exp.default"))
    suite = OpInfoSuite()
    assert suite.cases(CaseQuery()) == both
    assert [item.reason for item in suite.exclusions(CaseQuery())] == ["a reason"]
    assert orders == [("aten.exp.default",)]
    assert book.part("aten.exp.default") == fresh.parts["aten.exp.default"]


def test_without_a_cache_it_is_prepared_once_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    orders: list[object] = []
    monkeypatch.setattr(
        opinfo_catalogue, "prepare", lambda *order: orders.append(order) or prepared("aten.relu.default")
    )
    suite = OpInfoSuite()
    assert suite.cases(CaseQuery(("relu",))) == (case_of("aten.relu.default"),)
    assert suite.left_out(CaseQuery(("relu",))) == {"a reason": 1}
    assert len(orders) == 1


def test_an_operator_that_kills_a_process_gets_recorded_values_and_is_then_left_out() -> None:
    order = Sample(7, ("add", "sum"))
    cautious = order.after_death("aten.add.Tensor")
    assert cautious == Sample(7, ("add", "sum"), ("aten.add.Tensor",))
    assert cautious.after_death("aten.sum.default") == Sample(7, order.names, ("aten.add.Tensor", "aten.sum.default"))
    assert cautious.after_death("aten.add.Tensor") == Sample(7, order.names, cautious.cautious, ("aten.add.Tensor",))
    assert order.after_death("") is None
    assert Enlarge(case_of("aten.relu.default")).after_death("") is None


def test_without_what_opinfo_needs_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "expecttest.py").write_text("raise ModuleNotFoundError('no', name='expecttest')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(opinfo.__file__).parents[2]}")
    with pytest.raises(UsageError, match=r"needs the package 'expecttest': pip install 'torchstone\[opinfo\]'"):
        opinfo_catalogue.prepare("cpu", "float32", lambda *_: None)


def test_exclusions_alike_are_counted_together() -> None:
    alike = [Exclusion("a", "r", "s"), Exclusion("a", "r", "s", 2), Exclusion("a", "r", "t")]
    assert merged(alike) == (Exclusion("a", "r", "s", 3), Exclusion("a", "r", "t", 1))
