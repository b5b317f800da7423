"""What a variant alone would mistake for a move is none if the stated case does more."""

from __future__ import annotations

import torch

from torchstone.judging import Agreement, Mismatch, Reference, compare, draw_call
from torchstone.schema import Case, Normal, Scalar, Tensor

CPU = torch.device("cpu")


def product(columns: int) -> Case:
    return Case("tests", "aten.prod.dim_int", (Tensor((24, columns), "float32", Normal()), Scalar(1)))


def judged(reference: Reference, error: float) -> Agreement | Mismatch:
    """A product that is off by as much, relatively."""
    expected = reference.expect(draw_call(reference.case, 3, CPU))
    exact = expected.call.args[0].double().prod(1)
    return compare(expected, [(exact * (1 + error)).float()], [tensor.storage for tensor in expected.call.tensors])


def test_a_product_of_one_factor_need_not_be_its_very_bits() -> None:
    stated = Reference(product(6), CPU)
    assert isinstance(judged(stated, 0.0), Agreement)
    alone, variant = Reference(product(1), CPU), Reference(product(1), CPU, stated=stated)
    assert isinstance(judged(alone, 1e-7), Mismatch), "one factor alone looks as if it were moved"
    assert isinstance(judged(variant, 1e-7), Agreement)
    assert isinstance(judged(variant, 1e-5), Mismatch)


def test_what_is_moved_in_the_stated_case_must_be_moved_in_a_variant() -> None:
    def flipped(columns: int) -> Case:
        return Case("tests", "aten.neg.default", (Tensor((24, columns), "float32", Normal()),))

    def off(reference: Reference) -> Agreement | Mismatch:
        expected = reference.expect(draw_call(reference.case, 3, CPU))
        result = expected.call.args[0].neg() * (1 + 1e-6)
        return compare(expected, [result], [tensor.storage for tensor in expected.call.tensors])

    stated = Reference(flipped(6), CPU)
    assert isinstance(off(stated), Mismatch)
    assert isinstance(off(Reference(flipped(1), CPU, stated=stated)), Mismatch)
