"""Comparing in process: every dtype and mode of the reference is right, small errors and NaN are not."""

from __future__ import annotations

import pytest
import torch

from torchstone.schema.sweep import SweepPoint
from torchstone.sweeps.correctness_check import exact_results, mismatch
from torchstone.sweeps.forward_backward import Passes, make_gradients
from torchstone.sweeps.operations import BUILT_IN, leaves
from torchstone.sweeps.tensor_pool import TensorPool

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mode", ["fwd", "bwd", "fwd+bwd"])
@pytest.mark.parametrize("name", list(BUILT_IN))
def test_torchs_own_results_are_right_in_every_dtype_and_mode(name: str, mode: str, dtype: str) -> None:
    operation, point = BUILT_IN[name], SweepPoint(name, 3, 17, 33, dtype, mode)  # type: ignore[arg-type]
    pool = TensorPool(CPU, 0)
    inputs = operation.make_inputs(point, pool, 2)
    gradients = make_gradients(operation, point, inputs, pool)
    passes = Passes(operation, point.mode)
    with torch.set_grad_enabled(mode != "fwd"):
        exact = exact_results(passes, operation.reference, inputs[0], gradients[0], torch.float64)
        first, second = (
            mismatch(passes.results(call), exact, getattr(torch, dtype), operation.pointwise)
            for call in passes.calls(operation.reference, inputs, gradients)
        )
    assert first == ""
    if dtype == "float32":  # the mean of other values is the same one in a dtype of three digits
        assert second, "the second copy has other values"


def test_an_error_of_a_thousandth_is_seen_and_told_with_its_place() -> None:
    exact = (torch.ones(4, 5, dtype=torch.float64),)
    wrong = torch.ones(4, 5)
    wrong[2, 3] = 1.001
    told = mismatch((wrong,), exact, torch.float32, pointwise=False)
    assert told.startswith("result 0 at [2, 3]: got 1.001, expected 1, ")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_wrong(value: float) -> None:
    wrong = torch.ones(8)
    wrong[1] = value
    assert "at [1]" in mismatch((wrong,), (torch.ones(8, dtype=torch.float64),), torch.float32, pointwise=True)


def test_nan_and_infinities_agree_with_the_same_alone() -> None:
    special = torch.tensor([float("nan"), float("inf"), -float("inf")], dtype=torch.float64)
    exact = torch.cat([special, torch.linspace(-2, 2, 13, dtype=torch.float64)])
    for dtype in (torch.float32, torch.bfloat16):
        assert mismatch((exact.to(dtype),), (exact,), dtype, pointwise=True) == ""
    for place in range(3):
        for other in (1.0, *(value for number, value in enumerate(special.tolist()) if number != place)):
            ours = exact.float()
            ours[place] = other
            assert f"at [{place}]" in mismatch((ours,), (exact,), torch.float32, pointwise=True), (place, other)


def test_the_bound_of_finite_elements_does_not_shrink_beside_infinite_ones() -> None:
    """An element near zero may be off by the level of all the others."""
    exact = torch.full((1, 8), 100.0, dtype=torch.float64)
    exact[0, 0] = 1e-9
    ours = exact.float()
    ours[0, 0] = 1e-6
    assert mismatch((ours,), (exact,), torch.float32, pointwise=True) == ""
    ours[0, 7] = exact[0, 7] = -float("inf")
    assert mismatch((ours,), (exact,), torch.float32, pointwise=True) == ""


def test_other_shapes_and_counts_are_wrong() -> None:
    exact = (torch.ones(4, dtype=torch.float64),)
    assert mismatch((), exact, torch.float32, pointwise=True) == "0 results, expected 1"
    assert "shape" in mismatch((torch.ones(2, 2),), exact, torch.float32, pointwise=True)
    assert mismatch((torch.ones(0),), (torch.ones(0, dtype=torch.float64),), torch.float32, pointwise=True) == ""


def test_tensors_of_different_roles_and_copies_differ_and_are_aligned() -> None:
    pool = TensorPool(CPU, 0)
    x, y = (pool.normal(role, (3, 7), torch.float32, 2) for role in ("x", "target"))
    assert not torch.equal(x[0], y[0])
    assert not torch.equal(x[0], x[1])
    assert (x[1].data_ptr() - x[0].data_ptr()) % 512 == 0
    assert pool.normal("x", (3, 7), torch.float32, 1)[0].data_ptr() == x[0].data_ptr(), "made once, then shared"
    assert torch.equal(TensorPool(CPU, 0).normal("x", (3, 7), torch.float32, 2)[1], x[1])


def test_bytes_are_those_of_arguments_and_results() -> None:
    """Counted by hand in the operations; here from real tensors."""
    for name, operation in BUILT_IN.items():
        point = SweepPoint(name, 3, 5, 16, "float32", "fwd")
        (inputs,) = operation.make_inputs(point, TensorPool(CPU, 0), 1)
        moved = operation.moved_bytes(point)
        assert moved is not None
        assert moved.read_bytes == sum(tensor.nbytes for tensor in inputs)
        assert moved.written_bytes == sum(tensor.nbytes for tensor in leaves(operation.reference(*inputs)))
