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
"""The wait after the first try, if the server names none. It doubles with each try."""
_LONGEST_BACKOFF_SECONDS = 60.0
"""Longest wait of those that double with each try."""
_LONGEST_RETRY_AFTER_SECONDS = 600.0
"""If the server demands a longer wait (Retry-After), there is no next try: such a limit lasts hours or days."""
REMOVED = "[key removed]"
_SHORTEST_KEY_CHARACTERS = 16
"""Fewest characters of a key that is removed from texts. Shorter ones are placeholders for servers that need no key
(`none`, `EMPTY`), and such words occur in any reply."""


class AskingLimits(msgspec.Struct, frozen=True):
    """Limits of the requests to a provider."""

    concurrency: int = 8
    """Most requests in progress at the same time."""
    retries: int = 5
    """Further tries after a failure that may be temporary."""
    timeout_seconds: float = 600.0
    """Limit of one try, from the request to the end of the reply."""


class Answer(msgspec.Struct, frozen=True):
    """A reply, with the requests and the seconds that it took."""

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
        self._request_slots = asyncio.Semaphore(limits.concurrency)
        self._paused_until = 0.0
        secrets: tuple[str, ...] = getattr(provider, "secrets", ())
        self._secrets = tuple(secret for secret in secrets if len(secret) >= _SHORTEST_KEY_CHARACTERS)

    async def ask(self, request: ModelRequest) -> Answer:
        """The reply. Raises :class:`NoAnswerError` if every try failed, or :class:`BudgetSpentError`."""
        began = time.monotonic()
        for tried in range(1, self._limits.retries + 2):
            try:
                reply = await self._try_once(request)
                return Answer(reply, tried, time.monotonic() - began)
            except ProviderError as failure:
                wait = self._seconds_before_next_try(failure, tried)
                if wait is None:
                    raise NoAnswerError(
                        failure, self._without_keys(str(failure)), tried, time.monotonic() - began
                    ) from failure
            await self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    async def close(self) -> None:
        """Close the provider's connections."""
        close = getattr(self._provider, "aclose", None)
        if close is not None:
            await close()

    async def _try_once(self, request: ModelRequest) -> Reply:
        async with self._request_slots:
            await self._wait_for_rate_limit()
            async with self.budget.reserved(request.messages) as spending:
                spending.usage = Usage() if self._is_free else None
                try:
                    reply = await self._within_time(request)
                except ProviderError as failure:
                    spending.usage = failure.usage or spending.usage
                    raise
                spending.usage = usage = self._usage_of(request, reply)
        return msgspec.structs.replace(
            reply,
            text=self._without_keys(reply.text),
            stop_reason=self._without_keys(reply.stop_reason),
            usage=self.budget.priced(usage),
        )

    def _usage_of(self, request: ModelRequest, reply: Reply) -> Usage:
        """The tokens that the provider reports, or an estimate if it reports none."""
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

    def _seconds_before_next_try(self, failure: ProviderError, tried: int) -> float | None:
        """Seconds until the next try; None: there is no next try. A rate limit pauses all requests."""
        if failure.reason == "refused" or tried > self._limits.retries:
            return None
        demanded_seconds = failure.retry_after_seconds
        if demanded_seconds is not None and demanded_seconds > _LONGEST_RETRY_AFTER_SECONDS:
            return None
        longest: float = min(_FIRST_WAIT_SECONDS * 2.0 ** (tried - 1), _LONGEST_BACKOFF_SECONDS)
        backoff = longest * random.uniform(0.5, 1.0)  # so that requests do not retry at the same moment
        if demanded_seconds is None and failure.reason != "rate_limit":
            return backoff
        pause = backoff if demanded_seconds is None else demanded_seconds
        self._paused_until = max(self._paused_until, time.monotonic() + pause)
        return 0.0 if demanded_seconds is None else random.uniform(0.0, 0.1) * demanded_seconds

    async def _wait_for_rate_limit(self) -> None:
        while (left := self._paused_until - time.monotonic()) > 0:
            await self._sleep(left)

    def _without_keys(self, text: str) -> str:
        """The text without API keys, and encodable, so that files can hold it."""
        text = encodable(text)
        for secret in self._secrets:
            text = text.replace(secret, REMOVED)
        return text
