"""Built-in Triton kernels beside torch, in Triton's interpreter and float32.

Run by `test_triton_kernels.py` in a process of its own, because the interpreter is chosen when Triton is imported.
Sizes are small: the interpreter takes milliseconds for each program.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

import torchstone
from torchstone import kernels
from torchstone.errors import UsageError
from torchstone.kernels.catalogue import fused

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")  # numpy's, of NaN where torch has it as well
aten = torch.ops.aten
SHAPES = ((), (0,), (1,), (3, 5), (1025,), (2, 3, 129))
"""None, one, odd, more than a block, several dimensions."""
LONG = 150
"""Columns of a row that takes several blocks, where blocks are as long as `short_blocks` makes them."""
BLOCK = 64


@pytest.fixture(autouse=True)
def _seeded() -> None:
    assert os.environ["TRITON_INTERPRET"] == "1"
    torch.manual_seed(0)


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels take rows of more than 64 columns for long ones, which the interpreter computes in reasonable time."""
    module = fused("layer_norm_gelu", "triton")
    for function in (entry("native_layer_norm"), entry("native_layer_norm_backward"), module.forward):
        constants = [name for name in function.__globals__ if name.startswith("LONGEST") or name == "BLOCK"]
        assert "LONGEST" in constants
        for name in constants:
            monkeypatch.setitem(function.__globals__, name, BLOCK)
        monkeypatch.setitem(function.__globals__, "LONG_ROWS", 4)  # tiles of the sums over columns


def entry(name: str) -> Callable[..., Any]:
    return kernels.kernel(f"aten.{name}.default", "triton")


def near(found: Any, expected: Any, atol: float = 1e-5) -> None:
    assert_close(found, expected, rtol=5e-5, atol=atol, equal_nan=True)


def gradients(function: Callable[..., torch.Tensor], *leaves: torch.Tensor) -> list[torch.Tensor]:
    """The result and the gradient of every leaf, for the same cotangent each time."""
    own = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    result = function(*own)
    cotangent = torch.randn(result.shape, generator=torch.Generator().manual_seed(1))
    return [result.detach(), *torch.autograd.grad(result, own, cotangent)]


# ---- one overload after the other


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_elementwise_kernels_agree(shape: tuple[int, ...]) -> None:
    x, dy = torch.randn(shape), torch.randn(shape)
    for approximate in ("none", "tanh"):
        near(entry("gelu")(x, approximate=approximate), aten.gelu(x, approximate=approximate))
        expected = aten.gelu_backward(dy, x, approximate=approximate)
        near(entry("gelu_backward")(dy, x, approximate=approximate), expected)
    near(entry("silu")(x), aten.silu(x))
    near(entry("silu_backward")(dy, x), aten.silu_backward(dy, x))


def test_elementwise_kernels_take_any_strides() -> None:
    for x in (torch.randn(8, 6).t(), torch.randn(5, 14)[:, 1:8], torch.randn(1, 7).expand(4, 7)):
        dy = torch.randn(x.shape)
        near(entry("gelu")(x), aten.gelu(x))
        near(entry("silu_backward")(dy, x), aten.silu_backward(dy, x))


def test_backward_kernels_broadcast_as_torch_does() -> None:
    """As suite `fuzz` asks: operands of other shapes, and each in an order of memory of its own."""
    for dy, x in (
        (torch.randn(7, 33), torch.randn(33)),
        (torch.randn(()), torch.randn(5)),
        (torch.randn(5, 0, 3), torch.randn(5, 1, 1)),
        (torch.randn(9, 4), torch.randn(4, 9).t()),
    ):
        near(entry("gelu_backward")(dy, x, approximate="tanh"), aten.gelu_backward(dy, x, approximate="tanh"))
        near(entry("silu_backward")(dy, x), aten.silu_backward(dy, x))
    for dy, x, target in (
        (torch.randn(1, 1, 1), torch.randn(5, 1, 1), torch.randn(6, 5, 2, 1)),
        (torch.randn(33, 5), torch.randn(5, 33).t(), torch.randn(5, 33).t()),
        (torch.randn(19), torch.randn(()), torch.randn(())),
    ):
        for reduction in (-1, 0, 1, 2, 3):  # ATen takes any number for a sum
            args = (dy, x, target, reduction)
            near(entry("mse_loss_backward")(*args), aten.mse_loss_backward(*args))


def test_rows_of_no_columns_have_the_statistics_of_torch() -> None:
    x = torch.randn(3, 0)
    found, expected = (f(x, (0,), None, None, 1e-5) for f in (entry("native_layer_norm"), aten.native_layer_norm))
    near(found, expected)
    for shape in ((0, 0), (3, 0)):
        x, target = torch.randn(shape), torch.randn(shape)
        near(entry("cross_entropy_loss")(x, target), aten.cross_entropy_loss(x, target))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mse_agrees(shape: tuple[int, ...]) -> None:
    x, target = torch.randn(shape), torch.randn(shape)
    for reduction in (0, 1, 2):
        expected = aten.mse_loss(x, target, reduction)
        near(entry("mse_loss")(x, target, reduction), expected)
        dy = torch.randn(expected.shape)
        near(entry("mse_loss_backward")(dy, x, target, reduction), aten.mse_loss_backward(dy, x, target, reduction))


@pytest.mark.parametrize(
    ("shape", "dimensions"),
    [((4, 8), 1), ((0, 8), 1), ((3, 1), 1), ((5, 7, 33), 1), ((3, 7, 5), 2), ((9,), 1)],
    ids=str,
)
def test_layer_norm_agrees(shape: tuple[int, ...], dimensions: int) -> None:
    x, dy = torch.randn(shape), torch.randn(shape)
    over = shape[-dimensions:]
    for weight, bias in ((torch.randn(over), torch.randn(over)), (torch.randn(over), None), (None, None)):
        expected = aten.native_layer_norm(x, over, weight, bias, 1e-5)
        near(entry("native_layer_norm")(x, over, weight, bias, 1e-5), expected)
        for mask in ([True, weight is not None, bias is not None], [False, weight is not None, False]):
            args = (dy, x, over, expected[1], expected[2], weight, bias, mask)
            found, wanted = entry("native_layer_norm_backward")(*args), aten.native_layer_norm_backward(*args)
            assert [item is None for item in found] == [not asked for asked in mask]
            # One column: its exact gradient is 0, and both sides leave a rounding of it times 1 / sqrt(eps).
            atol = 1e-3 if over == (1,) else 1e-4
            near([item for item in found if item is not None], [item for item in wanted if item is not None], atol)


@pytest.mark.usefixtures("short_blocks")
def test_layer_norm_of_rows_longer_than_a_block_agrees() -> None:
    test_layer_norm_agrees((6, LONG), 1)


def test_layer_norm_takes_rows_that_lie_apart() -> None:
    x = torch.randn(6, 40)[:, :20]
    near(entry("native_layer_norm")(x, (20,), None, None, 1e-5), aten.native_layer_norm(x, (20,), None, None, 1e-5))


CROSS_ENTROPY_OPTIONS = [
    options for options in itertools.product((False, True), (False, True), (0, 1, 2), (0.0, 0.1)) if sum(options) < 3
]
"""Probabilities, weight, reduction, smoothing."""


@pytest.mark.parametrize("shape", [(4, 7), (1, 1), (3, 5, 2), (2, 5000), (0, 4)], ids=str)
def test_cross_entropy_agrees(shape: tuple[int, ...]) -> None:
    classes = shape[1]
    indices = torch.randint(0, classes, (shape[0], *shape[2:]))
    if indices.numel() > 2:
        indices.view(-1)[1] = -100
    large = torch.Size(shape).numel() > 1000
    for probable, weighted, reduction, smoothing in CROSS_ENTROPY_OPTIONS[:: 5 if large else 1]:
        target = torch.softmax(torch.randn(shape), 1) if probable else indices
        weight = torch.rand(classes) + 0.5 if weighted else None
        options = (target, weight, reduction, -100, smoothing)
        x = torch.randn(shape)
        if not x.numel():
            near(entry("cross_entropy_loss")(x, *options), aten.cross_entropy_loss(x, *options))
            continue
        found, expected = (
            gradients(lambda x, f=function, o=options: f(x, *o), x)
            for function in (entry("cross_entropy_loss"), aten.cross_entropy_loss)
        )
        near(found, expected)


def test_cross_entropy_counts_an_impossible_class_as_torch_does() -> None:
    x = torch.tensor([[0.0, float("-inf"), 1.0], [float("-inf"), 0.0, 0.0]])
    for target in (torch.tensor([0, 2]), torch.tensor([1, 0])):
        near(entry("cross_entropy_loss")(x, target), aten.cross_entropy_loss(x, target))


@pytest.mark.parametrize("x", [torch.randn(4, 8), torch.randn(3, 33), torch.randn(5, 40)[:, :20], torch.randn(0, 8)])
def test_the_fused_kernel_agrees(x: torch.Tensor) -> None:
    weight, bias, dy = torch.randn(x.shape[-1]), torch.randn(x.shape[-1]), torch.randn(x.shape)
    module = fused("layer_norm_gelu", "triton")
    for approximate in ("none", "tanh"):
        leaves = [leaf.clone().requires_grad_() for leaf in (x, weight, bias)]
        wanted = functional.gelu(
            functional.layer_norm(leaves[0], weight.shape, *leaves[1:], 1e-5), approximate=approximate
        )
        y, mean, rstd = module.forward(x, weight, bias, 1e-5, approximate)
        near(y, wanted.detach())
        found = module.backward(dy, x, weight, bias, mean, rstd, approximate)
        near(list(found), list(torch.autograd.grad(wanted, leaves, dy)), 1e-4)


@pytest.mark.usefixtures("short_blocks")
def test_the_fused_kernel_agrees_on_rows_longer_than_a_block() -> None:
    test_the_fused_kernel_agrees(torch.randn(6, LONG))


# ---- as functions with autograd

X, W, B = torch.randn(4, 3, 6), torch.randn(6), torch.randn(6)
FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "layer_norm": (lambda x, w, b, impl: kernels.layer_norm(x, w, b, impl=impl), (X, W, B)),
    "layer_norm without bias": (lambda x, w, impl: kernels.layer_norm(x, w, impl=impl), (X, W)),
    "layer_norm without either": (lambda x, impl: kernels.layer_norm(x, impl=impl), (X,)),
    "layer_norm of two": (
        lambda x, w, impl: kernels.layer_norm(x, None, w, normalized_shape=(3, 6), impl=impl),
        (X, torch.randn(3, 6)),
    ),
    "gelu": (lambda x, impl: kernels.gelu(x, impl=impl), (X,)),
    "gelu by tanh": (lambda x, impl: kernels.gelu(x, "tanh", impl=impl), (X.transpose(0, 2),)),
    "swish": (lambda x, impl: kernels.swish(x, impl=impl), (X,)),
    "mse_loss": (lambda x, y, impl: kernels.mse_loss(x, y, impl=impl), (X, torch.randn(4, 3, 6))),
    "mse_loss broadcast": (lambda x, y, impl: kernels.mse_loss(x, y, "sum", impl=impl), (X, W)),
    "mse_loss of each": (lambda x, y, impl: kernels.mse_loss(x, y, "none", impl=impl), (torch.randn(3, 1), W)),
    "cross_entropy": (
        lambda x, impl: kernels.cross_entropy(x, torch.tensor([[0, 2, 1, 0, -100, 1]] * 4), impl=impl),
        (X,),
    ),
    "cross_entropy of one": (lambda x, impl: kernels.cross_entropy(x, torch.tensor(2), W.abs(), impl=impl), (W,)),
    "layer_norm_gelu": (lambda x, w, b, impl: kernels.layer_norm_gelu(x, w, b, impl=impl), (X, W, B)),
    "layer_norm_gelu by tanh": (
        lambda x, w, b, impl: kernels.layer_norm_gelu(x, w, b, 1e-3, "tanh", impl=impl),
        (X, torch.randn(3, 6), torch.randn(3, 6)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients_are_those_of_torch(name: str) -> None:
    function, leaves = FUNCTIONS[name]
    found, expected = (
        gradients(lambda *own, impl=impl: function(*own, impl=impl), *leaves) for impl in ("triton", "torch")
    )
    near(found, expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_autograd_node_is_made_without_need(name: str) -> None:
    function, leaves = FUNCTIONS[name]
    assert function(*leaves, impl="triton").grad_fn is None
    with torch.no_grad():
        assert function(*(leaf.clone().requires_grad_() for leaf in leaves), impl="triton").grad_fn is None


@pytest.mark.parametrize("name", ["layer_norm", "gelu", "swish", "mse_loss", "cross_entropy", "layer_norm_gelu"])
def test_a_second_derivative_is_refused(name: str) -> None:
    function, leaves = FUNCTIONS[name]
    own = [leaf.clone().requires_grad_() for leaf in leaves]
    (first, *_) = torch.autograd.grad(function(*own, impl="triton").square().sum(), own, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_only_what_asks_for_a_gradient_gets_one() -> None:
    weight = W.clone().requires_grad_()
    kernels.layer_norm(X, weight, B, impl="triton").sum().backward()
    assert weight.grad is not None
    target = X.clone().requires_grad_()
    kernels.mse_loss(X * 2, target, impl="triton").backward()
    near(target.grad, -2 * X / X.numel())


# ---- what is refused


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kernels.gelu(X.double()), "takes float32, float16 and bfloat16, and this is torch.float64"),
        (lambda: kernels.gelu(X, "erf"), "unknown approximation of GELU 'erf'"),
        (lambda: kernels.gelu(X, impl="tritn"), "unknown implementation 'tritn'. Did you mean 'triton'"),
        (lambda: kernels.mse_loss(X, X.half()), "Give both one dtype"),
        (lambda: kernels.mse_loss(X, X, "average"), "unknown reduction 'average'"),
        (lambda: kernels.layer_norm(X, torch.ones(5)), "cannot be normalised over"),
        (lambda: kernels.layer_norm(X, torch.ones(6), torch.ones(5)), "bias has shape"),
        (lambda: kernels.layer_norm(torch.ones(()), None), "cannot be normalised over"),
        (lambda: kernels.cross_entropy(X, torch.zeros(4, 5).long()), "indices have shape"),
        (lambda: kernels.cross_entropy(X, torch.zeros(4, 6).int()), "must be int64"),
        (lambda: kernels.cross_entropy(X, torch.zeros(4, 6).long(), torch.ones(4)), "one per class is 3"),
        (lambda: kernels.cross_entropy(X, torch.zeros_like(X).requires_grad_()), "get no gradient"),
        (lambda: kernels.layer_norm_gelu(X, None, None), "needs weight and bias"),  # type: ignore[arg-type]
    ],
)
def test_what_kernels_cannot_take_is_refused_in_one_line(call: Callable[[], torch.Tensor], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# ---- installed in the place of ATen's operators


def test_enabled_by_name_they_train_a_model() -> None:
    def step() -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.SiLU())
        functional.mse_loss(model(X), torch.ones(4, 3, 8)).backward()
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    expected = step()
    with torchstone.enable("torchstone-triton", device="cpu") as installation:
        found = step()
        functional.cross_entropy(X, torch.zeros(4, 6).long())
    near(found, expected)
    assert set(installation.calls) == set(kernels.operators("triton"))
    assert all(installation.calls.values()), installation.calls
