"""Unknown names: what is suggested, and how what is known is told."""

from __future__ import annotations

import pytest

from torchstone.errors import unknown_name

OPERATORS = ("aten.relu.default", "aten.add.Tensor", "aten.cosh.default")


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("rleu", "aten.relu.default"),
        ("add.Tensr", "aten.add.Tensor"),
        ("aten.ad.Tensor", "aten.add.Tensor"),
        ("elu", "aten.relu.default"),
        ("nsor", "aten.add.Tensor"),
        ("nosuch", None),
        ("o", None),
    ],
)
def test_only_a_name_that_is_spelled_alike_or_contains_it_is_suggested(name: str, suggested: str | None) -> None:
    said = str(unknown_name("operator", name, OPERATORS))
    hint = f" Did you mean '{suggested}'?" if suggested else ""
    assert said == f"unknown operator '{name}'.{hint} Known: aten.add.Tensor, aten.cosh.default, aten.relu.default."


def test_many_names_are_counted_and_a_command_that_lists_them_is_named() -> None:
    known = [f"name{number}" for number in range(51)]
    assert str(unknown_name("thing", "?", known)) == "unknown thing '?'. 51 names are known."
    assert (
        str(unknown_name("thing", "?", known, "'list'")) == "unknown thing '?'. 51 names are known; 'list' lists them."
    )
    assert "Known: name0, name1" in str(unknown_name("thing", "?", known[:50]))
    assert str(unknown_name("thing", "x", ())) == "unknown thing 'x'. Known: none."
