"""Replies that were recorded before: from the transcripts of a run folder, or a file of such lines."""

from __future__ import annotations

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
        self._exchanges = {(each.operator, each.number): each for each in _recorded(options.replay)}
        if not self._exchanges:
            raise UsageError(f"{options.replay} holds no recorded replies. Give a run folder or a transcript.jsonl.")

    async def reply(self, request: ModelRequest) -> Reply:
        found = self._exchanges.get((request.operator, request.number))
        if found is None:
            known = sorted(number for operator, number in self._exchanges if operator == request.operator)
            there = f"attempts {', '.join(map(str, known))}" if known else "nothing"
            raise ProviderError(
                "refused", f"no reply is recorded for attempt {request.number} of {request.operator}; there is {there}"
            )
        return Reply(found.reply, found.usage, found.stop_reason)


def _recorded(source: Path) -> list[Exchange]:
    if not source.exists():
        raise UsageError(f"{source} does not exist. Give a run folder or a transcript.jsonl.")
    files = sorted(source.glob(f"*/{TRANSCRIPT}")) if source.is_dir() else [source]
    return [exchange for file in files for exchange in read_exchanges(file)]
