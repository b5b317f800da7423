"""Providers ask a model and return its reply. Each has one method, `reply`; users choose one by name."""

from torchstone.generation.providers.base import (
    ModelRequest,
    Provider,
    ProviderError,
    ProviderOptions,
    Reply,
)
from torchstone.generation.providers.scripted import ScriptedProvider

__all__ = ["ModelRequest", "Provider", "ProviderError", "ProviderOptions", "Reply", "ScriptedProvider"]
