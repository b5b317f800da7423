"""The flag_gems backend, on a package of ours that is built like FlagGems, and on the real one where it lies."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from torchstone import operators
from torchstone.backends import BackendOptions, flag_gems
from torchstone.backends.flag_gems import FlagGemsBackend
from torchstone.errors import UsageError
from torchstone.schema import SourceFiles

GPU = BackendOptions(device_type="cuda")
STAND_IN = """
raise_if_imported = 1 / 0

_FULL_CONFIG = (
    ("relu", relu),
    ("add.Tensor", add),
    (
        "_to_copy",
        to_copy,
        lambda: True,
    ),
)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed flag_gems that cannot be imported, with what it needs."""
    for name in ("flag_gems", "sqlalchemy", "yaml", "packaging"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "flag_gems" else find(name))


@pytest.mark.usefixtures("package")
def test_registrations_are_read_without_importing_the_package() -> None:
    backend = FlagGemsBackend(GPU)
    assert backend.operators() == ("aten._to_copy.default", "aten.add.Tensor", "aten.relu.default")
    found = backend.implementation("aten.add.Tensor")
    assert found is not None
    assert (found.backend, found.language) == ("flag_gems", "triton")
    assert found.reference.where == "flag_gems: add.Tensor"
    assert backend.implementation("aten.sub.Tensor") is None


@pytest.mark.usefixtures("no_package")
def test_without_the_package_the_message_says_how_to_install_it() -> None:
    with pytest.raises(UsageError, match=r"not installed\. .*pip install --no-deps flag_gems.*sqlalchemy pyyaml"):
        FlagGemsBackend(GPU)


@pytest.mark.usefixtures("package")
def test_on_the_cpu_the_message_asks_for_a_gpu() -> None:
    with pytest.raises(UsageError, match="needs a GPU"):
        FlagGemsBackend(BackendOptions(device_type="cpu"))


@pytest.mark.usefixtures("package")
def test_what_the_package_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flag_gems, "_NEEDS", ("json", "no_such_module"))
    with pytest.raises(UsageError, match="needs no_such_module"):
        FlagGemsBackend(GPU)


def test_a_package_of_another_build_is_refused(package: Path) -> None:
    (package / "flag_gems" / "__init__.py").write_text("OPERATORS = ()\n")
    with pytest.raises(UsageError, match="no table _FULL_CONFIG"):
        FlagGemsBackend(GPU)


# ---- how the functions are called


def called(monkeypatch: pytest.MonkeyPatch, operator: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """What the function registered for the operator is given when the kernel is called."""
    module = types.ModuleType("flag_gems")
    registration = operator.removeprefix("aten.").removesuffix(".default")
    module._FULL_CONFIG = ((registration, lambda *given, **named: (given, named)),)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flag_gems", module)
    text = flag_gems._SOURCE.format(table="_FULL_CONFIG", registration=registration, operator=operator)
    space: dict[str, Any] = {}
    exec(compile(text, "flag_gems_kernel.py", "exec"), space)
    answer: tuple[Any, Any] = space["kernel"](*args, **kwargs)
    return answer


def test_keywords_of_positional_arguments_become_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2, 3)
    assert called(monkeypatch, "aten._softmax.default", x, half_to_float=False, dim=1) == ((x, 1, False), {})


def test_trailing_defaults_are_left_out_as_the_dispatcher_does(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2, 3)
    assert called(monkeypatch, "aten.sum.dim_IntList", x, [1], False, dtype=None) == ((x, [1]), {})
    assert called(monkeypatch, "aten.sum.dim_IntList", x, [1], True) == ((x, [1], True), {})
    assert called(monkeypatch, "aten.sum.dim_IntList", x, [1], dtype=torch.float64) == (
        (x, [1]),
        {"dtype": torch.float64},
    )


def test_the_dispatcher_itself_calls_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same calls of an operator of ours, with the schema of one of ATen's."""
    seen: list[tuple[Any, Any]] = []

    def record(*args: Any, **kwargs: Any) -> torch.Tensor:
        seen.append((args, kwargs))
        return torch.ones(1)

    schema = str(torch.ops.aten.sum.dim_IntList._schema).replace("aten::sum.dim_IntList", "recorded_sum")
    library = torch.library.Library("torchstone_test_dispatch", "DEF")
    library.define(schema)
    library.impl("recorded_sum", record, "CPU")
    operator = torch.ops.torchstone_test_dispatch.recorded_sum.default
    x = torch.ones(2, 3)
    for args, kwargs in (((x, [1], False), {"dtype": None}), ((x, [1], True), {}), ((x,), {"dim": [0]})):
        operator(*args, **kwargs)
        assert called(monkeypatch, "aten.sum.dim_IntList", *args, **kwargs) == seen[-1]


@pytest.mark.skipif(importlib.util.find_spec("flag_gems") is None, reason="flag_gems is not installed")
def test_the_real_package_registers_overloads_that_torch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flag_gems, "_NEEDS", ())
    backend = FlagGemsBackend(GPU)
    found = [operator for operator in backend.operators() if _exists(operator)]
    assert len(found) > 400
    assert len(backend.operators()) - len(found) < 12
    origin = backend.implementation("aten.add.Tensor").origin  # type: ignore[union-attr]
    assert isinstance(origin, SourceFiles)


def _exists(operator: str) -> bool:
    try:
        operators.resolve(operator)
    except Exception:  # noqa: BLE001 - whatever resolve says about what is not there
        return False
    return True
