"""Provider `openai`: asks for chat completions through OpenAI's SDK, of OpenAI, vLLM, Ollama or another server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

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
    import openai

KEY = "OPENAI_API_KEY"
BASE_URL = "OPENAI_BASE_URL"
_NO_KEY = "none"
"""Key for the user's own servers, which need none. The SDK requires one."""


class OpenAIProvider:
    """OpenAI's models, or any server that speaks chat completions: OPENAI_API_KEY, OPENAI_BASE_URL."""

    def __init__(self, options: ProviderOptions) -> None:
        self._model = require_model(options, "openai")
        base_url = options.base_url or options.environment.get(BASE_URL) or None
        key = options.environment.get(KEY, "").strip()
        if not key and base_url is None:
            raise UsageError(f"{KEY} is not set. Set it to your key, or name your own server with {BASE_URL}.")
        self.secrets = (key,) if key else ()
        self._options = options
        self._sdk = _sdk()
        self._client = self._sdk.AsyncOpenAI(
            api_key=key or _NO_KEY, base_url=base_url, max_retries=0, timeout=options.timeout_seconds
        )
        # OpenAI's newer models know only the long name, many other servers only the short one.
        is_openai = base_url is None or (urlsplit(base_url).hostname or "").endswith("openai.com")
        self._limit_name = "max_completion_tokens" if is_openai else "max_tokens"

    async def reply(self, request: ModelRequest) -> Reply:
        asked: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": each.role, "content": each.text} for each in request.messages],
            self._limit_name: self._options.max_output_tokens,
        }
        if self._options.temperature is not None:
            asked["temperature"] = self._options.temperature
        try:
            if self._options.stream:
                return await self._streamed(asked)
            return _reply_of(await self._client.chat.completions.create(**asked))
        except self._sdk.APIStatusError as error:
            wait = retry_after(error.response.headers, time.time())
            raise failure_of_status(error.status_code, error.message, wait) from error
        except self._sdk.APITimeoutError as error:
            raise ProviderError("timeout", str(error), usage=used_by(error)) from error
        except self._sdk.APIConnectionError as error:
            raise failure_to_connect(str(self._client.base_url), error) from error
        except self._sdk.APIError as error:  # an error in the middle of a stream
            raise ProviderError("overloaded", str(error)) from error
        except self._sdk.OpenAIError as error:
            raise ProviderError("garbage", f"{type(error).__name__}: {error}") from error

    async def _streamed(self, asked: dict[str, Any]) -> Reply:
        text, usage, stop_reason = list[str](), Usage(), None
        options = {"include_usage": True}
        async with await self._client.chat.completions.create(**asked, stream=True, stream_options=options) as chunks:
            async for chunk in chunks:
                if chunk.usage is not None:
                    usage = _usage_of(chunk.usage)
                for choice in chunk.choices[:1]:
                    text.append(choice.delta.content or "")
                    stop_reason = choice.finish_reason or stop_reason
        if stop_reason is None:
            raise ProviderError("connection", "the stream ended before the reply did")
        return Reply("".join(text), usage, stop_reason)

    async def aclose(self) -> None:
        await self._client.close()


def _reply_of(completion: openai.types.chat.ChatCompletion) -> Reply:
    if not completion.choices:
        raise ProviderError("garbage", "the reply has no choices")
    choice = completion.choices[0]
    usage = _usage_of(completion.usage) if completion.usage is not None else Usage()
    return Reply(choice.message.content or "", usage, choice.finish_reason or "")


def _usage_of(usage: Any) -> Usage:
    details = usage.prompt_tokens_details
    cached = (details.cached_tokens or 0) if details is not None else 0
    return Usage(usage.prompt_tokens or 0, usage.completion_tokens or 0, cached)


def _sdk() -> Any:
    try:
        import openai
    except ImportError as error:
        raise MissingExtraError("provider 'openai' needs its SDK: pip install 'torchstone[openai]'.") from error
    return openai
