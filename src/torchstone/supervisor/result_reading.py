"""Reads results in the candidate's own memory, in place, without the worker's help.

A candidate that copied its results itself could omit the copy, or do its work while copying. Either would make it look
faster than it is. So nothing is copied on the candidate's side. On the CPU the judge reads the memory of the worker
while it is frozen. On CUDA it opens the worker's allocations by their IPC handles and copies from them itself.

The worker reports the addresses, and no wrong address can harm the judge. It leads to other bytes, which are not the
result, or to :class:`UnreadableError`. Afterwards the judge writes garbage over the results, as any caller may do with
a returned tensor. A result that a kernel keeps for another call is lost.
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
"""Alignment in bytes of each span in the judge's copy: the size of torch's largest element."""
_VECTORS = 1024
"""Most memory ranges of one system call: IOV_MAX."""
_DEVICE_ALIGNMENT = 512
_MOST_OPENED = 64
"""Above this number of open device allocations, the judge closes those that it does not need."""
_KEPT_OPEN_BYTES = 256 << 20
"""Most bytes of device allocations that stay open from one case to the next."""
_NEAR_BYTES = 64 << 10
"""Device spans with no larger gap between them are copied as one: a further copy takes longer than these bytes."""


_PAGE_BYTES = 4096
_NEAR_PAGES = 512
"""Pages with no larger gap between them are looked up together."""
_PRESENT, _OF_A_FILE, _EXCLUSIVE = np.uint64(1 << 63), np.uint64(1 << 61), np.uint64(1 << 56)
_PAGE_FLAGS = _PRESENT | _OF_A_FILE | _EXCLUSIVE
_OWN_PAGE = _PRESENT | _EXCLUSIVE
"""Flags in ``/proc/PID/pagemap`` of a page that only this process has. The shared zero page is not exclusive."""


class UnreadableError(Exception):
    """The worker has no memory at an address, or the judge cannot read it."""


class Span(NamedTuple):
    """Bytes in a worker's memory."""

    address: int
    size_bytes: int


class Copies:
    """Private copies of spans: few pieces of memory with many spans in each."""

    def __init__(self, pieces: Sequence[torch.Tensor], where: Sequence[tuple[int, int]], spans: Sequence[Span]) -> None:
        self.pieces, self._where, self._spans = pieces, where, spans

    def in_pieces(self, pieces: Sequence[torch.Tensor]) -> Copies:
        """The same spans in other pieces of memory, which are copies of the present ones."""
        return Copies(pieces, self._where, self._spans)

    def __iter__(self) -> Iterator[torch.Tensor]:
        """The bytes of each span, in the order in which the spans were given."""
        for (piece, start), span in zip(self._where, self._spans, strict=True):
            yield self.pieces[piece][start : start + span.size_bytes]


class Reader(Protocol):
    """Reads a worker's memory."""

    def read(self, spans: Sequence[Span], segments: Sequence[Segment]) -> Copies:
        """Copy the spans into the judge's own memory."""
        ...

    def overwrite(self, spans: Sequence[Span], garbage: torch.Tensor) -> None:
        """Overwrite each span that was read last with the first bytes of ``garbage``, which is long enough."""
        ...

    def end_case(self) -> None:
        """End a case: the worker may free the memory of its results."""
        ...

    def close(self) -> None: ...


class HostReader:
    """Reads the memory of a process of this machine, which should be frozen."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        try:
            self._pages: int | None = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._pages = None

    def allocate_pages_ns(self, spans: Sequence[Span]) -> int:
        """Make the system allocate every page of these spans that is not allocated yet; return the time that it took.

        The system allocates, zeroes or copies a page at the first access. That is work of the kernel that made the
        result. Otherwise it would be done when the judge reads the result.
        """
        unallocated = self._unallocated_pages(spans)
        if not unallocated.size:
            return 0
        buffer = np.empty(unallocated.size, dtype=np.uint8)
        one = np.ones(unallocated.size, dtype=np.uint64)
        remote = np.column_stack((unallocated, one))
        local = np.column_stack((np.uint64(buffer.ctypes.data) + np.arange(unallocated.size, dtype=np.uint64), one))
        began = time.perf_counter_ns()
        self._transfer(linux_calls.process_vm_readv, local, remote)
        self._transfer(linux_calls.process_vm_writev, local, remote)
        return time.perf_counter_ns() - began

    def _unallocated_pages(self, spans: Sequence[Span]) -> NDArray[np.uint64]:
        """An address in each page that is not allocated to the process alone yet; in every page if that is unknown."""
        bounds = np.array([(span.address, span.address + span.size_bytes) for span in spans if span.size_bytes])
        if not bounds.size:
            return np.empty(0, dtype=np.uint64)
        first, last = bounds[:, 0] // _PAGE_BYTES, (bounds[:, 1] - 1) // _PAGE_BYTES
        counts = last - first + 1
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        pages = np.repeat(first, counts) + offsets
        unallocated = ~self._are_own(pages)
        inside = np.maximum(pages * _PAGE_BYTES, np.repeat(bounds[:, 0], counts))
        return np.asarray(inside[unallocated], dtype=np.uint64)

    def _are_own(self, pages: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each page is present, not part of a file, and not shared with another process."""
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

    def end_case(self) -> None:
        """Nothing to do: no memory of the worker is open."""

    def close(self) -> None:
        if self._pages is not None:
            os.close(self._pages)
            self._pages = None


_REFUSALS = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS})
"""Error codes of a system that does not let the judge read other processes."""


def is_readable(pid: int) -> bool:
    """Whether the judge may read a worker's memory. Called before the worker has loaded a candidate.

    So a refusal now comes from the machine. A process can make itself unreadable: the candidate causes a later one.
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
            raise  # another failure, such as out of memory: it does not show whether reading is allowed
        return False
    return True


class DeviceReader:
    """Reads a worker's allocations on a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._driver = Driver()
        self._opened: dict[str, Span] = {}
        """By handle, where an allocation is mapped in the judge. Its size is from the driver, not from the worker."""
        self._lasting: set[str] = set()
        """Handles of allocations that later reads of the case need, although they do not name them."""
        self._here: list[int] = []
        """Addresses in the judge of the spans that were read last."""

    def locate(self, spans: Sequence[Span], segments: Sequence[Segment]) -> list[int]:
        """Addresses of these spans in the judge. They are valid until :meth:`end_case`."""
        self._lasting |= {segment.handle for segment in segments}
        return [self._locate(span, segments)[0] for span in spans]

    def read(self, spans: Sequence[Span], segments: Sequence[Segment]) -> Copies:
        self._close_unneeded(segments)
        located = [self._locate(span, segments) for span in spans]
        self._here = [address for address, _ in located]
        pieces: list[torch.Tensor] = []
        where = [(0, 0)] * len(spans)
        for group in _copy_groups(located, spans):
            begin = self._here[group[0]] // _DEVICE_ALIGNMENT * _DEVICE_ALIGNMENT
            end = max(self._here[place] + spans[place].size_bytes for place in group)
            for place in group:
                where[place] = len(pieces), self._here[place] - begin
            pieces.append(DeviceMemory(begin, self._device).tensor(0, end - begin, torch.uint8).clone())
        return Copies(pieces, where, spans)

    def _close_unneeded(self, segments: Sequence[Segment]) -> None:
        """Close allocations beyond these segments, if many are open.

        The driver does not free an allocation that the judge has open. A worker that keeps making new ones would fill
        the device.
        """
        if len(self._opened) > _MOST_OPENED:
            for handle in self._opened.keys() - self._lasting - {segment.handle for segment in segments}:
                self._close(handle)

    def _locate(self, span: Span, segments: Sequence[Segment]) -> tuple[int, int]:
        """A span's address in the judge, and the beginning of the allocation that contains it."""
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

    def end_case(self) -> None:
        """Close all allocations if they are large. Small ones stay open: the next case's results lie there, too."""
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
        torch.cuda.synchronize(self._device)  # the last overwriting may still be running
        for handle in list(self._opened):
            self._close(handle)

    def _close(self, handle: str) -> None:
        with contextlib.suppress(InfrastructureError):  # the worker, and with it the allocation, may be gone
            self._driver.close(self._opened.pop(handle).address)


def _copy_groups(located: Sequence[tuple[int, int]], spans: Sequence[Span]) -> list[list[int]]:
    """Group the spans that are copied together: near ones in one allocation, in order of their addresses."""
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
    """Offsets of aligned pieces of these sizes that lie one after the other, and their total size."""
    starts, end = [], 0
    for size in sizes:
        starts.append(end)
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return starts, end


def _vectors(addresses: Sequence[int], spans: Sequence[Span]) -> NDArray[np.uint64]:
    """An array of ``struct iovec``."""
    return np.array([addresses, [span.size_bytes for span in spans]], dtype=np.uint64).T.copy()


def open_reader(pid: int, device: torch.device) -> Reader:
    """A reader that reads a worker's results on this device in place."""
    return HostReader(pid) if device.type == "cpu" else DeviceReader(device)
