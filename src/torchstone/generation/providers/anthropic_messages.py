"""Provider `anthropic`: asks Anthropic's Messages API through Anthropic's SDK, streaming or not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from torchstone.errors import MissingExtraError, UsageError
from torchstone.generation.providers.base import (
    ModelRequest,
    ProviderError,
    ProviderOptions,
    Reply,
    failure_of_status,
    failure_to_connect,
    require_model,
    retry_after,
    used_by,
)
from torchstone.schema.generation import Usage

if TYPE_CHECKING:
    import anthropic

KEY = "ANTHROPIC_API_KEY"
BASE_URL = "ANTHROPIC_BASE_URL"


class AnthropicProvider:
    """Anthropic's models, or a server that speaks the Messages API: ANTHROPIC_API_KEY."""

    def __init__(self, options: ProviderOptions) -> None:
        self._model = require_model(options, "anthropic")
        if options.temperature is not None:
            raise UsageError("provider 'anthropic' takes no temperature. Leave out --temperature.")
        key = options.environment.get(KEY, "").strip()
        if not key:
            raise UsageError(f"{KEY} is not set. Set it to your key, or choose another --provider.")
        self.secrets = (key,)
        self._options = options
        self._sdk, self._http_error = _sdk()
        self._client = self._sdk.AsyncAnthropic(
            api_key=key,
            base_url=options.base_url or options.environment.get(BASE_URL) or None,
            max_retries=0,
            timeout=options.timeout_seconds,
        )

    async def reply(self, request: ModelRequest) -> Reply:
        asked: dict[str, Any] = {
            "model": self._model,
            "max_tokens": self._options.max_output_tokens,
            "messages": [{"role": each.role, "content": each.text} for each in request.messages],
        }
        try:
            if self._options.stream:
                return await self._streamed(asked)
            return _reply_of(await self._client.messages.create(**asked))
        except self._sdk.APIStatusError as error:
            wait = retry_after(error.response.headers, time.time())
            status = 529 if getattr(error, "type", None) == "overloaded_error" else error.status_code
            # An error in the middle of a stream has the status with which the stream began, such as 200.
            shown = max(status, 500) if status < 400 else status
            has_begun = error.response.status_code < 400
            raise failure_of_status(shown, error.message, wait, has_begun=has_begun) from error
        except self._sdk.APITimeoutError as error:
            raise ProviderError("timeout", str(error), usage=used_by(error)) from error
        except self._sdk.APIConnectionError as error:
            raise failure_to_connect(str(self._client.base_url), error) from error
        except self._http_error as error:  # the SDK does not wrap errors that break a stream
            raise failure_to_connect(str(self._client.base_url), error) from error
        except self._sdk.AnthropicError as error:
            raise ProviderError("garbage", f"{type(error).__name__}: {error}") from error

    async def _streamed(self, asked: dict[str, Any]) -> Reply:
        text, usage, stop_reason = list[str](), Usage(), None
        async with await self._client.messages.create(**asked, stream=True) as events:
            async for event in events:
                if event.type == "message_start":
                    usage = _usage_of(event.message.usage)
                elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                    text.append(event.delta.text)
                elif event.type == "message_delta":
                    stop_reason = event.delta.stop_reason
                    usage = Usage(usage.input_tokens, event.usage.output_tokens, usage.cached_input_tokens)
        if stop_reason is None:
            raise ProviderError("connection", "the stream ended before the reply did")
        return Reply("".join(text), usage, stop_reason)

    async def aclose(self) -> None:
        await self._client.close()


def _reply_of(message: anthropic.types.Message) -> Reply:
    text = "".join(block.text for block in message.content if block.type == "text")
    if message.stop_reason is None:
        raise ProviderError("garbage", "the reply has no stop_reason")
    return Reply(text, _usage_of(message.usage), message.stop_reason)


def _usage_of(usage: Any) -> Usage:
    """The tokens. The API counts input tokens that the cache was read or written for separately; this adds them."""
    cached = usage.cache_read_input_tokens or 0
    return Usage(
        usage.input_tokens + cached + (usage.cache_creation_input_tokens or 0), usage.output_tokens or 0, cached
    )


def _sdk() -> tuple[Any, type[Exception]]:
    """The SDK, and the base class of the errors of its HTTP library."""
    try:
        import anthropic
        import httpx2
    except ImportError as error:
        raise MissingExtraError("provider 'anthropic' needs its SDK: pip install 'torchstone[anthropic]'.") from error
    return anthropic, httpx2.HTTPError
