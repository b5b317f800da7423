"""The liger backend: what it offers and refuses, and its adapters run for real in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchstone.backends import BackendOptions
from torchstone.backends.liger import ADAPTERS, LigerBackend
from torchstone.errors import UsageError
from torchstone.schema import SourceFiles

GPU = BackendOptions(device_type="cuda")
HERE = Path(__file__).parent


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    there = SimpleNamespace(origin="liger_kernel/__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: there if name == "liger_kernel" else find(name))


@pytest.mark.usefixtures("installed")
def test_what_has_an_adapter_is_offered_and_nothing_else() -> None:
    backend = LigerBackend(GPU)
    for operator in backend.operators():
        found = backend.implementation(operator)
        assert found is not None
        assert (found.backend, found.operator, found.language) == ("liger", operator, "triton")
        assert isinstance(found.origin, SourceFiles)
        compile(found.origin.files[0].text, operator, "exec")
    assert backend.implementation("aten.gelu.default") is None


@pytest.mark.usefixtures("installed")
def test_on_the_cpu_the_message_asks_for_a_gpu() -> None:
    with pytest.raises(UsageError, match="needs a GPU"):
        LigerBackend(BackendOptions(device_type="cpu"))


def test_without_the_package_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install --no-deps liger-kernel"):
        LigerBackend(GPU)


def test_the_parameters_of_each_adapter_are_those_of_its_overload() -> None:
    import ast

    from torchstone import operators

    for operator, text in ADAPTERS.items():
        (kernel,) = [
            node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == "kernel"
        ]
        schema = operators.resolve(operator)._schema.arguments
        assert [a.arg for a in kernel.args.args] == [a.name for a in schema if not a.kwarg_only], operator
        assert [a.arg for a in kernel.args.kwonlyargs] == [a.name for a in schema if a.kwarg_only], operator


@pytest.mark.skipif(importlib.util.find_spec("liger_kernel") is None, reason="liger_kernel is not installed")
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_every_adapter_agrees_with_aten_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    outcome = subprocess.run(
        [sys.executable, str(HERE / "liger_beside_aten.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.split() == sorted(ADAPTERS)
