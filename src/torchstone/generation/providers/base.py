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
    """Options for providers, from the command line or a program. Each provider uses those that it needs."""

    model: str | None = None
    base_url: str | None = None
    """Address of the server; None: the provider's default."""
    max_output_tokens: int = 16_000
    """Longest reply, hidden reasoning included."""
    temperature: float | None = None
    """None: the model's default."""
    stream: bool = True
    timeout_seconds: float = 600.0
    """Limit for a whole reply. The caller enforces it, too."""
    replay: Path | None = None
    """File or run folder of recorded replies."""
    environment: Mapping[str, str] = {}
    """Environment variables, from which keys are read."""


class ModelRequest(msgspec.Struct, frozen=True):
    """One request to a model."""

    operator: str
    number: int
    """Number of the attempt, from 1."""
    messages: tuple[Message, ...]


class Reply(msgspec.Struct, frozen=True):
    """A complete reply of a model."""

    text: str
    usage: Usage = Usage()
    """No tokens: the server does not report them."""
    stop_reason: str = ""


class ProviderError(Exception):
    """A request got no complete reply."""

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
        """Seconds that the server demands to wait; None: it names none."""
        self.ends_the_run = ends_the_run
        """Whether every other request would fail in the same way: a wrong key, an unknown model."""
        self.usage = usage
        """``Usage()``: the server did not accept the request. None: not known, and counted as the worst case."""


class Provider(Protocol):
    """Asks a model and returns its reply. Constructed with :class:`ProviderOptions`.

    Optional members:

    - ``secrets``: the keys, which are removed from every text that is stored.
    - ``aclose()``, async: closes connections.
    - ``is_free = True``: replies cost nothing.
    - ``operators_of(wanted, are_named=…)``: the operators that it can answer for, if those are not all. Raises
      `UsageError` if it cannot answer for one that the user named.
    """

    async def reply(self, request: ModelRequest) -> Reply:
        """The reply. Raises :class:`ProviderError`. May be cancelled."""
        ...


def require_model(options: ProviderOptions, provider: str) -> str:
    """The model's name. Raises UsageError if there is none."""
    if not options.model:
        raise UsageError(f"provider '{provider}' needs the name of a model: add --model NAME.")
    return options.model


_PROXY_STATUSES = (502, 504, 524)
"""HTTP statuses of a proxy that got no reply from the server behind it. That server may have computed one."""


def failure_of_status(
    status: int, message: str, retry_after_seconds: float | None = None, *, has_begun: bool = False
) -> ProviderError:
    """The error for an HTTP status. Both APIs use the same statuses; 529 is Anthropic's for an overloaded server.

    ``has_begun``: the error came in the middle of a reply.
    """
    text = f"HTTP {status}: {message}"
    usage = None if has_begun or status in _PROXY_STATUSES else Usage()
    if status == 429:
        return ProviderError("rate_limit", text, retry_after_seconds=retry_after_seconds, usage=usage)
    if status >= 500 or status in (408, 409):
        return ProviderError("overloaded", text, retry_after_seconds=retry_after_seconds, usage=usage)
    return ProviderError("refused", text, ends_the_run=status in (401, 402, 403, 404), usage=usage)


def retry_after(headers: Mapping[str, str], now_unix_seconds: float) -> float | None:
    """Seconds of the header Retry-After, which is a number or a date; None: missing or not readable."""
    from email.utils import parsedate_to_datetime

    text = headers.get("retry-after", "").strip()
    try:
        if text.replace(".", "", 1).isdigit():
            return float(text)
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_unix_seconds)
    except (TypeError, ValueError, OverflowError):
        return None


_ERRORS_BEFORE_SENDING = ("ConnectError", "ConnectTimeout")
"""Class names of errors of the SDKs' HTTP libraries which mean that no request was sent."""


def failure_to_connect(url: str, error: BaseException) -> ProviderError:
    """The error for a connection that failed or broke. It names the server's address and the innermost cause, because
    the SDKs' own errors say less.
    """
    cause_text = next((text for cause in reversed(_causes(error)) if (text := _reason_of(cause))), type(error).__name__)
    return ProviderError("connection", f"{shown_address(url)}: {cause_text}", usage=used_by(error))


def used_by(error: BaseException) -> Usage | None:
    """No usage if there was no connection. None: a request may have been sent, and its usage is not known."""
    return Usage() if any(type(cause).__name__ in _ERRORS_BEFORE_SENDING for cause in _causes(error)) else None


def _causes(error: BaseException) -> list[BaseException]:
    """The error, followed by its causes, the innermost last."""
    causes = [error]
    while (below := causes[-1].__cause__ or causes[-1].__context__) is not None and below not in causes:
        causes.append(below)
    return causes


def _reason_of(error: BaseException) -> str:
    """The system's text for the error number. Without a positive number (an unknown host), the error's own text."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number is not None and number > 0 else str(error).strip()


def shown_address(url: str) -> str:
    """The address without parts that may be secret: user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
