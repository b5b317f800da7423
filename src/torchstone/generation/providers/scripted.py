"""A provider whose replies come from a given function instead of a model: the fake for tests and benchmarks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from torchstone.generation.providers.base import ModelRequest, Reply


class ScriptedProvider:
    """Replies with what a function returns, after a delay."""

    is_free = True

    def __init__(self, script: Callable[[ModelRequest], Reply | str], seconds: float = 0.0) -> None:
        self._script, self._seconds = script, seconds
        self.requests: list[ModelRequest] = []
        """All requests so far, in order."""

    async def reply(self, request: ModelRequest) -> Reply:
        self.requests.append(request)
        await asyncio.sleep(self._seconds)
        answer = self._script(request)
        return answer if isinstance(answer, Reply) else Reply(answer, stop_reason="scripted")
