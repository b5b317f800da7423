"""The built-in kernels on a GPU: judged by the real program on suites that have their operators, and as functions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import torchstone
from torchstone import kernels
from torchstone.kernels.catalogue import LANGUAGES

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
FORWARD = "gelu,silu,mse_loss,native_layer_norm"
BACKWARD = "gelu_backward,silu_backward,mse_loss_backward"
"""Suite `fuzz` cannot call `native_layer_norm_backward` by itself (a list of booleans); as a gradient it can."""
DTYPES = "float32,float16,bfloat16"
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Relative, of results; gradients of sums over rows get 4 times as much."""


@pytest.fixture(params=LANGUAGES)
def impl(request: pytest.FixtureRequest) -> str:
    reason = kernels.why_unavailable(request.param)
    if reason is not None:
        pytest.skip(reason)
    return str(request.param)


def judged(tmp_path: Path, *options: str) -> list[dict[str, object]]:
    """The entries of a run of both backends that do not agree. A run of nothing fails."""
    usable = [f"torchstone-{language}" for language in LANGUAGES if kernels.why_unavailable(language) is None]
    command = [
        sys.executable, "-m", "torchstone", "run", "--backend", ",".join(usable), "--device", "cuda", "--dtype", DTYPES,
        "--no-measure", "--run-id", "judged", *options,
    ]  # fmt: skip
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1800, check=False)
    assert outcome.returncode in (0, 1), outcome.stdout + outcome.stderr
    (records,) = tmp_path.rglob("records.jsonl")
    found = [json.loads(line) for line in records.read_text().splitlines()]
    assert found
    answered = [each for each in found if each["verdict"].get("by") != "reference"]  # torch itself has no answer
    return [each for each in answered if each["verdict"]["type"] != "agrees"]


def told(records: list[dict[str, object]]) -> str:
    return "\n".join(json.dumps([each["implementation"], each["case"], each["verdict"]])[:600] for each in records[:10])


def test_kernels_agree_on_pytorchs_own_samples(tmp_path: Path) -> None:
    wrong = judged(tmp_path, "--suite", "opinfo", "--ops", FORWARD, "--mode", "fwd+bwd")
    assert not wrong, told(wrong)


def test_kernels_agree_on_generated_edge_cases(tmp_path: Path) -> None:
    wrong = judged(tmp_path, "--suite", "fuzz", "--ops", f"{FORWARD},cross_entropy_loss,{BACKWARD}")
    assert not wrong, told(wrong)


def test_gradients_agree_on_generated_edge_cases(tmp_path: Path) -> None:
    found = judged(tmp_path, "--suite", "fuzz", "--ops", f"{FORWARD},cross_entropy_loss", "--mode", "bwd")
    wrong = [each for each in found if "gradients of the target" not in json.dumps(each["verdict"])]
    assert not wrong, told(wrong)  # class probabilities get no gradient, and say so


def test_the_fused_kernel_agrees_as_a_model(impl: str, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "torchstone", "run", "--suite", "kernelbench", "--backend", "kernelbench",
        "--source", str(ROOT / "examples/fused/problems"), "--kernels-dir", str(ROOT / "examples/fused" / impl),
        "--device", "cuda", "--no-measure",
    ]  # fmt: skip
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


# ---- as functions


def made(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=dtype)


CALLS: dict[str, Callable[..., torch.Tensor]] = {
    "layer_norm": lambda x, w, b, impl: kernels.layer_norm(x, w, b, impl=impl),
    "layer_norm_gelu": lambda x, w, b, impl: kernels.layer_norm_gelu(x, w, b, impl=impl),
    "gelu": lambda x, impl: kernels.gelu(x, impl=impl),
    "gelu by tanh": lambda x, impl: kernels.gelu(x, "tanh", impl=impl),
    "swish": lambda x, impl: kernels.swish(x, impl=impl),
    "mse_loss": lambda x, y, impl: kernels.mse_loss(x, y, impl=impl),
    "cross_entropy": lambda x, impl: kernels.cross_entropy(
        x, torch.arange(len(x), device=x.device) % x.shape[1], label_smoothing=0.1, impl=impl
    ),
}
SHAPES = ((1, 1), (7, 33), (64, 1000), (130, 4096), (5, 8192), (3, 20_000))


def leaves_of(name: str, dtype: torch.dtype, shape: tuple[int, int]) -> list[torch.Tensor]:
    more = {"layer_norm": 2, "layer_norm_gelu": 2}.get(name, 0)
    others = [made(dtype, shape[1]) for _ in range(more)] + ([made(dtype, *shape)] if name == "mse_loss" else [])
    return [made(dtype, *shape), *others]


def gradients(call: Callable[..., torch.Tensor], leaves: list[torch.Tensor], impl: str) -> list[torch.Tensor]:
    own = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    result = call(*own, impl=impl)
    cotangent = torch.ones_like(result) if result.dim() == 0 else torch.linspace(-1, 1, result.numel()).view_as(result)
    return [result.detach(), *torch.autograd.grad(result, own, cotangent.to(result))]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_results_and_gradients_are_those_of_torch(impl: str, name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for shape in SHAPES:
        leaves = leaves_of(name, dtype, shape)
        found = gradients(CALLS[name], leaves, impl)
        exact = gradients(CALLS[name], [leaf.double() for leaf in leaves], "torch")
        for place, (one, other) in enumerate(zip(found, exact, strict=True)):
            assert one.dtype == dtype
            tolerance = TOLERANCE[dtype] * (4 if place else 1)
            # One column: the exact gradient is 0, and what is left is a rounding of it over sqrt(eps).
            scale = max(1.0, float(other.abs().max())) * (300 if shape[1] == 1 else 1)
            assert_close(one.double(), other, rtol=tolerance, atol=tolerance * scale, msg=f"{shape}, result {place}")


@pytest.mark.parametrize("name", CALLS)
def test_a_call_can_be_captured_in_a_graph_and_waits_for_nothing(impl: str, name: str) -> None:
    leaves = leaves_of(name, torch.bfloat16, (64, 1000))
    CALLS[name](*leaves, impl=impl)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = CALLS[name](*leaves, impl=impl)
    for leaf in leaves:
        leaf.copy_(torch.randn_like(leaf))
    graph.replay()
    expected = CALLS[name](*leaves, impl=impl)
    assert torch.equal(result, expected)


@pytest.mark.parametrize("name", ["layer_norm", "gelu", "swish", "mse_loss", "cross_entropy", "layer_norm_gelu"])
def test_a_second_derivative_is_refused(impl: str, name: str) -> None:
    own = [leaf.requires_grad_() for leaf in leaves_of(name, torch.float32, (8, 16))]
    (first, *_) = torch.autograd.grad(CALLS[name](*own, impl=impl).square().sum(), own, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_equal_inputs_give_equal_gradients(impl: str) -> None:
    for name, call in CALLS.items():
        leaves = leaves_of(name, torch.float32, (4096, 768))
        first, second = (gradients(call, leaves, impl) for _ in range(2))
        assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True)), name


def test_enabled_by_name_they_train_a_model(impl: str) -> None:
    def step() -> list[torch.Tensor]:
        torch.manual_seed(3)
        parts = torch.nn.Linear(64, 96), torch.nn.LayerNorm(96), torch.nn.GELU(), torch.nn.SiLU()
        model = torch.nn.Sequential(*parts).cuda()
        x = torch.randn(32, 64, device="cuda")
        torch.nn.functional.mse_loss(model(x), torch.ones(32, 96, device="cuda")).backward()
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    expected = step()
    with torchstone.enable(f"torchstone-{impl}", device="cuda") as installation:
        found = step()
    assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not installation.problems
    assert installation.calls["aten.native_layer_norm_backward.default"] == 1
