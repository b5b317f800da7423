"""Options that say which model writes kernels, in which language, and what that may cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchstone.cli.option_groups import option
from torchstone.cli.parameters import NumberRange

if TYPE_CHECKING:
    from torchstone.generation.prices import Price

DSLS = ("triton", "cuda", "cpp", "pytorch", "helion", "cutedsl")
"""Languages of kernels. A test compares them with the languages that prompts exist for."""
STRATEGIES = ("refine", "best-of-n", "evolve")

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def model_options(group: str, attempts: tuple[str, ...], default_attempts: int | None) -> _Decorator:
    """The options for the model, its attempts and its budget, which `generate` and `run --backend llm` share."""
    declared = (*_server_options(group), *_attempt_options(group, attempts, default_attempts), *_budget_options(group))

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for each in reversed(declared):
            command = each(command)
        return command

    return decorate


def _server_options(group: str) -> tuple[_Decorator, ...]:
    """Which model writes kernels, and where it is asked."""
    return (
        option("--model", group=group, metavar="NAME", help="Model that writes the kernels."),
        option(
            "--provider",
            group=group,
            metavar="NAME",
            show_default="from the model's name",
            help="anthropic, openai (any server that speaks chat completions), replay, or an installed one.",
        ),
        option("--base-url", group=group, metavar="URL", help="Address of the model's server: vLLM, Ollama …"),
        option(
            "--replay",
            group=group,
            type=click.Path(path_type=Path),
            metavar="RUN_FOLDER",
            help="Take recorded replies from this run folder or transcript.jsonl; no model is asked.",
        ),
    )


def _attempt_options(group: str, attempts: tuple[str, ...], default_attempts: int | None) -> tuple[_Decorator, ...]:
    """In which language, by which strategy and how often a model is asked."""
    return (
        option(
            "--dsl",
            group=group,
            type=click.Choice(DSLS),
            default="triton",
            show_default=True,
            help="Language of the kernels.",
        ),
        option(
            "--strategy",
            group=group,
            type=click.Choice(STRATEGIES),
            default="refine",
            show_default=True,
            help="Each attempt from the feedback on the last, all independent, or from the best ones.",
        ),
        option(
            *attempts,
            "max_attempts",
            group=group,
            type=click.IntRange(min=1),
            metavar="N",
            default=default_attempts,
            show_default=default_attempts is not None,
            help="Attempts for each operator." + ("" if default_attempts is not None else " Default: 5."),
        ),
        option(
            "--concurrency",
            group=group,
            type=click.IntRange(min=1),
            metavar="N",
            default=8,
            show_default=True,
            help="Requests on their way at the same time.",
        ),
    )


def _budget_options(group: str) -> tuple[_Decorator, ...]:
    """What asking may cost."""
    return (
        option(
            "--budget-usd",
            group=group,
            type=NumberRange(min=0, min_open=True),
            metavar="X",
            help="Dollars that are never exceeded; needs a price.",
        ),
        option(
            "--budget-tokens",
            group=group,
            type=click.IntRange(min=1),
            metavar="N",
            help="Tokens, in and out, that are never exceeded.",
        ),
        option("--price", group=group, metavar="IN,OUT", help="Dollars for a million tokens in and out: 3,15."),
        option(
            "--prices",
            group=group,
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Table of prices, JSON or TOML: model -> {input, output, cached_input}.",
        ),
    )


MODEL_FIELDS = (
    "model", "provider", "base_url", "replay", "dsl", "strategy", "concurrency", "budget_usd", "budget_tokens",
)  # fmt: skip
"""Fields of a `GenerationRequest` that have an option of the same name here."""


def price_of(given: Mapping[str, Any]) -> Price | None:
    """The price of the model from the options; None: it is not known."""
    from torchstone.generation.prices import parse_price, read_prices

    if given["price"] is not None and given["prices"] is not None:
        raise click.UsageError("give --price or --prices, not both.")
    if given["price"] is not None:
        return parse_price(given["price"])
    if given["prices"] is not None:
        return read_prices(given["prices"]).get(given["model"] or "")
    return None
