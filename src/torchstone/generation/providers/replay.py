"""Provider `replay`: returns recorded replies, from the transcripts of a run folder or a file of such lines."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from torchstone.errors import UsageError
from torchstone.generation.providers.base import ModelRequest, ProviderError, ProviderOptions, Reply
from torchstone.generation.transcript import TRANSCRIPT, read_exchanges
from torchstone.schema.generation import Exchange


class ReplayProvider:
    """Recorded replies, no network: --replay RUN_FOLDER or a transcript.jsonl."""

    is_free = True

    def __init__(self, options: ProviderOptions) -> None:
        if options.replay is None:
            raise UsageError("provider 'replay' needs recorded replies: add --replay RUN_FOLDER or a transcript.jsonl.")
        self._source = options.replay
        self._exchanges = {(each.operator, each.number): each for each in _recorded(options.replay)}
        if not self._exchanges:
            raise UsageError(f"{options.replay} holds no recorded replies. Give a run folder or a transcript.jsonl.")

    def operators_of(self, wanted: Collection[str], *, are_named: bool) -> frozenset[str]:
        """The operators with a recorded reply. Raises UsageError if a named one has none, or if all lack one."""
        recorded = {operator for operator, _ in self._exchanges}
        absent = sorted(set(wanted) - recorded)
        if absent and (are_named or len(absent) == len(wanted)):
            few = ", ".join(absent[:_MOST_LISTED]) + ", …" * (len(absent) > _MOST_LISTED)
            raise UsageError(f"{self._source} holds no reply for {few}. {self._recorded_attempts()}")
        return frozenset(wanted) & recorded

    async def reply(self, request: ModelRequest) -> Reply:
        found = self._exchanges.get((request.operator, request.number))
        if found is None:
            raise ProviderError(
                "refused",
                f"{self._source} holds no reply for attempt {request.number} of {request.operator}. "
                + self._recorded_attempts(request.operator),
            )
        return Reply(found.reply, found.usage, found.stop_reason)

    def _recorded_attempts(self, operator: str | None = None) -> str:
        """A sentence that lists the recorded attempts: of the operator, or of every operator if it has none."""
        numbers: dict[str, list[int]] = {}
        for name, number in sorted(self._exchanges):
            numbers.setdefault(name, []).append(number)
        shown = {operator: numbers[operator]} if operator in numbers else numbers
        listed = [
            f"{name} (attempts {', '.join(map(str, those))})" for name, those in list(shown.items())[:_MOST_LISTED]
        ]
        more = f" and {len(shown) - _MOST_LISTED} more operators" if len(shown) > _MOST_LISTED else ""
        return f"Recorded: {', '.join(listed)}{more}."


_MOST_LISTED = 8
"""Operators in a message."""


def _recorded(source: Path) -> list[Exchange]:
    if not source.exists():
        raise UsageError(f"{source} does not exist. Give a run folder or a transcript.jsonl.")
    files = sorted(source.glob(f"*/{TRANSCRIPT}")) if source.is_dir() else [source]
    return [exchange for file in files for exchange in read_exchanges(file)]
