"""Keeps a run within its budget of dollars and tokens, including requests that are in progress.

A request is sent only if its worst case still fits beside the worst cases of those on their way. If the provider does
not say what a request used, a whole reply counts by its text, and a request without one as its worst case.
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
"""Fewer than of any text that is sent, so that the estimate is too high rather than too low."""
_TOKENS_PER_MESSAGE = 16
"""What providers add around each message, about."""


class BudgetSpentError(Exception):
    """The next request might exceed the budget; the message says which and by how much."""


class Spending:
    """What one request used; set by the caller that made it."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        """None: not known; it counts as the worst case."""


class Budget:
    """Counts what requests use, and lets a request begin only if it fits."""

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
        """``keep`` writes down what is used and reserved: before a request is sent, and when it has ended."""
        if usd is not None and price is None:
            raise UsageError(
                "--budget-usd needs the price of the model. Add --price INPUT,OUTPUT (dollars for a million tokens) "
                "or --prices FILE, or use --budget-tokens."
            )
        self._usd, self._tokens, self._price = usd, tokens, price
        self._max_output_tokens = max_output_tokens
        self._spent, self._keep = spent, keep
        self._reserved: list[Usage] = []
        self._changed = asyncio.Condition()

    @property
    def spent(self) -> Usage:
        """Of this run and what it was resumed from; with its cost if the price is known."""
        return self.priced(self._spent)

    def priced(self, usage: Usage) -> Usage:
        """The same with its cost."""
        cost = None if self._price is None else self._price.cost_usd(usage)
        return msgspec.structs.replace(usage, cost_usd=cost)

    def estimated(self, messages: tuple[Message, ...], reply: str) -> Usage:
        """What a whole reply used, if the provider does not say it; rather too much than too little."""
        output = min(math.ceil(len(reply) / _CHARACTERS_PER_TOKEN), self._max_output_tokens)
        return Usage(estimated_tokens(messages), output)

    @asynccontextmanager
    async def reserved(self, messages: tuple[Message, ...]) -> AsyncIterator[Spending]:
        """Waits until the worst case fits, and counts what was really used afterwards."""
        worst = Usage(estimated_tokens(messages), self._max_output_tokens)
        async with self._changed:
            await self._changed.wait_for(lambda: self._fits(worst) or not self._reserved)
            if not self._fits(worst):
                raise BudgetSpentError(self._why_not(worst))
            self._reserved.append(worst)
        spending = Spending()
        try:
            self._write()
            yield spending
        finally:
            # No await before the numbers are right: a cancelled task must not leave its reservation behind.
            self._reserved.remove(worst)
            self._spent = added(self._spent, worst if spending.usage is None else spending.usage)
            self._write()
            async with self._changed:
                self._changed.notify_all()

    def _write(self) -> None:
        self._keep(functools.reduce(added, self._reserved, self._spent))

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
    """Both together, without cost: that follows from the sum."""
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cached_input_tokens + other.cached_input_tokens,
    )


def estimated_tokens(messages: tuple[Message, ...]) -> int:
    """Tokens of messages, rather too many than too few."""
    characters = sum(len(message.text) for message in messages)
    return int(characters / _CHARACTERS_PER_TOKEN) + _TOKENS_PER_MESSAGE * len(messages)
