"""Reads results where they lie in the candidate's own memory, without asking the worker for them.

A candidate that had to copy its results out could save the copy, or do its work while copying. Either would give it a
speed that it does not have. So nothing is copied on the candidate's side. On the CPU the judge reads the memory of
the worker while it stands still. On CUDA it opens the worker's allocations by their IPC handles and copies from them
itself.

Addresses are claims, and none can harm the judge. A wrong one gives other bytes, which are not the result, or cannot be
read: :class:`UnreadableError`. Afterwards the judge writes garbage over what it has read, as any caller may do with a
tensor that it was given. A result that is kept for another call is lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from torchstone.errors import InfrastructureError
from torchstone.isolation import linux_calls
from torchstone.protocol.shared_memory import DeviceMemory, Driver
from torchstone.protocol.tensor_places import Segment

_ALIGNMENT = 16
"""Of each span in the judge's copy: the largest element that torch has."""
_VECTORS = 1024
"""IOV_MAX."""
_DEVICE_ALIGNMENT = 512
_MOST_OPENED = 64
_KEPT_OPEN_BYTES = 256 << 20
_NEAR_BYTES = 64 << 10
"""Spans on a device that lie no further apart are copied as one: a copy costs more than these bytes."""


_PAGE_BYTES = 4096
_NEAR_PAGES = 512
"""Pages that lie no further apart are looked up together."""
_PRESENT, _OF_A_FILE, _EXCLUSIVE = np.uint64(1 << 63), np.uint64(1 << 61), np.uint64(1 << 56)
_PAGE_FLAGS = _PRESENT | _OF_A_FILE | _EXCLUSIVE
_OWN_PAGE = _PRESENT | _EXCLUSIVE
"""As the kernel tells in ``/proc/PID/pagemap``. A page of zeros that all share is present, and nobody's own."""


class UnreadableError(Exception):
    """There is no such memory in the worker."""


class Span(NamedTuple):
    """Bytes in a worker's memory."""

    address: int
    size_bytes: int


class Copies:
    """Private copies of spans: few pieces of memory with many spans in each."""

    def __init__(self, pieces: Sequence[torch.Tensor], where: Sequence[tuple[int, int]], spans: Sequence[Span]) -> None:
        self.pieces, self._where, self._spans = pieces, where, spans

    def in_pieces(self, pieces: Sequence[torch.Tensor]) -> Copies:
        """The same, in copies of these pieces."""
        return Copies(pieces, self._where, self._spans)

    def __iter__(self) -> Iterator[torch.Tensor]:
        """The bytes of each span, in the order in which they were asked for."""
        for (piece, start), span in zip(self._where, self._spans, strict=True):
            yield self.pieces[piece][start : start + span.size_bytes]


class Reader(Protocol):
    """Reads a worker's memory."""

    def read(self, spans: Sequence[Span], segments: Sequence[Segment]) -> Copies:
        """Copy the spans into the judge's own memory."""
        ...

    def overwrite(self, spans: Sequence[Span], garbage: torch.Tensor) -> None:
        """Fill the spans, which were read last, with the beginning of this, which is at least as long as each."""
        ...

    def let_go(self) -> None:
        """A case is over: what its results lay in is the worker's to free."""
        ...

    def close(self) -> None: ...


class HostReader:
    """Reads a process of this machine; it should stand still."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        try:
            self._pages: int | None = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._pages = None

    def complete_ns(self, spans: Sequence[Span]) -> int:
        """Have the system provide every page of these spans that is not there yet, and say how long that took.

        Memory can be promised without being there: the system zeroes or copies such pages at the first access. That is
        work of the kernel that made the result, and would otherwise be done by the reader.
        """
        promised = self._promised(spans)
        if not promised.size:
            return 0
        held = np.empty(promised.size, dtype=np.uint8)
        one = np.ones(promised.size, dtype=np.uint64)
        there = np.column_stack((promised, one))
        here = np.column_stack((np.uint64(held.ctypes.data) + np.arange(promised.size, dtype=np.uint64), one))
        began = time.perf_counter_ns()
        self._transfer(linux_calls.process_vm_readv, here, there)
        self._transfer(linux_calls.process_vm_writev, here, there)
        return time.perf_counter_ns() - began

    def _promised(self, spans: Sequence[Span]) -> NDArray[np.uint64]:
        """An address in each page that is not the process's own yet. All of them, where the system does not tell."""
        bounds = np.array([(span.address, span.address + span.size_bytes) for span in spans if span.size_bytes])
        if not bounds.size:
            return np.empty(0, dtype=np.uint64)
        first, last = bounds[:, 0] // _PAGE_BYTES, (bounds[:, 1] - 1) // _PAGE_BYTES
        counts = last - first + 1
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        pages = np.repeat(first, counts) + offsets
        promised = ~self._are_own(pages)
        inside = np.maximum(pages * _PAGE_BYTES, np.repeat(bounds[:, 0], counts))
        return np.asarray(inside[promised], dtype=np.uint64)

    def _are_own(self, pages: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each of these pages is there, is no file's, and is nobody else's."""
        own = np.zeros(pages.size, dtype=np.bool_)
        if self._pages is None:
            return own
        order = np.argsort(pages, kind="stable")
        ordered = pages[order]
        for group in np.split(np.arange(pages.size), np.flatnonzero(np.diff(ordered) > _NEAR_PAGES) + 1):
            begin, end = int(ordered[group[0]]), int(ordered[group[-1]]) + 1
            entries = np.frombuffer(os.pread(self._pages, 8 * (end - begin), 8 * begin), dtype=np.uint64)
            if entries.size == end - begin:
                own[order[group]] = entries[ordered[group] - begin] & _PAGE_FLAGS == _OWN_PAGE
        return own

    def read(self, spans: Sequence[Span], segments: Sequence[Segment] = ()) -> Copies:
        starts, total = packed([span.size_bytes for span in spans])
        copy = torch.empty(total, dtype=torch.uint8)
        local = _vectors([copy.data_ptr() + start for start in starts], spans)
        self._transfer(linux_calls.process_vm_readv, local, _vectors([span.address for span in spans], spans))
        return Copies([copy], [(0, start) for start in starts], spans)

    def overwrite(self, spans: Sequence[Span], garbage: torch.Tensor) -> None:
        local = _vectors([garbage.data_ptr()] * len(spans), spans)
        self._transfer(linux_calls.process_vm_writev, local, _vectors([span.address for span in spans], spans))

    def _transfer(self, call: linux_calls.VectorCall, local: NDArray[np.uint64], remote: NDArray[np.uint64]) -> None:
        for first in range(0, len(local), _VECTORS):
            here, there = local[first : first + _VECTORS], remote[first : first + _VECTORS]
            try:
                moved = call(self._pid, here.ctypes.data, there.ctypes.data, len(here))
            except OSError as error:
                raise UnreadableError(error.strerror) from error
            if moved != int(here[:, 1].sum()):
                raise UnreadableError("no such memory")

    def let_go(self) -> None:
        """Nothing of the worker's is held open."""

    def close(self) -> None:
        if self._pages is not None:
            os.close(self._pages)
            self._pages = None


_REFUSALS = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS})
"""What a system answers that does not let the judge read other processes."""


def is_readable(pid: int) -> bool:
    """Whether the judge may read a worker, asked while that holds nothing but our own code.

    A refusal now is the machine's; any later one (a process can make itself unreadable) is the candidate's doing.
    """
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            address = int(next(line for line in file if line.split()[1].startswith(b"r")).split(b"-")[0], 16)
        reader = HostReader(pid)
        try:
            reader.read([Span(address, 1)])
        finally:
            reader.close()
    except StopIteration:
        return False
    except (UnreadableError, OSError) as error:
        refused = error if isinstance(error, OSError) else error.__cause__
        if isinstance(refused, OSError) and refused.errno not in _REFUSALS:
            raise  # out of memory, for example: it says nothing about what the machine allows
        return False
    return True


class DeviceReader:
    """Reads a worker's allocations on a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._driver = Driver()
        self._opened: dict[str, Span] = {}
        """By handle, where the judge sees an allocation; its size as the driver tells it, not as the worker does."""
        self._lasting: set[str] = set()
        """Handles of what is read again without being named again."""
        self._here: list[int] = []

    def locate(self, spans: Sequence[Span], segments: Sequence[Segment]) -> list[int]:
        """Where the judge sees these spans, until it lets go."""
        self._lasting |= {segment.handle for segment in segments}
        return [self._locate(span, segments)[0] for span in spans]

    def read(self, spans: Sequence[Span], segments: Sequence[Segment]) -> Copies:
        self._forget_all_but(segments)
        located = [self._locate(span, segments) for span in spans]
        self._here = [address for address, _ in located]
        pieces: list[torch.Tensor] = []
        where = [(0, 0)] * len(spans)
        for group in _neighbours(located, spans):
            begin = self._here[group[0]] // _DEVICE_ALIGNMENT * _DEVICE_ALIGNMENT
            end = max(self._here[place] + spans[place].size_bytes for place in group)
            for place in group:
                where[place] = len(pieces), self._here[place] - begin
            pieces.append(DeviceMemory(begin, self._device).tensor(0, end - begin, torch.uint8).clone())
        return Copies(pieces, where, spans)

    def _forget_all_but(self, segments: Sequence[Segment]) -> None:
        """An allocation that the judge has open is not freed: a worker that keeps making new ones must not fill the
        device with them.
        """
        if len(self._opened) > _MOST_OPENED:
            for handle in self._opened.keys() - self._lasting - {segment.handle for segment in segments}:
                self._close(handle)

    def _locate(self, span: Span, segments: Sequence[Segment]) -> tuple[int, int]:
        """Where the judge sees a span, and where the allocation around it begins."""
        for segment in segments:
            offset = span.address - segment.address
            if 0 <= offset < segment.size_bytes:
                opened = self._open(segment.handle)
                if offset + span.size_bytes <= opened.size_bytes:
                    return opened.address + offset, opened.address
        raise UnreadableError("outside every allocation that was named")

    def _open(self, handle: str) -> Span:
        if handle not in self._opened:
            try:
                pointer = self._driver.open(handle)
                self._opened[handle] = Span(*self._driver.allocation(pointer))
            except (InfrastructureError, ValueError) as error:
                raise UnreadableError(str(error)) from error
        return self._opened[handle]

    def let_go(self) -> None:
        """What is small stays open: the next case's results will lie there, too."""
        self._lasting.clear()
        if sum(span.size_bytes for span in self._opened.values()) > _KEPT_OPEN_BYTES:
            for handle in list(self._opened):
                self._close(handle)

    def overwrite(self, spans: Sequence[Span], garbage: torch.Tensor) -> None:
        if not spans:
            return
        for here, span in zip(self._here, spans, strict=True):
            DeviceMemory(here, self._device).tensor(0, span.size_bytes, torch.uint8).copy_(garbage[: span.size_bytes])

    def close(self) -> None:
        torch.cuda.synchronize(self._device)  # what was overwritten last may still be under way
        for handle in list(self._opened):
            self._close(handle)

    def _close(self, handle: str) -> None:
        with contextlib.suppress(InfrastructureError):  # the worker, and with it the allocation, may be gone
            self._driver.close(self._opened.pop(handle).address)


def _neighbours(located: Sequence[tuple[int, int]], spans: Sequence[Span]) -> list[list[int]]:
    """Which spans to copy together, each group in the order of its addresses: near ones in one allocation."""
    groups: list[list[int]] = []
    end = around = -1
    for place in sorted(range(len(spans)), key=located.__getitem__):
        begin, base = located[place]
        if groups and base == around and begin <= end + _NEAR_BYTES:
            groups[-1].append(place)
        else:
            groups.append([place])
            end = begin
        end, around = max(end, begin + spans[place].size_bytes), base
    return groups


def packed(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where to put pieces of these sizes one behind the other."""
    starts, end = [], 0
    for size in sizes:
        starts.append(end)
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return starts, end


def _vectors(addresses: Sequence[int], spans: Sequence[Span]) -> NDArray[np.uint64]:
    """An array of ``struct iovec``."""
    return np.array([addresses, [span.size_bytes for span in spans]], dtype=np.uint64).T.copy()


def open_reader(pid: int, device: torch.device) -> Reader:
    """A reader of this worker's results on the device, where they can be read in place."""
    return HostReader(pid) if device.type == "cpu" else DeviceReader(device)
