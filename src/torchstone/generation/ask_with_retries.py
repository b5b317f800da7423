"""Asks a model provider for a reply, with retries, rate limits, a time limit and a budget. Removes API keys.

Every request goes through here, so that providers implement none of this.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

import msgspec

from torchstone.backends.accompanying_files import encodable
from torchstone.generation.budget import Budget
from torchstone.generation.providers import ModelRequest, Provider, ProviderError, Reply
from torchstone.schema.generation import Usage

_FIRST_WAIT_SECONDS = 1.0
_LONGEST_BACKOFF_SECONDS = 60.0
"""Of waits that double with each try."""
_LONGEST_ASKED_SECONDS = 600.0
"""A server that asks for a longer wait is a failure: its limit is one for hours or days."""
REMOVED = "[key removed]"
_SHORTEST_SECRET = 16
"""Characters. Shorter keys are placeholders for servers that need none (`none`, `EMPTY`), and words of any reply."""


class AskingLimits(msgspec.Struct, frozen=True):
    """How a provider is asked."""

    concurrency: int = 8
    """Requests on their way at the same time."""
    retries: int = 5
    """Further tries after a failure that may pass."""
    timeout_seconds: float = 600.0
    """For one try, from the request to the end of the reply."""


class Answer(msgspec.Struct, frozen=True):
    """A reply, and what it took."""

    reply: Reply
    requests: int
    seconds: float


class NoAnswerError(Exception):
    """Every try failed; the last failure is the cause."""

    def __init__(self, failure: ProviderError, message: str, requests: int, seconds: float) -> None:
        super().__init__(message)
        self.failure, self.requests, self.seconds = failure, requests, seconds


class Asker:
    """Makes all requests of a run to its provider."""

    def __init__(
        self,
        provider: Provider,
        limits: AskingLimits,
        budget: Budget,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._provider, self._limits, self.budget = provider, limits, budget
        self._sleep = sleep
        self._is_free = getattr(provider, "is_free", False)
        self._places = asyncio.Semaphore(limits.concurrency)
        self._paused_until = 0.0
        secrets: tuple[str, ...] = getattr(provider, "secrets", ())
        self._secrets = tuple(secret for secret in secrets if len(secret) >= _SHORTEST_SECRET)

    async def ask(self, request: ModelRequest) -> Answer:
        """The reply; :class:`NoAnswerError` or :class:`BudgetSpentError`."""
        began = time.monotonic()
        for tried in range(1, self._limits.retries + 2):
            try:
                reply = await self._once(request)
                return Answer(reply, tried, time.monotonic() - began)
            except ProviderError as failure:
                wait = self._wait_before_next(failure, tried)
                if wait is None:
                    raise NoAnswerError(
                        failure, self._clean(str(failure)), tried, time.monotonic() - began
                    ) from failure
            await self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    async def close(self) -> None:
        """End connections."""
        close = getattr(self._provider, "aclose", None)
        if close is not None:
            await close()

    async def _once(self, request: ModelRequest) -> Reply:
        async with self._places:
            await self._until_allowed()
            async with self.budget.reserved(request.messages) as spending:
                spending.usage = Usage() if self._is_free else None
                try:
                    reply = await self._within_time(request)
                except ProviderError as failure:
                    spending.usage = failure.usage or spending.usage
                    raise
                spending.usage = usage = self._used(request, reply)
        return msgspec.structs.replace(
            reply,
            text=self._clean(reply.text),
            stop_reason=self._clean(reply.stop_reason),
            usage=self.budget.priced(usage),
        )

    def _used(self, request: ModelRequest, reply: Reply) -> Usage:
        """As the provider counts; an estimate if it counts nothing."""
        if reply.usage.tokens or self._is_free:
            return reply.usage
        return self.budget.estimated(request.messages, reply.text)

    async def _within_time(self, request: ModelRequest) -> Reply:
        limit = self._limits.timeout_seconds
        try:
            async with asyncio.timeout(limit):
                return await self._provider.reply(request)
        except ProviderError:
            raise
        except TimeoutError as error:
            raise ProviderError("timeout", f"no whole reply within {limit:g} s") from error
        except Exception as error:  # an SDK may raise anything on what a server sends
            raise ProviderError("garbage", f"{type(error).__name__}: {error}") from error

    def _wait_before_next(self, failure: ProviderError, tried: int) -> float | None:
        """Seconds until the next try; None: there is none. A server's limit holds for all requests."""
        if failure.reason == "refused" or tried > self._limits.retries:
            return None
        asked = failure.retry_after_seconds
        if asked is not None and asked > _LONGEST_ASKED_SECONDS:
            return None
        longest: float = min(_FIRST_WAIT_SECONDS * 2.0 ** (tried - 1), _LONGEST_BACKOFF_SECONDS)
        backoff = longest * random.uniform(0.5, 1.0)  # not all at the same moment
        if asked is None and failure.reason != "rate_limit":
            return backoff
        pause = backoff if asked is None else asked
        self._paused_until = max(self._paused_until, time.monotonic() + pause)
        return 0.0 if asked is None else random.uniform(0.0, 0.1) * asked

    async def _until_allowed(self) -> None:
        while (left := self._paused_until - time.monotonic()) > 0:
            await self._sleep(left)

    def _clean(self, text: str) -> str:
        """The text without API keys, and encodable, so that files can hold it."""
        text = encodable(text)
        for secret in self._secrets:
            text = text.replace(secret, REMOVED)
        return text
