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
"""Garbage is random up to this many bytes, then repeats; each use begins at another place of it."""


def _garbage(size_bytes: int, device: torch.device) -> torch.Tensor:
    """Random bytes to put between arguments and over results, with room to start at another one each time.

    Not NaN and not constant: a poison that can be recognised tells a candidate what is unwritten.
    """
    seed = torch.frombuffer(bytearray(secrets.token_bytes(GARBAGE_SHIFT_BYTES)), dtype=torch.uint8).to(device)
    repeats = 1 + -(-size_bytes // GARBAGE_SHIFT_BYTES)
    return seed.repeat(repeats)


class CallBuffers:
    """Memory for the arguments of up to ``sets`` calls, shared with a worker.

    The judge draws and compares on the *arithmetic device* (:mod:`torchstone.judging.arithmetic_device`). What is
    written comes from there.
    """

    def __init__(
        self, arenas: Arenas, layout: CallLayout, sets: int, device: torch.device, arithmetic_device: torch.device
    ) -> None:
        """``device`` is where the buffers lie."""
        self._arenas, self._layout = arenas, layout
        self.is_elsewhere = arithmetic_device != device
        """Whether values are put together in other memory than the worker sees."""
        self.arena = arenas.take(sets * layout.pitch_bytes)
        try:
            self._allocate(sets, arithmetic_device)
        except BaseException:  # out of memory, for example: the caller has nothing to close
            arenas.give_back(self.arena)
            raise

    def _allocate(self, sets: int, arithmetic_device: torch.device) -> None:
        """Everything that takes memory besides the arena."""
        arenas, layout = self._arenas, self._layout
        self._bytes = self.arena.tensor(0, sets * layout.pitch_bytes, torch.uint8)
        self._written = torch.empty_like(self._bytes, device=arithmetic_device) if self.is_elsewhere else self._bytes
        """Where the judge puts arguments together: the buffers themselves, or memory on the arithmetic device."""
        self._slots = [layout.inputs_in(self._written, index) for index in range(sets)]
        most_bytes = max(layout.pitch_bytes, MOST_SPARSE * layout.largest_bytes)
        self._garbage_of_judge = _garbage(most_bytes, arithmetic_device)
        self.garbage = arenas.garbage(most_bytes, _garbage) if self.is_elsewhere else self._garbage_of_judge
        """Random bytes to write over results, where these lie."""
        self.row = self._garbage_of_judge
        """What lies in the bands of each row since arguments were last written."""

    def write(self, calls: Sequence[DrawnCall]) -> None:
        """The calls' inputs, and random garbage in between."""
        self._fill_bands(len(calls))
        # As bytes: torch's copy on a device gives a NaN of 16 bits other bits.
        targets = [slot.view(torch.uint8) for index in range(len(calls)) for slot in self._slots[index] if slot.numel()]
        storages = [tensor.storage for call in calls for tensor in call.tensors]
        sources = [storage.view(torch.uint8) for storage in storages if storage.numel()]
        if targets:
            torch._foreach_copy_(targets, sources)
        if self.is_elsewhere:
            self.rows(len(calls)).copy_(self._written[: len(calls) * self._layout.pitch_bytes])

    def conceal(self, count: int) -> None:
        """Random garbage between the arguments of calls whose values are to be revealed."""
        self._fill_bands(count)

    def reveal(self, storages: Sequence[torch.Tensor]) -> None:
        """Write the values of calls, which are stacked, with one copy for each argument. Quick: it is on the clock."""
        count = len(storages[0]) if storages else 0
        for target, storage in zip(self._layout.stacked_inputs_in(self._bytes, count), storages, strict=True):
            target.copy_(storage)

    def _fill_bands(self, count: int) -> None:
        rows = self._written[: count * self._layout.pitch_bytes].view(count, self._layout.pitch_bytes)
        shift = secrets.randbelow(GARBAGE_SHIFT_BYTES)
        self.row = self._garbage_of_judge[shift : shift + self._layout.pitch_bytes]
        for start, end in self._layout.bands:
            rows[:, start:end] = self.row[start:end]

    def rows(self, count: int) -> torch.Tensor:
        """The bytes of the first calls' buffers, which the worker sees."""
        return self._bytes[: count * self._layout.pitch_bytes]

    def row_of(self, index: int) -> torch.Tensor:
        """The bytes of one call's buffers."""
        return self._bytes[index * self._layout.pitch_bytes : (index + 1) * self._layout.pitch_bytes]

    def garbage_for(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Random bits, other ones each time, for at most as much as a result takes."""
        shift = secrets.randbelow(GARBAGE_SHIFT_BYTES // dtype.itemsize) * dtype.itemsize
        return self.garbage[shift : shift + elements * dtype.itemsize].view(dtype)

    @property
    def address(self) -> int:
        """Where the judge itself sees them."""
        return self.arena.address

    def close(self) -> None:
        """Free them. The worker must have released them or be dead."""
        self._slots.clear()
        del self._bytes, self._written
        self._arenas.give_back(self.arena)
