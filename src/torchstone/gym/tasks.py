"""Tasks: an operator or a problem, its cases in one split, and what a model is asked."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from torchstone import registry
from torchstone.errors import UsageError
from torchstone.gym.config import EvaluatorConfig
from torchstone.gym.problem_prompt import PROBLEM_ENTRY, problem_prompt
from torchstone.gym.splits import in_split
from torchstone.prompting import (
    DeviceLimits,
    entry_of,
    kernel_folder,
    language_named,
    limits_of,
    prompt_for,
    require_runnable,
)
from torchstone.runs import RunRequest
from torchstone.runs.request import check
from torchstone.runs.run import choose_cases
from torchstone.schema import Case, forward_operator, is_model
from torchstone.suites import names_operator


class KernelTask(msgspec.Struct, frozen=True):
    """One thing to write a kernel for."""

    operator: str
    """Full overload name: ``aten.relu.default``; ``kernelbench.level1__19_ReLU.default`` for a problem."""
    entry: str
    """The function, or for a problem the class, that the reply must define."""
    cases: tuple[Case, ...]
    """What the kernel is judged on."""
    prompt: str
    """The first message to the model."""


def tasks_of(config: EvaluatorConfig, device: str) -> tuple[KernelTask, ...]:
    """Every task of the configuration, in the order of the suite: operators that have a case in the split."""
    request = check(
        RunRequest(
            suite=config.suite,
            source=config.source,
            operators=config.ops,
            dtypes=config.dtypes,
            largest=config.largest,
            device=config.device,
        )
    )
    suite = registry.suites.factory(request.suite)()
    tasks = _in_split(choose_cases(request, device, suite), config, device)
    if not tasks:
        raise UsageError(
            f"no operator of suite '{config.suite}' has a case in split '{config.split}'. Ask for more operators "
            "(ops), or for the split 'all'."
        )
    return tasks


def _in_split(cases: Iterable[Case], config: EvaluatorConfig, device: str) -> tuple[KernelTask, ...]:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(forward_operator(case.operator), []).append(case)
    splits = {operator: in_split(group, config.split) for operator, group in groups.items()}
    return tuple(_task(operator, chosen, config, device) for operator, chosen in splits.items() if chosen)


def _task(operator: str, cases: tuple[Case, ...], config: EvaluatorConfig, device: str) -> KernelTask:
    kind = device.partition(":")[0]
    language = config.language_on(kind)
    require_runnable(language_named(language), kind)
    limits = _device_limits(config, device)
    if is_model(operator):
        return KernelTask(operator, PROBLEM_ENTRY, cases, problem_prompt(cases[0], language, limits))
    prompt = prompt_for(
        operator,
        cases,
        language,
        device=limits,
        shapes=config.shapes,
        non_finite=config.non_finite,
        require_authored=config.require_authored,
    )
    return KernelTask(operator, entry_of(kernel_folder(operator)), cases, prompt)


def _device_limits(config: EvaluatorConfig, device: str) -> DeviceLimits:
    """What the prompt tells about the device. Of a GPU at Modal this machine knows the type alone."""
    if config.is_modal:
        return DeviceLimits(
            "cuda", f"NVIDIA {config.gpu}", threads=config.threads, deadlines=config.deadlines, limits=config.limits
        )
    return limits_of(device, threads=config.threads, deadlines=config.deadlines, limits=config.limits)


def task_named(name: str, tasks: Iterable[KernelTask]) -> KernelTask | None:
    """The task of an operator by overload or base name; the first if several have the base name."""
    return next((task for task in tasks if names_operator(name, task.operator)), None)
