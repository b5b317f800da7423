"""Finds the provider and cases of a generation run, or raises, before anything is written or paid for."""

from __future__ import annotations

import os

from torchstone import registry
from torchstone.errors import UsageError
from torchstone.generation.providers import Provider, ProviderOptions
from torchstone.generation.request import GenerationRequest
from torchstone.prompting import Language, require_runnable
from torchstone.runs import RunRequest
from torchstone.runs.choose_cases_and_kernels import choose_cases
from torchstone.runs.devices import device_type
from torchstone.runs.request import check as check_run_request
from torchstone.schema import Case, forward_operator, is_model


def runnable_provider(
    request: GenerationRequest, language: Language, device: str, provider: Provider | None
) -> Provider:
    """The provider. Raises UsageError if a key or recording is missing, or if the language cannot run on the device.

    If both are wrong, one message says so.
    """
    try:
        found = provider or provider_for(request)
    except UsageError as missing:
        try:
            require_runnable(language, device_type(device))
        except UsageError as not_runnable:
            raise UsageError(f"{not_runnable} Besides: {missing}") from missing
        raise
    require_runnable(language, device_type(device))
    return found


def provider_for(request: GenerationRequest) -> Provider:
    """The provider of a checked request. Raises UsageError if its key, model or SDK is missing."""
    options = ProviderOptions(
        model=request.model,
        base_url=request.base_url,
        max_output_tokens=request.max_output_tokens,
        temperature=request.temperature,
        stream=request.stream,
        timeout_seconds=request.request_timeout_seconds,
        replay=request.replay,
        environment=os.environ,
    )
    made: Provider = registry.providers.factory(str(request.provider))(options)
    return made


def cases_by_operator(request: GenerationRequest, device: str) -> dict[str, tuple[Case, ...]]:
    """The cases of the request by forward operator. Raises UsageError if a problem file would be profiled."""
    shared = (
        "suite", "operators", "dtypes", "source", "largest", "sample", "mode", "overhead_dominated", "expression",
        "case_keys",
    )  # fmt: skip
    wanted = check_run_request(RunRequest(**{name: getattr(request, name) for name in shared}))
    cases = choose_cases(wanted, device, registry.suites.factory(wanted.suite)())
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(forward_operator(case.operator), []).append(case)
    models = [operator for operator in found if is_model(operator)]
    if models and request.feedback_profile:
        raise UsageError(
            f"feedback_profile is for operators of torch, not for problems such as {models[0]}. Leave it out."
        )
    return {operator: tuple(own) for operator, own in found.items()}


def answerable(
    provider: Provider, cases: dict[str, tuple[Case, ...]], request: GenerationRequest
) -> dict[str, tuple[Case, ...]]:
    """The cases of operators that the provider can answer for. It raises if it cannot for one that the user named."""
    operators_of = getattr(provider, "operators_of", None)
    if operators_of is None:
        return cases
    chosen = operators_of(cases, are_named=request.operators is not None)
    return {operator: own for operator, own in cases.items() if operator in chosen}
