"""OpInfo's samples as a suite: a catalogue built by real processes, and what is made of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchstone.errors import UsageError
from torchstone.schema import Case, Normal, Tensor
from torchstone.suites import CaseQuery, opinfo, opinfo_catalogue
from torchstone.suites.catalogue import Catalogue, Exclusion, KeptCatalogue, merged
from torchstone.suites.opinfo import OpInfoSuite

SAMPLED = ("nn.functional.linear", "index_select", "_segment_reduce.lengths", "to_sparse", "jiterator_unary")


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    pytest.importorskip("expecttest")
    steps: list[tuple[int, int, str]] = []
    found = opinfo_catalogue.build("cpu", "float32", lambda *step: steps.append(step), entries=SAMPLED)
    assert steps[len(SAMPLED) - 1][:2] == (len(SAMPLED), len(SAMPLED))
    return found


def test_every_overload_that_a_sample_comes_down_to_is_there(catalogue: Catalogue) -> None:
    seen = {case.operator for case in catalogue.cases}
    assert {"aten.addmm.default", "aten.index_select.default", "aten.segment_reduce.default"} <= seen
    assert len({case.key for case in catalogue.cases}) == len(catalogue.cases)


def test_each_operator_with_work_of_its_own_has_a_large_case(catalogue: Catalogue) -> None:
    timed = {case.operator: case for case in catalogue.cases if case.timed}
    assert {"aten.addmm.default", "aten.index_select.default"} <= set(timed)
    assert "aten.view.default" not in timed
    assert all(not case.indistinct for case in timed.values())


def test_what_is_no_case_has_its_reason(catalogue: Catalogue) -> None:
    reasons = {item.source: item.reason for item in catalogue.exclusions}
    assert "not strided" in reasons["to_sparse"]
    assert "the sample fails in torch itself" in reasons["jiterator_unary"]


def test_a_catalogue_that_is_there_is_used_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = (
        "import sys\nfrom torchstone.suites import CaseQuery\nfrom torchstone.suites.opinfo import OpInfoSuite\n"
        "print(len(OpInfoSuite().cases(CaseQuery(('relu',), ('float32',), 'cpu'))), 'torch' in sys.modules)"
    )
    cases = [Case("opinfo", f"aten.{name}.default", (Tensor((3,), "float32", Normal()),)) for name in ("relu", "exp")]
    kept(tmp_path).write(Catalogue(tuple(cases)))
    told = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == "1 False\n"


def kept(folder: Path) -> KeptCatalogue:
    book = KeptCatalogue("opinfo", opinfo._torch_version(), "cpu", "float32", opinfo.CATALOGUE_VERSION)
    assert book.path is not None
    assert folder in book.path.parents
    return book


def test_a_torn_catalogue_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    case = Case("opinfo", "aten.relu.default", (Tensor((3,), "float32", Normal()),))
    fresh = Catalogue((case,), (Exclusion("aten.x.default", "a reason", "x"),))
    monkeypatch.setattr(opinfo_catalogue, "build", lambda *_: fresh)
    kept(tmp_path).write(Catalogue(()))
    book = kept(tmp_path).path
    assert book is not None
    book.write_bytes(book.read_bytes()[:-9])
    assert OpInfoSuite().cases(CaseQuery()) == (case,)
    assert kept(tmp_path).read() == fresh
    assert [item.reason for item in OpInfoSuite().exclusions(CaseQuery())] == ["a reason"]


def test_without_what_opinfo_needs_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "expecttest.py").write_text("raise ModuleNotFoundError('no', name='expecttest')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(opinfo.__file__).parents[2]}")
    with pytest.raises(UsageError, match=r"needs the package 'expecttest': pip install 'torchstone\[opinfo\]'"):
        opinfo_catalogue.build("cpu", "float32", lambda *_: None)


def test_exclusions_alike_are_counted_together() -> None:
    alike = [Exclusion("a", "r", "s"), Exclusion("a", "r", "s", 2), Exclusion("a", "r", "t")]
    assert merged(alike) == (Exclusion("a", "r", "s", 3), Exclusion("a", "r", "t", 1))
