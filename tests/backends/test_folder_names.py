"""Overload names become folder names and come back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchstone.backends.folder_names import folder_name, operator_name

bases = st.from_regex(r"_{0,3}[A-Za-z][A-Za-z0-9]*(_{1,3}[A-Za-z0-9]+){0,2}_{0,3}", fullmatch=True)
overloads = st.from_regex(r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+){0,2}_?", fullmatch=True)


@given(bases, overloads)
def test_an_overload_comes_back_from_its_folder(base: str, overload: str) -> None:
    operator = f"aten.{base}.{overload}"
    assert operator_name(folder_name(operator)) == operator
    assert folder_name(operator).isidentifier()


def test_every_overload_of_torch_comes_back_from_its_folder() -> None:
    names = torch._C._dispatch_get_all_op_names()
    found = [name.removeprefix("aten::") for name in names if name.startswith("aten::")]
    operators = [f"aten.{name}" if "." in name else f"aten.{name}.default" for name in found]
    assert "aten.__lshift__.Tensor" in operators
    assert [name for name in operators if operator_name(folder_name(name)) != name] == []
    assert len({folder_name(name) for name in operators}) == len(operators)


@given(st.from_regex(r"_?[a-z][a-z0-9]*(_[a-z0-9]+){0,2}_{0,3}|__[a-z]+(_[a-z]+)?__", fullmatch=True))
def test_an_operator_alone_comes_back_from_its_folder(base: str) -> None:
    assert operator_name(folder_name(f"aten.{base}")) == f"aten.{base}"


@pytest.mark.parametrize(
    ("folder", "operator"),
    [
        ("relu", "aten.relu"),
        ("relu_", "aten.relu_"),
        ("relu__default", "aten.relu.default"),
        ("add__Tensor", "aten.add.Tensor"),
        ("add___Tensor", "aten.add_.Tensor"),
        ("_softmax", "aten._softmax"),
        ("_softmax__default", "aten._softmax.default"),
        ("__and__", "aten.__and__"),
        ("__and____Tensor", "aten.__and__.Tensor"),
        ("div__Tensor_mode", "aten.div.Tensor_mode"),
    ],
)
def test_names_are_read_from_the_right(folder: str, operator: str) -> None:
    assert operator_name(folder) == operator
    assert folder_name(operator) == folder


@pytest.mark.parametrize(
    "folder", ["", "_", "____", "__Tensor", "my-kernel", "3d", "add__3", "relu copy", "relú", "a.b"]
)
def test_a_name_of_no_operator_is_none(folder: str) -> None:
    assert operator_name(folder) is None
