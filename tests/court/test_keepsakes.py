"""Results that stay with their owner: which are kept, and what may not happen to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from torchstone.court import testimony as told
from torchstone.court.evidence import OwnMemoryGuard
from torchstone.court.hearing import Hearing, Lots
from torchstone.court.keepsakes import Keepsakes, LostResultError
from torchstone.court.layout import Layout
from torchstone.judging import Reference, draw_calls
from torchstone.schema import Case, Implementation, ImportPath, Job, Normal, Tensor
from torchstone.workers.protocol import Done, Place, Segment
from torchstone.workers.reading import Copies, Span, UnreadableError

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


def block(*places: Place) -> told.Testimony:
    drawn = draw_calls(RELU, 1, 1, CPU)
    layout = Layout(RELU, Reference(RELU, CPU).expect_many(drawn)[0])
    row = torch.zeros(layout.pitch_bytes, dtype=torch.uint8)
    calls = tuple((place,) for place in places)
    return told.Testimony(layout, Done("t", 1, calls), len(places), row.repeat(len(places)), ARENA, row)


def held(memory: Memory, *places: Place) -> tuple[Keepsakes, tuple[int, ...]]:
    """After a block with these results, of which one is kept."""
    keepsakes, testimony = Keepsakes(), block(*places)
    memory.overwrite(testimony.spans, GARBAGE[7:])
    keepsakes.note(testimony, 7)
    return keepsakes, keepsakes.choose()


def test_what_nobody_touches_is_as_it_was() -> None:
    memory = Memory()
    keepsakes, calls = held(memory, Place(OWN), Place(OWN + BYTES))
    assert calls in ((0,), (1,))
    assert keepsakes.choose() == (), "a block gives one result"
    keepsakes.check(memory, GARBAGE)


def test_a_byte_that_changed_is_seen() -> None:
    memory = Memory()
    keepsakes, _ = held(memory, Place(OWN))
    memory.spans[OWN][50] ^= 1
    with pytest.raises(LostResultError, match="overwritten by later calls"):
        keepsakes.check(memory, GARBAGE)


def test_memory_that_is_gone_is_seen() -> None:
    memory = Memory()
    keepsakes, _ = held(memory, Place(OWN))
    memory.spans.clear()
    with pytest.raises(LostResultError, match="is gone"):
        keepsakes.check(memory, GARBAGE)


def test_a_new_result_may_not_lie_there() -> None:
    keepsakes, _ = held(Memory(), Place(OWN))
    for address, call in ((OWN, 1), (OWN + BYTES - 4, 1), (OWN - 4, 1), (OWN + BYTES, None), (OWN - BYTES, None)):
        later = block(Place(OWN + (1 << 20)), Place(address))
        assert keepsakes.covered_by(later) == call
        later.on_kept = keepsakes.covered_by(later)
        assert (OwnMemoryGuard().examine(later) is None) == (call is None)


def test_what_has_gaps_or_lies_in_an_argument_is_not_kept() -> None:
    assert held(Memory(), Place(OWN, (12, 2)))[1] == ()
    assert held(Memory(), Place(ARENA))[1] == ()


def test_ready_results_are_passed_over() -> None:
    keepsakes = Keepsakes()
    keepsakes.note(block(Place(OWN)), 7)
    keepsakes.pass_over()
    assert keepsakes.choose() == ()


def test_few_are_kept_of_many_blocks() -> None:
    memory, keepsakes, kept = Memory(), Keepsakes(), 0
    for number in range(400):
        testimony = block(Place(OWN + number * BYTES))
        memory.overwrite(testimony.spans, GARBAGE)
        keepsakes.note(testimony, 0)
        kept += len(keepsakes.choose())
    assert 3 <= kept <= 12
    keepsakes.check(memory, GARBAGE)


def test_calls_that_fit_are_told_from_the_quickest_block() -> None:
    keepsakes, testimony = Keepsakes(), block(Place(OWN), Place(OWN + BYTES))
    assert keepsakes.calls_within(10**9) == 0, "nothing to be kept"
    for elapsed_ns, calls in ((40_000_000, 3), (2_000_000, 128), (80_000, 1500), (40_000_000, 1500), (2, 4096)):
        testimony.elapsed_ns = elapsed_ns
        keepsakes.note(testimony, 0)
        assert keepsakes.calls_within(60_000_000) == calls


class Room:
    """Looks in a candidate's first job and never again."""

    def __init__(self) -> None:
        self.asked = 0

    def looks_at_kept_results(self, key: str) -> bool:
        self.asked += 1
        return self.asked == 1


def test_dying_is_no_way_around_a_look() -> None:
    job: Any = Job(RELU, Implementation("aten", RELU.operator, ImportPath("torch", "relu"), "aten"), measured=False)
    room: Any = Room()
    lots = Lots()
    assert Hearing(job, room, lots).keeps_results()
    lots.begin_again()
    assert Hearing(job, room, lots).keeps_results(), "the second try of the same job"
    assert not Hearing(job, room).keeps_results(), "another job"
