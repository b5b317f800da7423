"""The options of a generation run, checked before anything is started or paid for."""

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
"""Where run folders are made unless told otherwise."""
IDENTITY = (
    "suite", "operators", "dtypes", "source", "largest", "sample", "dsl", "strategy", "provider", "model",
    "device", "effort", "shapes", "non_finite", "require_authored", "mode", "overhead_dominated", "expression",
    "case_keys",
)  # fmt: skip
"""The parts of a configuration that a resumed run must share with its beginning."""


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One run of generation. It holds no key."""

    suite: str = "smoke"
    operators: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    source: str | None = None
    largest: int | None = None
    sample: int | None = None
    overhead_dominated: bool = False
    expression: str | None = None
    case_keys: tuple[str, ...] | None = None
    """These three choose cases as in a `RunRequest`."""
    mode: Mode = "fwd"
    """Whether kernels are judged by their results, their gradients (`bwd`), or both."""
    provider: str | None = None
    """None: told from the model's name."""
    model: str | None = None
    base_url: str | None = None
    replay: Path | None = None
    dsl: str = "triton"
    strategy: Strategy = "refine"
    max_attempts: int = 5
    target_speedup: float | None = None
    """Go on until the lower end of the speedup reaches this; None: a right kernel is enough."""
    feedback_tokens: int = 1500
    """Longest feedback on one attempt."""
    feedback_profile: bool = False
    """Feedback on a right kernel says where its time goes, by torch's profiler in the sandbox."""
    concurrency: int = 8
    """Requests on their way at the same time."""
    retries: int = 5
    request_timeout_seconds: float = 600.0
    max_output_tokens: int = 16_000
    temperature: float | None = None
    stream: bool = True
    budget_usd: float | None = None
    budget_tokens: int | None = None
    price: Price | None = None
    """Of the model; None: the cost is unknown."""
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
    """The request with its names in their one spelling; raises on what can be seen to be wrong."""
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
    """Who serves the model, if nobody was named: Anthropic's models are told by their names."""
    if request.replay is not None:
        return "replay"
    if request.model is None:
        raise UsageError("no model is named. Add --model NAME, or --replay RUN_FOLDER for recorded replies.")
    return "anthropic" if request.model.startswith("claude") else "openai"


def configuration(request: GenerationRequest, device: str) -> dict[str, Any]:
    """What a manifest keeps of the request: all of it but where the folder is, and with the device that was chosen."""
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
    """The fields of the request that a manifest keeps, for a run that goes on."""
    known = {name: value for name, value in configuration.items() if name in GenerationRequest.__struct_fields__}
    try:
        fields = {**known, "source": configuration.get("source_path")}
        request = msgspec.convert(fields, GenerationRequest, dec_hook=lambda kind, value: kind(value))  # paths
    except msgspec.ValidationError as error:
        raise UsageError(f"the run's options cannot be read ({error}). Give them again.") from error
    return {name: getattr(request, name) for name in known}
