"""What a run of generation is checked for before it begins: provider, language, cases. Nothing is written or paid."""

from __future__ import annotations

import os

from torchstone import registry
from torchstone.errors import UsageError
from torchstone.generation.providers import Provider, ProviderOptions
from torchstone.generation.request import GenerationRequest
from torchstone.runs import RunRequest
from torchstone.runs.request import check as check_run_request
from torchstone.runs.run import choose_cases
from torchstone.schema import Case, forward_operator, is_model


def provider_for(request: GenerationRequest) -> Provider:
    """The provider of a checked request; raises one clear line if its key, model or SDK is missing."""
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
    shared = ("suite", "operators", "dtypes", "source", "largest", "sample")
    wanted = check_run_request(RunRequest(**{name: getattr(request, name) for name in shared}))
    cases = choose_cases(wanted, device, registry.suites.factory(wanted.suite)())
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(forward_operator(case.operator), []).append(case)
    models = [operator for operator in found if is_model(operator)]
    if models:
        raise UsageError(
            f"suite '{request.suite}' has models of problem files, such as {models[0]}; kernels are generated for "
            "operators of torch. Choose another --suite."
        )
    return {operator: tuple(own) for operator, own in found.items()}
