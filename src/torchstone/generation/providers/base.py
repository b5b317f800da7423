"""The protocol of a provider, and the error that it raises. Retries, limits and budgets are not its business."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from torchstone.errors import UsageError
from torchstone.schema.generation import Message, Usage

Failure = Literal["rate_limit", "overloaded", "connection", "timeout", "garbage", "refused"]
"""`refused`: asking again in the same words is of no use."""


class ProviderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line or a program says about providers. Each takes what it needs."""

    model: str | None = None
    base_url: str | None = None
    """Address of the server; None is the provider's usual one."""
    max_output_tokens: int = 16_000
    """Longest reply, hidden reasoning included."""
    temperature: float | None = None
    """None is the model's own."""
    stream: bool = True
    timeout_seconds: float = 600.0
    """For a whole reply. The caller enforces it, too."""
    replay: Path | None = None
    """File or run folder of recorded replies."""
    environment: Mapping[str, str] = {}
    """Where keys are read from."""


class ModelRequest(msgspec.Struct, frozen=True):
    """One question."""

    operator: str
    number: int
    """Of the attempt, from 1."""
    messages: tuple[Message, ...]


class Reply(msgspec.Struct, frozen=True):
    """The whole answer."""

    text: str
    usage: Usage = Usage()
    stop_reason: str = ""


class ProviderError(Exception):
    """There is no whole reply."""

    def __init__(
        self,
        reason: Failure,
        message: str,
        *,
        retry_after_seconds: float | None = None,
        ends_the_run: bool = False,
        usage: Usage = Usage(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(message)
        self.reason: Failure = reason
        self.retry_after_seconds = retry_after_seconds
        """How long the server asks to wait; None: it does not say."""
        self.ends_the_run = ends_the_run
        """Whether every other request would fail alike: a wrong key, an unknown model."""
        self.usage = usage
        """What is known to have been used before it failed."""


class Provider(Protocol):
    """Somebody who answers. Constructed with :class:`ProviderOptions`.

    A provider with keys has an attribute ``secrets``, a tuple of texts that are removed from all that is kept. One with
    connections has an async method ``aclose()``. One whose replies cost nothing has ``is_free = True``.
    """

    async def reply(self, request: ModelRequest) -> Reply:
        """The reply, or :class:`ProviderError`. May be cancelled."""
        ...


def require_model(options: ProviderOptions, provider: str) -> str:
    """The model's name."""
    if not options.model:
        raise UsageError(f"provider '{provider}' needs the name of a model: add --model NAME.")
    return options.model


def failure_of_status(
    status: int,
    message: str,
    retry_after_seconds: float | None = None,
    usage: Usage = Usage(),  # noqa: B008 - frozen
) -> ProviderError:
    """What an HTTP status means. Servers of both kinds use them alike; 529 is Anthropic's for overloaded."""
    text = f"HTTP {status}: {message}"
    if status == 429:
        return ProviderError("rate_limit", text, retry_after_seconds=retry_after_seconds, usage=usage)
    if status >= 500 or status in (408, 409):
        return ProviderError("overloaded", text, retry_after_seconds=retry_after_seconds, usage=usage)
    return ProviderError("refused", text, ends_the_run=status in (401, 402, 403, 404), usage=usage)


def retry_after(headers: Mapping[str, str], now_unix_seconds: float) -> float | None:
    """Seconds that the header asks to wait: a number, or the time of a date."""
    from email.utils import parsedate_to_datetime

    text = headers.get("retry-after", "").strip()
    try:
        if text.replace(".", "", 1).isdigit():
            return float(text)
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_unix_seconds)
    except (TypeError, ValueError, OverflowError):
        return None


_CHARACTERS_PER_TOKEN = 4
"""Of English and code, about; for what was received of a reply that was cut off."""


class Received:
    """What came of a reply so far, in case that it breaks off."""

    def __init__(self) -> None:
        self.input_tokens = 0
        self.text: list[str] = []

    @property
    def usage(self) -> Usage:
        """What it has used as far as is known."""
        return Usage(self.input_tokens, sum(map(len, self.text)) // _CHARACTERS_PER_TOKEN)
