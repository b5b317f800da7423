"""The options of a generation run, and the checks of them before anything is started or paid for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from torchstone import registry
from torchstone.errors import UsageError
from torchstone.generation.prices import Price
from torchstone.generation.strategies import Goal, strategy_named
from torchstone.prompting import language_named
from torchstone.runs.request import check_run_id
from torchstone.schema import Deadlines, Effort, IsolationLevel, Limits, NonFiniteInputs, Shapes
from torchstone.schema.generation import Strategy
from torchstone.suites import Mode
from torchstone.suites.recorded_call_files import identity_of

OUTPUT_DIR = Path("generated_kernels")
"""Default folder of run folders."""
IDENTITY = (
    "suite", "operators", "dtypes", "source", "largest", "sample", "dsl", "strategy", "provider", "model",
    "device", "effort", "shapes", "non_finite", "require_authored", "mode", "overhead_dominated", "expression",
    "case_keys",
)  # fmt: skip
"""Fields of the configuration that must be the same when a run is resumed."""


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one generation run. API keys are not among them."""

    suite: str = "smoke"
    operators: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    source: str | None = None
    largest: int | None = None
    sample: int | None = None
    overhead_dominated: bool = False
    expression: str | None = None
    case_keys: tuple[str, ...] | None = None
    """`overhead_dominated`, `expression` and `case_keys` select cases as in a `RunRequest`."""
    mode: Mode = "fwd"
    """Whether kernels are judged by their results, their gradients (`bwd`), or both."""
    provider: str | None = None
    """None: chosen by the model's name."""
    model: str | None = None
    base_url: str | None = None
    replay: Path | None = None
    dsl: str = "triton"
    strategy: Strategy = "refine"
    max_attempts: int = 5
    target_speedup: float | None = None
    """Continue until the lower end of the speedup's interval reaches this; None: a right kernel is enough."""
    feedback_tokens: int = 1500
    """Longest feedback on one attempt, in tokens."""
    feedback_profile: bool = False
    """Feedback on a right kernel says where its time goes, by torch's profiler in the sandbox."""
    concurrency: int = 8
    """Most requests in progress at the same time."""
    retries: int = 5
    request_timeout_seconds: float = 600.0
    max_output_tokens: int = 16_000
    temperature: float | None = None
    stream: bool = True
    budget_usd: float | None = None
    budget_tokens: int | None = None
    price: Price | None = None
    """Price of the model; None: the cost is unknown."""
    device: str = "auto"
    effort: Effort = "quick"
    isolation: IsolationLevel = "best"
    threads: int = 1
    judges: int = 1
    shapes: Shapes = "near"
    non_finite: NonFiniteInputs = "check"
    require_authored: bool = False
    """A kernel in which torch or a library does work, copies included, is `delegated` and not right."""
    deadlines: Deadlines = Deadlines()
    limits: Limits = Limits()
    run_id: str | None = None
    resume: bool = False
    output_dir: Path = OUTPUT_DIR
    command: tuple[str, ...] = ()


def checked(request: GenerationRequest) -> GenerationRequest:
    """The request with canonical names. Raises UsageError for options that are wrong or contradict each other."""
    language_named(request.dsl)
    strategy_named(request.strategy)
    check_run_id(request.run_id, request.resume)
    _require_positive(request)
    if request.feedback_profile and not strategy_named(request.strategy).shows_right(_goal(request)):
        raise UsageError(
            "feedback_profile is for the feedback on right kernels, and no model would read it: the run ends at the "
            "first right kernel, or attempts are independent. Add --target-speedup X or --strategy evolve."
        )
    if request.isolation == "none":
        raise UsageError("isolation 'none': kernels written by a model run only in the sandbox. Use best or strict.")
    if request.base_url is not None and "@" in request.base_url.partition("://")[2].partition("/")[0]:
        raise UsageError("base_url holds a password, and run folders keep it. Put keys into the environment.")
    provider = request.provider or provider_of(request)
    registry.providers.factory(provider)
    return msgspec.structs.replace(
        request,
        suite=registry.suites.canonical(request.suite),
        provider=provider,
        operators=None if request.operators is None else tuple(dict.fromkeys(request.operators)),
    )


def _goal(request: GenerationRequest) -> Goal:
    return Goal(request.max_attempts, request.target_speedup)


def _require_positive(request: GenerationRequest) -> None:
    bounds = ("max_attempts", "concurrency", "max_output_tokens", "feedback_tokens", "request_timeout_seconds")
    for name in (*bounds, "target_speedup", "budget_usd", "budget_tokens"):
        value = getattr(request, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"{name} is {value:g}; it must be above 0.")
    if request.retries < 0:
        raise UsageError(f"retries is {request.retries}; it must be 0 or more.")


def provider_of(request: GenerationRequest) -> str:
    """The provider if none is named: `replay` for recorded replies, `anthropic` for models `claude…`, else `openai`."""
    if request.replay is not None:
        return "replay"
    if request.model is None:
        raise UsageError("no model is named. Add --model NAME, or --replay RUN_FOLDER for recorded replies.")
    return "anthropic" if request.model.startswith("claude") else "openai"


def configuration(request: GenerationRequest, device: str) -> dict[str, Any]:
    """The request as a manifest stores it, with the resolved device. Run id, output folder and command are left out."""
    fields = msgspec.to_builtins(request, enc_hook=str)  # paths
    for name in ("run_id", "resume", "output_dir", "command"):
        del fields[name]
    return {
        **fields,
        "device": device,
        "operators": sorted(request.operators or ()) or None,
        "source": identity_of(request.source),
        "source_path": request.source,
    }


def remembered(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the request that a manifest's configuration stores, for resuming the run."""
    known = {name: value for name, value in configuration.items() if name in GenerationRequest.__struct_fields__}
    try:
        fields = {**known, "source": configuration.get("source_path")}
        request = msgspec.convert(fields, GenerationRequest, dec_hook=lambda kind, value: kind(value))  # paths
    except msgspec.ValidationError as error:
        raise UsageError(f"the run's options cannot be read ({error}). Give them again.") from error
    return {name: getattr(request, name) for name in known}
