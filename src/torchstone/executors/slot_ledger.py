"""Divides the slots of a Ray cluster (GPUs or groups of CPU cores) among runs: each with work gets an equal share.

A slot belongs to one node. Each run polls the ledger about every second and reports the slots that it holds. A run that
is granted fewer gives up a slot when its job there is done. Losing the ledger is harmless: a new one gets the held
slots from the same polls.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

_SILENT_SECONDS = 15.0
"""A run that has not polled for this long is over, and its slots are free."""


class SlotLedger:
    """Grants slots to runs."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}
        self._wanted: dict[str, int] = {}
        self._holders: dict[str, str] = {}
        """By slot, the run that holds it."""

    def poll(self, run: str, slots: Sequence[str], held: Sequence[str], wanted: int) -> list[str]:
        """The slots that a run may use now.

        ``slots``: those that it can use. ``held``: those that it holds. ``wanted``: number of slots it has work for.
        """
        self._forget_silent(time.monotonic())
        self._seen[run], self._wanted[run] = time.monotonic(), max(0, min(wanted, len(slots)))
        kept = set(held)
        for slot in [slot for slot, holder in self._holders.items() if holder == run and slot not in kept]:
            del self._holders[slot]
        mine = [slot for slot in held if self._holders.setdefault(slot, run) == run and slot in set(slots)]
        most = self._share(run, len(slots))
        granted = mine[:most]
        for slot in slots:
            if len(granted) >= most:
                break
            if slot not in self._holders:
                self._holders[slot] = run
                granted.append(slot)
        return granted

    def _share(self, run: str, count: int) -> int:
        """How many of ``count`` slots the run may hold: an equal share, and its part of what others do not want."""
        left, share = count, 0
        runs = sorted((name for name in self._seen if self._wanted[name]), key=lambda name: (self._wanted[name], name))
        for place, name in enumerate(runs):
            share = min(self._wanted[name], -(-left // (len(runs) - place)))
            if name == run:
                return max(1, share)
            left -= share
        return 0

    def _forget_silent(self, now: float) -> None:
        for run in [run for run, seen in self._seen.items() if now - seen > _SILENT_SECONDS]:
            del self._seen[run], self._wanted[run]
        for slot in [slot for slot, holder in self._holders.items() if holder not in self._seen]:
            del self._holders[slot]
