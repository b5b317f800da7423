"""What guards over one block of calls object to, and what they leave alone."""

from __future__ import annotations

import pytest
import torch

from torchstone.judge_process import block_results
from torchstone.judge_process.block_guards import BandGuard, OwnMemoryGuard, ViewGuard
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judging import Reference, draw_calls
from torchstone.protocol.replies import Done
from torchstone.protocol.tensor_places import ResultAddress
from torchstone.schema import Booleans, Case, Normal, Scalar, Tensor
from torchstone.supervisor.worker_failures import BadReplyError

CPU = torch.device("cpu")
ARENA, OWN = 1 << 40, 1 << 41
X = Tensor((4, 6), "float32", Normal())
RELU = Case("test", "aten.relu.default", (X,))
TRANSPOSE = Case("test", "aten.transpose.int", (X, Scalar(0), Scalar(1)))
MAXIMUM = Case("test", "aten.max.dim", (X, Scalar(1)))


def told(case: Case, *calls: tuple[ResultAddress, ...]) -> block_results.BlockResults:
    """What the judge would hold if a worker had said that the results of these calls lie there."""
    drawn = draw_calls(case, 1, 1, CPU)
    layout = CallLayout(case, Reference(case, CPU).expect_many(drawn, with_bounds=False)[0])
    row = torch.randint(0, 256, (layout.pitch_bytes,), dtype=torch.uint8)
    return block_results.BlockResults(layout, Done("t", 1, calls), len(calls), row.repeat(len(calls)), ARENA, row)


def begin(found: block_results.BlockResults, call: int = 0) -> int:
    """Where the argument of a call lies, as the worker sees it."""
    return ARENA + call * found.layout.pitch_bytes + found.layout.input_placements()[0].offset_bytes


def test_bytes_beside_an_argument_must_stay() -> None:
    found = told(RELU, (ResultAddress(OWN),))
    assert BandGuard().examine(found) is None
    end = begin(found) - ARENA + 4 * 6 * 4
    found.arena[end] ^= 1
    objection = BandGuard().examine(found)
    assert objection is not None
    assert (objection.reason, objection.message[:31]) == ("bounds", "bytes behind tensor argument 0 ")


def test_results_side_by_side_are_memory_of_their_own() -> None:
    found = told(RELU, (ResultAddress(OWN),), (ResultAddress(OWN + 96),), (ResultAddress(OWN - 96),))
    assert OwnMemoryGuard().examine(found) is None


def test_results_that_overlap_are_not() -> None:
    for second in (OWN, OWN + 4, OWN + 95):
        objection = OwnMemoryGuard().examine(told(RELU, (ResultAddress(OWN),), (ResultAddress(second),)))
        assert objection is not None
        assert "of two calls lie in the same memory" in objection.message


def test_interleaved_results_are_left_alone() -> None:
    pairs = (ResultAddress(OWN, (2,)), ResultAddress(OWN + 4, (2,)))
    assert OwnMemoryGuard().examine(told(MAXIMUM, pairs)) is None


def test_two_outputs_in_one_place_are_seen() -> None:
    objection = OwnMemoryGuard().examine(told(MAXIMUM, (ResultAddress(OWN), ResultAddress(OWN))))
    assert objection is not None
    assert objection.message.startswith("outputs 0 and 1 lie in the same memory")


def test_an_argument_is_seen_whichever_call_it_belongs_to() -> None:
    found = told(RELU, (ResultAddress(OWN),), (ResultAddress(OWN + 96),))
    inside = told(RELU, (ResultAddress(OWN),), (ResultAddress(begin(found)),))
    objection = OwnMemoryGuard().examine(inside)
    assert objection is not None
    assert objection.call == 1
    assert "in the memory of tensor argument 0" in objection.message


def test_a_hidden_alias_is_believed_over_any_address() -> None:
    found = told(RELU, (ResultAddress(OWN),))
    found.hidden_alias = 0
    assert OwnMemoryGuard().examine(found) is not None


def test_a_view_has_one_right_place() -> None:
    where = begin(told(TRANSPOSE, (ResultAddress(OWN),)))
    assert ViewGuard().examine(told(TRANSPOSE, (ResultAddress(where, (1, 6)),))) is None
    for wrong in (ResultAddress(where), ResultAddress(where + 4, (1, 6)), ResultAddress(OWN, (1, 6))):
        assert ViewGuard().examine(told(TRANSPOSE, (wrong,))) is not None


def test_strides_and_shapes_are_checked_where_there_are_no_elements_too() -> None:
    empty = Case("test", "aten.relu.default", (Tensor((0, 6), "float32", Normal()),))
    some = Case("test", "aten.nonzero.default", (Tensor((4, 6), "bool", Booleans()),))
    assert told(empty, (ResultAddress(OWN, (6, 1)),)).outputs(0)[0].shape == (0, 6)
    assert told(some, (ResultAddress(OWN, None, (0, 2)),)).outputs(0)[0].shape == (0, 2)
    with pytest.raises(BadReplyError, match="strides"):
        told(empty, (ResultAddress(OWN, (1,) * 9),))
    for shape in ((1 << 48, 1 << 48, 0), (1 << 48, 1 << 48, 1 << 48), (1,) * 65):
        with pytest.raises(BadReplyError, match="shape"):
            told(some, (ResultAddress(OWN, None, shape),))
