"""Fills the shared memory of a case before each block of calls: new argument values, with random bytes around them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import torch

from torchstone.judge_process.call_layout import CallLayout
from torchstone.judging import DrawnCall
from torchstone.protocol.shared_memory import Arenas
from torchstone.protocol.tensor_places import MOST_SPARSE

GARBAGE_SHIFT_BYTES = 64 << 10
"""Period of the garbage in bytes: it is random up to here, then repeats. Each use begins at a random offset in it."""


def _garbage(size_bytes: int, device: torch.device) -> torch.Tensor:
    """Random bytes for the bands and for overwriting results: this many from any offset within the period.

    Not NaN and not constant: a candidate that recognised them would know which memory is unwritten.
    """
    seed = torch.frombuffer(bytearray(secrets.token_bytes(GARBAGE_SHIFT_BYTES)), dtype=torch.uint8).to(device)
    repeats = 1 + -(-size_bytes // GARBAGE_SHIFT_BYTES)
    return seed.repeat(repeats)


class CallBuffers:
    """Memory for the arguments of up to ``sets`` calls, shared with a worker.

    The judge draws and compares on the *arithmetic device* (:mod:`torchstone.judging.arithmetic_device`). What is
    written to the buffers comes from there.
    """

    def __init__(
        self, arenas: Arenas, layout: CallLayout, sets: int, device: torch.device, arithmetic_device: torch.device
    ) -> None:
        """``device`` is where the buffers lie."""
        self._arenas, self._layout = arenas, layout
        self.is_elsewhere = arithmetic_device != device
        """Whether arguments are assembled in other memory than the buffers, and then copied to them."""
        self.arena = arenas.take(sets * layout.pitch_bytes)
        try:
            self._allocate(sets, arithmetic_device)
        except BaseException:  # out of memory, for example: the caller has nothing to close
            arenas.give_back(self.arena)
            raise

    def _allocate(self, sets: int, arithmetic_device: torch.device) -> None:
        """Allocate everything besides the arena."""
        arenas, layout = self._arenas, self._layout
        self._bytes = self.arena.tensor(0, sets * layout.pitch_bytes, torch.uint8)
        self._assembled = torch.empty_like(self._bytes, device=arithmetic_device) if self.is_elsewhere else self._bytes
        """Where the judge assembles arguments: the buffers themselves, or memory on the arithmetic device."""
        self._slots = [layout.inputs_in(self._assembled, index) for index in range(sets)]
        most_bytes = max(layout.pitch_bytes, MOST_SPARSE * layout.largest_bytes)
        self._garbage_of_judge = _garbage(most_bytes, arithmetic_device)
        self.garbage = arenas.garbage(most_bytes, _garbage) if self.is_elsewhere else self._garbage_of_judge
        """Random bytes to write over results, on the device where the results lie."""
        self.row = self._garbage_of_judge
        """Random bytes of a row; the bands of every row have held them since arguments were last written."""

    def write(self, calls: Sequence[DrawnCall]) -> None:
        """Write the calls' arguments, and random garbage into the bands between them."""
        self._fill_bands(len(calls))
        # As bytes: torch's copy on a device gives a NaN of 16 bits other bits.
        targets = [slot.view(torch.uint8) for index in range(len(calls)) for slot in self._slots[index] if slot.numel()]
        storages = [tensor.storage for call in calls for tensor in call.tensors]
        sources = [storage.view(torch.uint8) for storage in storages if storage.numel()]
        if targets:
            torch._foreach_copy_(targets, sources)
        if self.is_elsewhere:
            self.rows(len(calls)).copy_(self._assembled[: len(calls) * self._layout.pitch_bytes])

    def conceal(self, count: int) -> None:
        """Write random garbage into the bands of these calls, before :meth:`reveal` writes the values."""
        self._fill_bands(count)

    def reveal(self, storages: Sequence[torch.Tensor]) -> None:
        """Write the stacked values of calls, with one copy for each argument because it is timed."""
        count = len(storages[0]) if storages else 0
        for target, storage in zip(self._layout.stacked_inputs_in(self._bytes, count), storages, strict=True):
            target.copy_(storage)

    def _fill_bands(self, count: int) -> None:
        rows = self._assembled[: count * self._layout.pitch_bytes].view(count, self._layout.pitch_bytes)
        shift = secrets.randbelow(GARBAGE_SHIFT_BYTES)
        self.row = self._garbage_of_judge[shift : shift + self._layout.pitch_bytes]
        for start, end in self._layout.bands:
            rows[:, start:end] = self.row[start:end]

    def rows(self, count: int) -> torch.Tensor:
        """The bytes of the first ``count`` calls' buffers, which the worker sees."""
        return self._bytes[: count * self._layout.pitch_bytes]

    def row_of(self, index: int) -> torch.Tensor:
        """The bytes of one call's buffers."""
        return self._bytes[index * self._layout.pitch_bytes : (index + 1) * self._layout.pitch_bytes]

    def garbage_for(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Random bits, from another offset each time, for at most the elements of the largest result."""
        shift = secrets.randbelow(GARBAGE_SHIFT_BYTES // dtype.itemsize) * dtype.itemsize
        return self.garbage[shift : shift + elements * dtype.itemsize].view(dtype)

    @property
    def address(self) -> int:
        """Address of the buffers in the judge's own process."""
        return self.arena.address

    def close(self) -> None:
        """Free the buffers. The worker must have released them or be dead."""
        self._slots.clear()
        del self._bytes, self._assembled
        self._arenas.give_back(self.arena)
