"""Results that stay with their owner: which are kept, and what may not happen to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from torchstone.judge_process import block_results as told
from torchstone.judge_process.block_guards import OwnMemoryGuard
from torchstone.judge_process.call_layout import CallLayout
from torchstone.judge_process.candidate_session import CandidateSession
from torchstone.judge_process.randomness_across_retries import RepeatableRandomness
from torchstone.judge_process.retained_results import LostResultError, RetainedResults
from torchstone.judging import Reference, draw_calls
from torchstone.protocol.replies import Done
from torchstone.protocol.tensor_places import ResultAddress, Segment
from torchstone.schema import Case, Implementation, ImportPath, Job, Normal, Tensor
from torchstone.supervisor.result_reading import Copies, Span, UnreadableError

CPU = torch.device("cpu")
ARENA, OWN, BYTES = 1 << 40, 1 << 41, 96
RELU = Case("test", "aten.relu.default", (Tensor((4, 6), "float32", Normal()),))
GARBAGE = torch.randint(0, 256, (1 << 12,), dtype=torch.uint8)


class Memory:
    """A worker's memory, and who reads it."""

    def __init__(self) -> None:
        self.spans: dict[int, torch.Tensor] = {}

    def read(self, spans: Sequence[Span], segments: Sequence[Segment]) -> Copies:
        if any(span.address not in self.spans for span in spans):
            raise UnreadableError("no such memory")
        return Copies([self.spans[span.address] for span in spans], [(i, 0) for i in range(len(spans))], spans)

    def overwrite(self, spans: Sequence[Span], garbage: torch.Tensor) -> None:
        self.spans |= {span.address: garbage[: span.size_bytes].clone() for span in spans}

    def close(self) -> None: ...


def block_of(*places: ResultAddress) -> told.BlockResults:
    drawn = draw_calls(RELU, 1, 1, CPU)
    layout = CallLayout(RELU, Reference(RELU, CPU).expect_many(drawn)[0])
    row = torch.zeros(layout.pitch_bytes, dtype=torch.uint8)
    calls = tuple((place,) for place in places)
    return told.BlockResults(layout, Done("t", 1, calls), len(places), row.repeat(len(places)), ARENA, row)


def held(memory: Memory, *places: ResultAddress) -> tuple[RetainedResults, tuple[int, ...]]:
    """After a block with these results, of which one is kept."""
    retained, block = RetainedResults(), block_of(*places)
    memory.overwrite(block.spans, GARBAGE[7:])
    retained.note(block, 7)
    return retained, retained.choose()


def test_what_nobody_touches_is_as_it_was() -> None:
    memory = Memory()
    retained, calls = held(memory, ResultAddress(OWN), ResultAddress(OWN + BYTES))
    assert calls in ((0,), (1,))
    assert retained.choose() == (), "a block gives one result"
    retained.check(memory, GARBAGE)


def test_a_byte_that_changed_is_seen() -> None:
    memory = Memory()
    retained, _ = held(memory, ResultAddress(OWN))
    memory.spans[OWN][50] ^= 1
    with pytest.raises(LostResultError, match="overwritten by later calls"):
        retained.check(memory, GARBAGE)


def test_memory_that_is_gone_is_seen() -> None:
    memory = Memory()
    retained, _ = held(memory, ResultAddress(OWN))
    memory.spans.clear()
    with pytest.raises(LostResultError, match="was freed"):
        retained.check(memory, GARBAGE)


def test_a_new_result_may_not_lie_there() -> None:
    retained, _ = held(Memory(), ResultAddress(OWN))
    for address, call in ((OWN, 1), (OWN + BYTES - 4, 1), (OWN - 4, 1), (OWN + BYTES, None), (OWN - BYTES, None)):
        later = block_of(ResultAddress(OWN + (1 << 20)), ResultAddress(address))
        assert retained.find_call_on_kept_result(later) == call
        later.call_on_kept_result = retained.find_call_on_kept_result(later)
        assert (OwnMemoryGuard().examine(later) is None) == (call is None)


def test_what_has_gaps_or_lies_in_an_argument_is_not_kept() -> None:
    assert held(Memory(), ResultAddress(OWN, (12, 2)))[1] == ()
    assert held(Memory(), ResultAddress(ARENA))[1] == ()


def test_ready_results_are_passed_over() -> None:
    retained = RetainedResults()
    retained.note(block_of(ResultAddress(OWN)), 7)
    retained.pass_over()
    assert retained.choose() == ()


def test_few_are_kept_of_many_blocks() -> None:
    memory, retained, kept = Memory(), RetainedResults(), 0
    for number in range(400):
        block = block_of(ResultAddress(OWN + number * BYTES))
        memory.overwrite(block.spans, GARBAGE)
        retained.note(block, 0)
        kept += len(retained.choose())
    assert 3 <= kept <= 12
    retained.check(memory, GARBAGE)


def test_calls_that_fit_are_told_from_the_quickest_block() -> None:
    retained, block = RetainedResults(), block_of(ResultAddress(OWN), ResultAddress(OWN + BYTES))
    assert retained.calls_within(10**9) == 0, "nothing to be kept"
    for elapsed_ns, calls in ((40_000_000, 3), (2_000_000, 128), (80_000, 1500), (40_000_000, 1500), (2, 4096)):
        block.elapsed_ns = elapsed_ns
        retained.note(block, 0)
        assert retained.calls_within(60_000_000) == calls


class Resources:
    """Looks in a candidate's first job and never again."""

    def __init__(self) -> None:
        self.asked = 0

    def keeps_results_in_job(self, key: str) -> bool:
        self.asked += 1
        return self.asked == 1


def test_dying_is_no_way_around_a_look() -> None:
    job: Any = Job(RELU, Implementation("aten", RELU.operator, ImportPath("torch", "relu"), "aten"), measured=False)
    resources: Any = Resources()
    randomness = RepeatableRandomness()
    assert CandidateSession(job, resources, randomness).keeps_results()
    randomness.begin_again()
    assert CandidateSession(job, resources, randomness).keeps_results(), "the second try of the same job"
    assert not CandidateSession(job, resources).keeps_results(), "another job"
