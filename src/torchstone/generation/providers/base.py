"""The interface of a provider, and the error that it raises. Retries, limits and budgets are not its job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from torchstone.errors import UsageError
from torchstone.schema.generation import Message, Usage

Failure = Literal["rate_limit", "overloaded", "connection", "timeout", "garbage", "refused"]
"""`refused`: the server rejects the request, and asking again would not help."""


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
    """Without tokens: the server does not count them."""
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
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.reason: Failure = reason
        self.retry_after_seconds = retry_after_seconds
        """How long the server asks to wait; None: it does not say."""
        self.ends_the_run = ends_the_run
        """Whether every other request would fail alike: a wrong key, an unknown model."""
        self.usage = usage
        """What the request used; ``Usage()``: the server did not take it. None: not known, it counts as worst case."""


class Provider(Protocol):
    """Asks a model and returns its reply. Constructed with :class:`ProviderOptions`.

    A provider with keys has an attribute ``secrets``, a tuple of texts that are removed from all that is kept. One with
    connections has an async method ``aclose()``. One whose replies cost nothing has ``is_free = True``. One that can
    answer for some operators only has ``operators_of(wanted, are_named=…)``, which gives those, or a `UsageError`.
    """

    async def reply(self, request: ModelRequest) -> Reply:
        """The reply, or :class:`ProviderError`. May be cancelled."""
        ...


def require_model(options: ProviderOptions, provider: str) -> str:
    """The model's name."""
    if not options.model:
        raise UsageError(f"provider '{provider}' needs the name of a model: add --model NAME.")
    return options.model


_PROXY_FAILURES = (502, 504, 524)
"""Statuses of a proxy that had no reply from the server behind it, which may have made one."""


def failure_of_status(
    status: int, message: str, retry_after_seconds: float | None = None, *, has_begun: bool = False
) -> ProviderError:
    """What an HTTP status means. Servers of both kinds use them alike; 529 is Anthropic's for overloaded.

    ``has_begun``: the error came in the middle of a reply.
    """
    text = f"HTTP {status}: {message}"
    usage = None if has_begun or status in _PROXY_FAILURES else Usage()
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


_BEFORE_SENDING = ("ConnectError", "ConnectTimeout")
"""Errors of the SDKs' HTTP libraries from which it is known that no request was sent."""


def failure_to_connect(url: str, error: BaseException) -> ProviderError:
    """No connection, or one that broke: the server's address, and the first cause, which SDKs hide below their own."""
    told = next((text for cause in reversed(_causes(error)) if (text := _words_of(cause))), type(error).__name__)
    return ProviderError("connection", f"{shown_address(url)}: {told}", usage=used_by(error))


def used_by(error: BaseException) -> Usage | None:
    """Nothing, if there was no connection; None: a request may have been sent, and what it used is not known."""
    return Usage() if any(type(cause).__name__ in _BEFORE_SENDING for cause in _causes(error)) else None


def _causes(error: BaseException) -> list[BaseException]:
    """The error, what it was raised from, and so on."""
    causes = [error]
    while (below := causes[-1].__cause__ or causes[-1].__context__) is not None and below not in causes:
        causes.append(below)
    return causes


def _words_of(error: BaseException) -> str:
    """The system's text for the error number. An unknown host has a number below 0: the error's own text."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number is not None and number > 0 else str(error).strip()


def shown_address(url: str) -> str:
    """The address without what may be secret: a password or a query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
