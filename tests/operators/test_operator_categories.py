"""What only names tell of operators: one table, and every operator of the opinfo catalogue was looked at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchstone
from torchstone import operators
from torchstone.operator_categories import CLASSES, Rule, base_name, classes_of
from torchstone.suites.base import CaseQuery
from torchstone.suites.opinfo import OpInfoSuite

FOLDER = Path(__file__).parent
CATALOGUE = (FOLDER / "opinfo_operators.txt").read_text().split()
"""Operators of the suite opinfo in float32 on the CPU."""
PLAIN = frozenset((FOLDER / "plain_operators.txt").read_text().split())
"""Base names of those that no class needs. A new operator of the catalogue is put into a class, or here."""


def test_every_operator_of_the_opinfo_catalogue_is_in_a_class_or_listed_as_plain() -> None:
    unknown = [operator for operator in CATALOGUE if not classes_of(operator) and base_name(operator) not in PLAIN]
    assert unknown == []


def test_no_operator_is_listed_as_plain_that_is_in_a_class_or_not_in_the_catalogue() -> None:
    of_a_class = {base_name(operator) for operator in CATALOGUE if classes_of(operator)}
    assert PLAIN & of_a_class == frozenset()
    assert {base_name(operator) for operator in CATALOGUE} >= PLAIN


@pytest.mark.slow
def test_the_listed_operators_are_those_of_the_suite() -> None:
    suite, query = OpInfoSuite(), CaseQuery(dtypes=("float32",))
    suite.cases(CaseQuery(dtypes=("float32",), operators=("aten.relu.default",)))
    assert sorted(suite.operators(query) or ()) == CATALOGUE


def test_every_class_has_an_operator_of_torch() -> None:
    schemas = (each for each in torch._C._jit_get_all_schemas() if each.name.startswith("aten::"))
    found = {f"aten.{each.name.removeprefix('aten::')}.{each.overload_name or 'default'}" for each in schemas}
    assert {name for operator in found for name in classes_of(operator)} == CLASSES.keys()


def test_a_rule_fits_by_any_of_its_parts_unless_a_word_excludes_the_name() -> None:
    rule = Rule(bare_names=frozenset({"take"}), words=frozenset({"fft"}), parts=("conv",), without=frozenset({"shift"}))
    assert [rule.fits(f"aten.{name}.default") for name in ("take_", "_fft_r2c", "slow_conv2d")] == [True] * 3
    assert [rule.fits(f"aten.{name}.default") for name in ("taken", "fft_shift", "relu")] == [False] * 3


def test_traits_have_the_classes_of_the_name_and_what_torch_says() -> None:
    sort, relu = operators.traits("aten.sort.stable"), operators.traits("aten.relu.default")
    assert (sort.leaves_ties_open, sort.open_indices, sort.pointwise) == (True, 1, False)
    assert (relu.leaves_ties_open, relu.open_indices, relu.pointwise, relu.may_draw) == (False, None, True, False)
    assert operators.traits("aten.bernoulli.default").may_draw


def test_the_table_can_be_asked_without_torch() -> None:
    asked = "is_of('aten.topk.default', 'seeks_extremes')"
    ask = f"import sys; from torchstone.operator_categories import is_of; print({asked})"
    done = subprocess.run(
        [sys.executable, "-c", f"{ask}; print('torch' in sys.modules)"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False"]


def test_no_other_module_takes_names_of_operators_apart_by_hand() -> None:
    """A file whose one line is about something else is named here."""
    root = Path(torchstone.__file__).parent
    own = {"operator_categories.py", "plots/rendering.py", "backends/kernelbench_solutions.py"}
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if "redteam/corpus" not in str(path)
        and ('.split(".")[1]' in path.read_text() or "Tag.pointwise in" in path.read_text())
    }
    assert found - own == {"operators/traits.py"}
