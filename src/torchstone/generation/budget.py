"""Keeps a run within its budget of dollars and tokens, including requests that are in progress.

A request is sent only if its worst case fits together with the worst cases of the requests in progress. If the provider
does not report the usage, a complete reply counts by its text, and a request without a reply as its worst case.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from torchstone.errors import UsageError
from torchstone.generation.prices import Price
from torchstone.schema.generation import Message, Usage

_CHARACTERS_PER_TOKEN = 2.5
"""Used for estimates. Texts that are sent have more, so that an estimate is too high rather than too low."""
_TOKENS_PER_MESSAGE = 16
"""Tokens that providers add to each message, approximately."""


class BudgetSpentError(Exception):
    """The next request might exceed the budget. The message says which budget, and how much is used and needed."""


class Spending:
    """The usage of one request, which its sender sets."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        """None: not known, and counted as the worst case."""


class Budget:
    """Counts the usage of requests, and lets a request begin only if its worst case fits."""

    def __init__(
        self,
        *,
        usd: float | None = None,
        tokens: int | None = None,
        price: Price | None = None,
        max_output_tokens: int = 0,
        spent: Usage = Usage(),  # noqa: B008 - frozen
        keep: Callable[[Usage], None] = lambda used: None,
    ) -> None:
        """``keep`` stores the usage including reservations. It is called before a request is sent and after its end."""
        if usd is not None and price is None:
            raise UsageError(
                "--budget-usd needs the price of the model. Add --price INPUT,OUTPUT (dollars for a million tokens) "
                "or --prices FILE, or use --budget-tokens."
            )
        self._usd, self._tokens, self._price = usd, tokens, price
        self._max_output_tokens = max_output_tokens
        self._spent, self._store = spent, keep
        self._reserved: list[Usage] = []
        self._changed = asyncio.Condition()

    @property
    def spent(self) -> Usage:
        """The usage of the run, earlier parts included, with its cost if the price is known."""
        return self.priced(self._spent)

    def priced(self, usage: Usage) -> Usage:
        """The usage with its cost; without a price the cost is None."""
        cost = None if self._price is None else self._price.cost_usd(usage)
        return msgspec.structs.replace(usage, cost_usd=cost)

    def estimated(self, messages: tuple[Message, ...], reply: str) -> Usage:
        """The estimated usage of a complete reply, rather too high than too low."""
        output = min(math.ceil(len(reply) / _CHARACTERS_PER_TOKEN), self._max_output_tokens)
        return Usage(estimated_tokens(messages), output)

    @asynccontextmanager
    async def reserved(self, messages: tuple[Message, ...]) -> AsyncIterator[Spending]:
        """Wait until the worst case of a request fits, reserve it, and count the real usage at the end.

        Raises BudgetSpentError if it does not fit although no other request is in progress.
        """
        worst = Usage(estimated_tokens(messages), self._max_output_tokens)
        async with self._changed:
            await self._changed.wait_for(lambda: self._fits(worst) or not self._reserved)
            if not self._fits(worst):
                raise BudgetSpentError(self._why_not(worst))
            self._reserved.append(worst)
        spending = Spending()
        try:
            self._store_usage()
            yield spending
        finally:
            # No await before the numbers are right: a cancelled task must not leave its reservation behind.
            self._reserved.remove(worst)
            self._spent = added(self._spent, worst if spending.usage is None else spending.usage)
            self._store_usage()
            async with self._changed:
                self._changed.notify_all()

    def _store_usage(self) -> None:
        self._store(functools.reduce(added, self._reserved, self._spent))

    def _fits(self, worst: Usage) -> bool:
        total = functools.reduce(added, self._reserved, added(self._spent, worst))
        within_tokens = self._tokens is None or total.tokens <= self._tokens
        within_usd = self._usd is None or self._price is None or self._price.cost_usd(total) <= self._usd
        return within_tokens and within_usd

    def _why_not(self, worst: Usage) -> str:
        if self._tokens is not None and added(self._spent, worst).tokens > self._tokens:
            return (
                f"{self._spent.tokens} of {self._tokens} tokens are used, and the next request may take "
                f"{worst.tokens} (its text and --max-output-tokens)"
            )
        spent, next_usd = self.priced(self._spent).cost_usd or 0.0, self.priced(worst).cost_usd or 0.0
        return (
            f"${spent:.4f} of ${self._usd:.4f} are spent, and the next request may cost ${next_usd:.4f} "
            "(its text and --max-output-tokens)"
        )


def added(one: Usage, other: Usage) -> Usage:
    """The sum of both, without a cost, which follows from the sum."""
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cached_input_tokens + other.cached_input_tokens,
    )


def estimated_tokens(messages: tuple[Message, ...]) -> int:
    """The estimated tokens of messages, rather too many than too few."""
    characters = sum(len(message.text) for message in messages)
    return int(characters / _CHARACTERS_PER_TOKEN) + _TOKENS_PER_MESSAGE * len(messages)
