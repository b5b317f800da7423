"""The built-in kernels by name: as backends of a run, as functions, and in the place of ATen's operators."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchstone
from torchstone import kernels, registry
from torchstone.backends import BackendOptions
from torchstone.backends.torchstone_kernels import BACKENDS, BuiltInCuda, BuiltInTriton
from torchstone.errors import UsageError
from torchstone.kernels.catalogue import LANGUAGES
from torchstone.schema import SourceFiles

ROOT = Path(__file__).parents[2]
GPU = BackendOptions(device_type="cuda")
OPERATORS = (
    "aten.cross_entropy_loss.default",
    "aten.gelu.default",
    "aten.gelu_backward.default",
    "aten.mse_loss.default",
    "aten.mse_loss_backward.default",
    "aten.native_layer_norm.default",
    "aten.native_layer_norm_backward.default",
    "aten.silu.default",
    "aten.silu_backward.default",
)
"""What every language serves."""


def program(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "torchstone", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=180, check=False)


def test_triton_serves_every_operator() -> None:
    assert kernels.operators("triton") == OPERATORS
    assert kernels.operators("torch") == OPERATORS


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_kernel_takes_what_its_overload_takes(language: str) -> None:
    """Read as text: CUDA's cannot be imported everywhere."""
    import ast

    for operator in kernels.operators(language):
        name = operator.split(".")[1]
        text = (Path(kernels.__file__).parent / language / name / f"{name}.py").read_text()
        entry = next(node for node in ast.parse(text).body if getattr(node, "name", "") == f"{name}_kernel_impl")
        assert isinstance(entry, ast.FunctionDef)
        schema = getattr(torch.ops.aten, name).default._schema.arguments
        assert [item.arg for item in entry.args.args] == [item.name for item in schema if not item.kwarg_only]
        assert [item.arg for item in entry.args.kwonlyargs] == [item.name for item in schema if item.kwarg_only]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_the_backend_offers_them_under_its_own_name() -> None:
    backend = registry.backends.factory("torchstone-triton")(GPU)
    assert isinstance(backend, BuiltInTriton)
    assert backend.problems() == ()
    for operator in OPERATORS:
        found = backend.implementation(operator)
        assert found is not None
        assert (found.backend, found.operator, found.language) == ("torchstone-triton", operator, "triton")
    assert backend.implementation("aten.relu.default") is None


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_changed_kernel_is_judged_again_with_its_gradient() -> None:
    backend = BuiltInTriton(GPU)
    called, differentiated = (backend.implementation(OPERATORS[1]), backend.differentiable(OPERATORS[1]))
    assert called is not None
    assert differentiated is not None
    assert isinstance(called.origin, SourceFiles)
    assert isinstance(differentiated.origin, SourceFiles)
    assert called.key != differentiated.key
    assert set(called.origin.files) < set(differentiated.origin.files)


@pytest.mark.parametrize("name", BACKENDS)
def test_on_the_cpu_one_line_says_what_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(UsageError) as caught:
        BACKENDS[name](BackendOptions(device_type="cpu"))
    assert str(caught.value).startswith(f"backend '{name}'")
    assert "\n" not in str(caught.value)


def test_without_triton_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    expected = r"pip install 'torchstone\[triton\]'"
    with pytest.raises(UsageError, match=expected):
        BuiltInTriton(GPU)
    reason = kernels.why_unavailable("triton")
    assert reason is not None
    assert "torchstone[triton]" in reason


def test_without_its_compiler_cuda_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="backend 'torchstone-cuda': "):
        BuiltInCuda(GPU)
    assert kernels.why_unavailable("cuda")
    assert kernels.why_unavailable("torch") is None


@pytest.mark.parametrize("impl", LANGUAGES)
def test_a_tensor_of_the_host_is_refused_in_one_line(impl: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(UsageError, match=r"needs tensors on a CUDA device.*impl='torch'"):
        kernels.gelu(torch.ones(3), impl=impl)


def test_an_unknown_operator_or_language_is_named() -> None:
    with pytest.raises(UsageError, match=r"Did you mean 'aten.gelu.default'"):
        kernels.kernel("aten.gleu.default", "triton")
    with pytest.raises(UsageError, match=r"unknown implementation 'cudda'. Did you mean 'cuda'"):
        kernels.operators("cudda")


def test_a_folder_of_that_name_is_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "torchstone-triton" / "relu"
    folder.mkdir(parents=True)
    (folder / "relu.py").write_text("def relu_kernel_impl(x):\n    return x * 0 + 7\n")
    monkeypatch.chdir(tmp_path)
    with torchstone.enable("torchstone-triton", device="cpu") as installation:
        assert torch.relu(torch.ones(1)).item() == 7
    assert installation.installed == {"aten.relu.default": "relu/relu.py"}


def test_importing_the_functions_imports_no_torch() -> None:
    script = "import sys, torchstone.kernels as k; k.operators('triton'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.slow
def test_a_real_run_judges_kernel_and_gradient_in_the_interpreter(tmp_path: Path) -> None:
    options = ("--suite", "smoke", "--ops", "gelu", "-k", "f32 and not 512", "--mode", "bwd", "--device", "cpu")
    found = program(
        "run", *options, "--backend", "torchstone-triton", "--effort", "quick", "--no-measure", cwd=tmp_path
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "| torchstone_grad.gelu.default | 3/3 agrees" in found.stdout


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_the_judge_accepts_the_fused_kernel_as_a_model(tmp_path: Path) -> None:
    text = (ROOT / "examples/fused/problems/layer_norm_gelu.py").read_text()
    small = text.replace("32, 512, 1024", "2, 3, 37")  # the interpreter is slow
    assert small != text
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "layer_norm_gelu.py").write_text(small)
    solutions = str(ROOT / "examples/fused/triton")
    found = program(
        "run", "--suite", "kernelbench", "--source", "problems", "--backend", "kernelbench", "--kernels-dir", solutions,
        "--device", "cpu", "--effort", "quick", "--no-measure", cwd=tmp_path,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    assert "| kernelbench.layer_norm_gelu.default | 1/1 agrees" in found.stdout
