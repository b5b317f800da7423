"""The built-in kernels on a GPU against torch in float64: Triton and CUDA C++, forward and backward, at odd sizes."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

import torchstone

pytestmark = pytest.mark.gpu

KERNELS = Path(torchstone.__file__).parent / "kernels"
IMPLS = ("triton", "cuda")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ULP = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
COUNTS = (0, 1, 3, 127, 4096, 4099, 1_000_003)
COLUMNS = (1, 3, 8, 10, 64, 127, 128, 500, 512, 768, 1001, 1024, 2048, 4095, 4096, 6000, 8192, 16384, 20000, 100_000)

impls = pytest.mark.parametrize("impl", IMPLS)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@functools.cache
def entry(impl: str, operator: str) -> Callable[..., Any]:
    """The kernel's function, from its file: as a kernel author would copy it."""
    path = KERNELS / impl / operator / f"{operator}.py"
    spec = importlib.util.spec_from_file_location(f"{operator}_{impl}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, f"{operator}_kernel_impl")


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return (torch.randn(shape, generator=generator, device="cuda", dtype=torch.float64) * scale).to(dtype)


def agree(found: torch.Tensor | None, wanted: torch.Tensor, *, ulps: float = 8, floor: float = 1.0) -> None:
    """Within some units in the last place of the value, or of `floor` for those below it; NaN and infinity in place."""
    assert found is not None
    assert found.shape == wanted.shape
    allowed = ulps * ULP[found.dtype] * wanted.abs().clamp(min=floor)
    if found.dtype == torch.float16:
        wanted = wanted.to(found.dtype).double()  # what overflows there is infinite
    close = (found.double() - wanted).abs() <= allowed
    same = (found.double() == wanted) | (found.isnan() & wanted.isnan())
    bad = ~(close | same)
    assert not bad.any(), (int(bad.sum()), found[bad][:4].tolist(), wanted[bad][:4].tolist())


# ---- elementwise


UNARY = [("gelu", {"approximate": "none"}), ("gelu", {"approximate": "tanh"}), ("silu", {})]
SPECIAL = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-30, -1e-30, 100.0, -100.0, 30000.0, -30000.0]


@impls
@dtypes
@pytest.mark.parametrize(("operator", "options"), UNARY, ids=str)
def test_activations(impl: str, dtype: torch.dtype, operator: str, options: dict[str, str]) -> None:
    kernel, backward = entry(impl, operator), entry(impl, f"{operator}_backward")
    reference = getattr(functional, operator)
    for count in COUNTS:
        x, dy = drawn(count, dtype=dtype, scale=3), drawn(count, dtype=dtype, seed=1)
        leaf = x.double().requires_grad_()
        wanted = reference(leaf, **options)
        agree(kernel(x, **options), wanted.detach(), ulps=2)
        # The argument of tanh is rounded, and where its derivative is small that is many of its last places.
        agree(backward(dy, x, **options), torch.autograd.grad(wanted, leaf, dy.double())[0], ulps=48 if options else 8)
    unaligned = drawn(1001, dtype=dtype)[1:]
    agree(kernel(unaligned, **options), reference(unaligned.double(), **options), ulps=2)
    crossed = drawn(33, 65, dtype=dtype).t()
    agree(kernel(crossed, **options), reference(crossed.double(), **options), ulps=2)
    agree(kernel(crossed[::2], **options), reference(crossed[::2].double(), **options), ulps=2)
    special = torch.tensor(SPECIAL, device="cuda", dtype=dtype)
    agree(kernel(special, **options), reference(special, **options).double(), ulps=2)


@impls
@dtypes
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_mse_loss(impl: str, dtype: torch.dtype, reduction: str) -> None:
    number = {"none": 0, "mean": 1, "sum": 2}[reduction]
    kernel, backward = entry(impl, "mse_loss"), entry(impl, "mse_loss_backward")
    for count in COUNTS:
        x, target = drawn(count, dtype=dtype), drawn(count, dtype=dtype, seed=1)
        leaf = x.double().requires_grad_()
        wanted = functional.mse_loss(leaf, target.double(), reduction=reduction)
        agree(kernel(x, target, number), wanted.detach(), ulps=16)
        dy = drawn(*wanted.shape, dtype=dtype, seed=2)
        grad = torch.autograd.grad(wanted, leaf, dy.double())[0]
        agree(backward(dy, x, target, number), grad, ulps=4, floor=2.0 / max(1, count))
    column, row = drawn(33, 1, dtype=dtype), drawn(1, 65, dtype=dtype, seed=1)
    wanted = (column.double() - row.double()).square()
    wanted = wanted if reduction == "none" else getattr(wanted, reduction)()
    agree(kernel(column, row, number), wanted, ulps=16)
    tilted = drawn(33, 65, dtype=dtype).t()
    other, dy = drawn(65, 33, dtype=dtype, seed=1), drawn(65, 33, dtype=dtype, seed=2)
    agree(backward(dy, tilted, other, 0), 2 * (tilted.double() - other.double()) * dy.double(), ulps=4)
    x = torch.tensor([1.0, float("nan"), float("inf")], device="cuda", dtype=dtype)
    agree(
        kernel(x, torch.zeros_like(x), number),
        functional.mse_loss(x, torch.zeros_like(x), reduction=reduction).double(),
    )


# ---- layer norm


def layer_norm(
    x: torch.Tensor, columns: int, w: torch.Tensor | None, b: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    return torch.ops.aten.native_layer_norm(x, [columns], w, b, 1e-5)


@impls
@dtypes
@pytest.mark.parametrize("columns", COLUMNS)
def test_layer_norm(impl: str, dtype: torch.dtype, columns: int) -> None:
    kernel, backward = entry(impl, "native_layer_norm"), entry(impl, "native_layer_norm_backward")
    w, b = drawn(columns, dtype=dtype, seed=1), drawn(columns, dtype=dtype, seed=2)
    for rows in (0, 1, 5, 300 if columns > 20000 else 5001):
        x, dy = drawn(rows, columns, dtype=dtype, scale=2) + 3, drawn(rows, columns, dtype=dtype, seed=3)
        wanted = layer_norm(x.double(), columns, w.double(), b.double())
        found = kernel(x, [columns], w, b, 1e-5)
        if not rows:
            assert [item.shape for item in found] == [item.shape for item in wanted]
            continue
        agree(found[0], wanted[0], ulps=16 if columns > 1 else 512)
        agree(found[1], wanted[1], ulps=16)
        agree(found[2], wanted[2], ulps=32)
        grads = torch.ops.aten.native_layer_norm_backward(
            dy.double(), x.double(), [columns], wanted[1], wanted[2], w.double(), b.double(), [True, True, True]
        )
        got = backward(dy, x, [columns], found[1], found[2], w, b, [True, True, True])
        agree(got[0], grads[0], ulps=64, floor=float(wanted[2].max()))
        for item, grad in zip(got[1:], grads[1:], strict=True):
            agree(item, grad, ulps=32, floor=rows**0.5 * (300 if columns == 1 else 1))


@impls
@dtypes
def test_layer_norm_without_parameters_and_with_other_masks(impl: str, dtype: torch.dtype) -> None:
    kernel, backward = entry(impl, "native_layer_norm"), entry(impl, "native_layer_norm_backward")
    for columns in (10, 768, 20000):
        x, dy = drawn(40, columns, dtype=dtype), drawn(40, columns, dtype=dtype, seed=1)
        w, b = drawn(columns, dtype=dtype, seed=2), drawn(columns, dtype=dtype, seed=3)
        for weight, bias in ((None, None), (w, None), (None, b)):
            y, mean, rstd = kernel(x, [columns], weight, bias, 1e-5)
            double = [None if item is None else item.double() for item in (weight, bias)]
            agree(y, layer_norm(x.double(), columns, *double)[0], ulps=16)
        _, mean, rstd = kernel(x, [columns], w, b, 1e-5)
        whole = backward(dy, x, [columns], mean, rstd, w, b, [True, True, True])
        for mask in ([True, False, False], [False, True, True], [False, False, True]):
            part = backward(dy, x, [columns], mean, rstd, w, b, mask)
            for asked, found, wanted in zip(mask, part, whole, strict=True):
                assert (found is not None) == asked
                assert found is None or torch.equal(found, wanted)
        plain = backward(dy, x, [columns], mean, rstd, None, None, [True, False, False])[0]
        grads = torch.ops.aten.native_layer_norm_backward(
            dy.double(), x.double(), [columns], mean.double(), rstd.double(), None, None, [True, False, False]
        )
        agree(plain, grads[0], ulps=64)


@impls
def test_layer_norm_of_rows_that_lie_apart_and_of_odd_values(impl: str) -> None:
    kernel = entry(impl, "native_layer_norm")
    wide = drawn(50, 1000)
    for start, columns in ((0, 768), (1, 768), (3, 301)):
        x = wide[:, start : start + columns]
        agree(kernel(x, [columns], None, None, 1e-5)[0], layer_norm(x.double(), columns, None, None)[0], ulps=16)
    cube = drawn(7, 6, 5)
    agree(kernel(cube, [6, 5], None, None, 1e-5)[0], functional.layer_norm(cube.double(), [6, 5]), ulps=16)
    far = drawn(20, 512, scale=0.01) + 1000  # E[x²] - E[x]² would have no correct digit
    agree(kernel(far, [512], None, None, 1e-5)[0], layer_norm(far.double(), 512, None, None)[0], ulps=2**18)
    for columns in (100, 20000):
        x = drawn(4, columns)
        x[1, 5], x[2, 7] = float("nan"), float("inf")
        y = kernel(x, [columns], None, None, 1e-5)[0]
        assert y[1:3].isnan().all()
        agree(y[[0, 3]], layer_norm(x[[0, 3]].double(), columns, None, None)[0], ulps=16)


@impls
def test_sums_are_the_same_every_time(impl: str) -> None:
    x, dy = drawn(3000, 768), drawn(3000, 768, seed=1)
    w = torch.ones(768, device="cuda")
    _, mean, rstd = entry(impl, "native_layer_norm")(x, [768], w, w, 1e-5)
    backward, loss = entry(impl, "native_layer_norm_backward"), entry(impl, "mse_loss")
    first = backward(dy, x, [768], mean, rstd, w, w, [True, True, True])
    for _ in range(5):
        assert all(map(torch.equal, backward(dy, x, [768], mean, rstd, w, w, [True, True, True]), first))
        assert torch.equal(loss(x, dy, 1), loss(x, dy, 1))


# ---- cross-entropy


def compare_cross_entropy(impl: str, x: torch.Tensor, target: torch.Tensor, **options: Any) -> None:
    weight = options.get("weight")
    number = {"none": 0, "mean": 1, "sum": 2}[options.get("reduction", "mean")]
    ours, theirs = x.clone().requires_grad_(), x.double().requires_grad_()
    found = entry(impl, "cross_entropy_loss")(
        ours, target, weight, number, options.get("ignore_index", -100), options.get("label_smoothing", 0.0)
    )
    double = {**options, "weight": None if weight is None else weight.double()}
    wanted = functional.cross_entropy(theirs, target.double() if target.is_floating_point() else target, **double)
    agree(found.detach(), wanted.detach(), ulps=32)
    if found.numel() and not wanted.detach().isnan().all():
        dy = drawn(*wanted.shape, dtype=x.dtype, seed=9)
        mine, grad = torch.autograd.grad(found, ours, dy)[0], torch.autograd.grad(wanted, theirs, dy.double())[0]
        agree(mine, grad, ulps=16, floor=float(grad.abs().max()) if grad.numel() else 1.0)


@impls
@dtypes
@pytest.mark.parametrize("columns", [1, 2, 10, 127, 1000, 4096, 50257, 100_000])
def test_cross_entropy(impl: str, dtype: torch.dtype, columns: int) -> None:
    generator = torch.Generator("cuda").manual_seed(5)
    for rows in (1, 5, 64 if columns > 10000 else 3001):
        x = drawn(rows, columns, dtype=dtype, scale=3)
        target = torch.randint(0, columns, (rows,), generator=generator, device="cuda")
        weight = torch.rand(columns, generator=generator, device="cuda").to(dtype)
        shares = drawn(rows, columns, seed=4).softmax(1).to(dtype)
        ignoring = torch.where(torch.arange(rows, device="cuda") % 3 == 1, -100, target)
        for reduction in ("none", "mean", "sum"):
            compare_cross_entropy(impl, x, target, reduction=reduction)
            compare_cross_entropy(impl, x, ignoring, weight=weight, reduction=reduction)
            compare_cross_entropy(impl, x, ignoring, label_smoothing=0.1, reduction=reduction)
        compare_cross_entropy(impl, x, ignoring, weight=weight, label_smoothing=0.2)
        compare_cross_entropy(impl, x, shares)
        compare_cross_entropy(impl, x, shares, weight=weight, label_smoothing=0.2)


@impls
def test_cross_entropy_of_odd_shapes_and_values(impl: str) -> None:
    classes = torch.randint(0, 7, (3, 4, 5), device="cuda")
    compare_cross_entropy(impl, drawn(3, 7, 4, 5), classes, reduction="none")
    compare_cross_entropy(impl, drawn(7), classes[0, 0, 0])
    compare_cross_entropy(impl, drawn(0, 7), classes.new_zeros(0), reduction="sum")
    compare_cross_entropy(impl, drawn(0, 7), classes.new_zeros(0), reduction="mean")
    compare_cross_entropy(impl, drawn(4, 7), torch.full((4,), 2, device="cuda"), ignore_index=2, reduction="sum")
    compare_cross_entropy(impl, drawn(4, 7) * 1e4, classes[0, :, 0], reduction="none")
    x = drawn(6, 50)
    x[0, 3], x[1, :], x[2, 4], x[3, 5] = float("nan"), float("-inf"), float("inf"), float("-inf")
    target = torch.zeros(6, dtype=torch.int64, device="cuda")
    found = entry(impl, "cross_entropy_loss")(x, target, None, 0)
    agree(found, functional.cross_entropy(x.double(), target, reduction="none"), ulps=32)


# ---- what only the launcher of CUDA C++ can get wrong


def test_a_graph_replays_cuda_kernels() -> None:
    x, target = drawn(4096, 512), drawn(4096, 512, seed=1)
    gelu, loss = entry("cuda", "gelu"), entry("cuda", "mse_loss")
    gelu(x)
    loss(x, target)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, total = gelu(x), loss(x, target)
    for seed in (2, 3):
        x.copy_(drawn(4096, 512, seed=seed))
        graph.replay()
        agree(y, functional.gelu(x.double()), ulps=4)
        agree(total, functional.mse_loss(x.double(), target.double()), ulps=16)


def test_cuda_kernels_run_in_the_current_stream() -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros(1 << 20, device="cuda")
        torch.cuda._sleep(50_000_000)
        x.fill_(2.0)
        y = entry("cuda", "silu")(x)
    stream.synchronize()
    agree(y, functional.silu(x.double()), ulps=4)


def test_cuda_kernels_refuse_other_tensors() -> None:
    gelu = entry("cuda", "gelu")
    for x in (torch.ones(3), torch.ones(3, device="cuda", dtype=torch.float64)):
        with pytest.raises(NotImplementedError):
            gelu(x)


# ---- layer norm and GELU in one


@pytest.mark.parametrize("impl", IMPLS)
@dtypes
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_layer_norm_gelu(impl: str, dtype: torch.dtype, approximate: str) -> None:
    fused = pytest.importorskip(f"torchstone.kernels.fused.layer_norm_gelu_{impl}")
    for rows, columns in ((0, 8), (1, 1), (5, 10), (3000, 128), (2000, 768), (300, 4096), (100, 8192), (40, 20000)):
        x, dy = drawn(rows, columns, dtype=dtype), drawn(rows, columns, dtype=dtype, seed=1)
        w, b = drawn(columns, dtype=dtype, seed=2), drawn(columns, dtype=dtype, seed=3)
        leaves = [item.double().requires_grad_() for item in (x, w, b)]
        wanted = functional.gelu(functional.layer_norm(leaves[0], [columns], *leaves[1:]), approximate=approximate)
        y, mean, rstd = fused.forward(x, w, b, 1e-5, approximate)
        agree(y, wanted.detach(), ulps=16)
        if rows and columns > 1:
            grads = torch.autograd.grad(wanted, leaves, dy.double())
            found = fused.backward(dy, x, w, b, mean, rstd, approximate)
            agree(found[0], grads[0], ulps=64)
            for item, grad in zip(found[1:], grads[1:], strict=True):
                agree(item, grad, ulps=32, floor=rows**0.5)
