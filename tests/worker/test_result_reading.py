"""Reading a process's memory from outside, and grouping what lies together."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchstone.isolation import linux_calls
from torchstone.supervisor.result_reading import HostReader, Span, UnreadableError, _copy_groups, is_readable

TEXT = b"what the candidate made"


@pytest.fixture
def other() -> Iterator[tuple[int, int]]:
    """A process that has something in its memory, and where."""
    memory = ctypes.create_string_buffer(1 << 20)
    ready_read, ready_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        memory.value = TEXT
        os.write(ready_write, b"x")
        time.sleep(60)
        os._exit(0)
    os.read(ready_read, 1)
    yield pid, ctypes.addressof(memory)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(ready_read)
    os.close(ready_write)


def test_many_spans_are_read_in_one_go(other: tuple[int, int]) -> None:
    pid, address = other
    spans = [Span(address + offset % 20, 1 + offset % 3) for offset in range(3000)]
    copies = [bytes(copy.tolist()) for copy in HostReader(pid).read(spans)]
    assert copies == [TEXT[offset % 20 : offset % 20 + 1 + offset % 3] for offset in range(3000)]


def test_pages_that_are_only_promised_are_found_and_had(other: tuple[int, int]) -> None:
    pid, address = other
    reader, inside = HostReader(pid), address + 256 * 1024
    assert reader._unallocated_pages([Span(address, len(TEXT))]).size == 0, "the process has written there"
    spans = [Span(inside + 100, 40 * 4096), Span(inside + 300 * 1024, 1), Span(inside, 0)]
    assert reader._unallocated_pages(spans).size >= 41
    assert reader.allocate_pages_ns(spans) > 0
    assert reader._unallocated_pages(spans).size == 0
    assert reader.allocate_pages_ns(spans) == 0
    assert bytes(next(iter(reader.read([Span(address, len(TEXT))]))).tolist()) == TEXT
    reader.close()
    assert reader._unallocated_pages([Span(address, 1)]).tolist() == [address], "who cannot be asked has nothing"


def test_what_was_read_can_be_overwritten(other: tuple[int, int]) -> None:
    pid, address = other
    reader, spans = HostReader(pid), [Span(address, 4), Span(address + 10, 2)]
    reader.overwrite(spans, torch.full((16,), ord("#"), dtype=torch.uint8))
    (copy,) = reader.read([Span(address, len(TEXT))])
    assert bytes(copy.tolist()) == b"#### the c##didate made"


@pytest.mark.parametrize("address", [8, 1 << 46])
def test_an_address_where_nothing_is_mapped_is_said(other: tuple[int, int], address: int) -> None:
    pid, good = other
    with pytest.raises(UnreadableError):
        list(HostReader(pid).read([Span(good, 4), Span(address, 4)]))


def test_a_process_that_is_gone_is_said() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(UnreadableError):
        list(HostReader(pid).read([Span(4096, 4)]))


located = st.lists(st.tuples(st.integers(0, 1 << 20), st.sampled_from([0, 1])), min_size=1, max_size=30)


def test_whether_the_machine_lets_a_process_be_read_is_found_out_by_reading(
    other: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, here: int, there: int, count: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    pid, address = other
    assert is_readable(pid)
    monkeypatch.setattr(linux_calls, "process_vm_readv", refuse)
    with pytest.raises(UnreadableError, match="not permitted"):
        HostReader(pid).read([Span(address, 4)])
    assert not is_readable(pid)


@given(located, st.integers(1, 1 << 17))
def test_neighbours_are_grouped_without_loss_and_only_within_an_allocation(
    places: list[tuple[int, int]], size: int
) -> None:
    absolute = [((base << 40) + offset, base << 40) for offset, base in places]
    groups = _copy_groups(absolute, [Span(0, size)] * len(places))
    assert sorted(place for group in groups for place in group) == list(range(len(places)))
    for group in groups:
        assert len({absolute[place][1] for place in group}) == 1
        assert [absolute[place][0] for place in group] == sorted(absolute[place][0] for place in group)
    spread = sum(
        max(absolute[place][0] for place in group) + size - min(absolute[place][0] for place in group)
        for group in groups
    )
    assert spread <= len(places) * (size + (64 << 10)), "what is copied stays in proportion to what is wanted"
