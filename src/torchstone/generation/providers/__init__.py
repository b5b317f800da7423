"""WHO ANSWERS: one method, a request in and a reply out. Named in `torchstone.registry`."""

from torchstone.generation.providers.base import (
    ModelRequest,
    Provider,
    ProviderError,
    ProviderOptions,
    Reply,
)
from torchstone.generation.providers.scripted import ScriptedProvider

__all__ = ["ModelRequest", "Provider", "ProviderError", "ProviderOptions", "Reply", "ScriptedProvider"]
