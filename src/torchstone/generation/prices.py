"""Prices of models. Users give them, because prices change. Without a price the cost is unknown, not zero."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from torchstone.errors import UsageError
from torchstone.schema.generation import Usage

Dollars = Annotated[float, msgspec.Meta(ge=0)]

_MILLION = 1e6
_EXAMPLE = '{"some-model": {"input": 3.0, "output": 15.0, "cached_input": 0.3}}'


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """US dollars for a million tokens."""

    input: Dollars
    output: Dollars
    cached_input: Dollars | None = None
    """Price of input tokens that the provider read from its cache; None: the price of other input tokens."""

    def cost_usd(self, usage: Usage) -> float:
        """The cost of these tokens in US dollars."""
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = usage.input_tokens - usage.cached_input_tokens
        return (fresh * self.input + usage.cached_input_tokens * cached + usage.output_tokens * self.output) / _MILLION


def read_prices(path: Path) -> dict[str, Price]:
    """The prices in a JSON or TOML file, by model."""
    try:
        data = path.read_bytes()
        decoder = msgspec.toml.decode if path.suffix == ".toml" else msgspec.json.decode
        return decoder(data, type=dict[str, Price])
    except OSError as error:
        raise UsageError(f"cannot read the prices in {path}: {error.strerror}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a table of prices ({error}). Write JSON like {_EXAMPLE}.") from error


def parse_price(text: str) -> Price:
    """A price from ``3,15``: dollars for a million input and output tokens. A third number is for cached input."""
    try:
        return msgspec.convert(dict(zip(("input", "output", "cached_input"), _numbers(text), strict=False)), Price)
    except (ValueError, msgspec.ValidationError):
        raise UsageError(
            f"--price '{text}' is not a price. Write dollars for a million tokens, input and output: --price 3,15"
        ) from None


def _numbers(text: str) -> list[float]:
    numbers = [float(part) for part in text.split(",")]
    if len(numbers) > 3:
        raise ValueError(text)
    return numbers
