"""Builds the gym's tasks: an operator or KernelBench problem, its cases in the split, and the prompt for a model."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from torchstone.errors import UsageError
from torchstone.executors import Site
from torchstone.gym.config import EvaluatorConfig
from torchstone.gym.splits import in_split
from torchstone.prompting import (
    PROBLEM_ENTRY,
    DeviceLimits,
    entry_of,
    kernel_folder,
    language_named,
    limits_of,
    problem_prompt,
    prompt_for,
    require_runnable,
)
from torchstone.runs import RunRequest
from torchstone.runs.choose_cases_and_kernels import choose_cases
from torchstone.runs.request import check
from torchstone.runs.suite_machine import suite_at
from torchstone.schema import Case, forward_operator, is_model
from torchstone.suites import names_operator


class KernelTask(msgspec.Struct, frozen=True):
    """An operator or a problem for which a kernel is to be written."""

    operator: str
    """Full overload name: ``aten.relu.default``; ``kernelbench.level1__19_ReLU.default`` for a problem."""
    entry: str
    """The function, or for a problem the class, that the reply must define."""
    cases: tuple[Case, ...]
    """The cases on which the kernel is judged."""
    prompt: str
    """The first message to the model."""


def tasks_of(config: EvaluatorConfig, site: Site) -> tuple[KernelTask, ...]:
    """Every task of the configuration, in the order of the suite: operators that have a case in the split.

    ``site``: the machines that judge. A device or a suite's files may exist only there, and are then read there.
    """
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
    suite = suite_at(request.suite, request.source, site)
    tasks = _in_split(choose_cases(request, site.device, suite), config, site)
    if not tasks:
        raise UsageError(
            f"no operator of suite '{config.suite}' has a case in split '{config.split}'. Ask for more operators "
            "(ops), or for the split 'all'."
        )
    return tasks


def _in_split(cases: Iterable[Case], config: EvaluatorConfig, site: Site) -> tuple[KernelTask, ...]:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(forward_operator(case.operator), []).append(case)
    splits = {operator: in_split(group, config.split) for operator, group in groups.items()}
    return tuple(_task(operator, chosen, config, site) for operator, chosen in splits.items() if chosen)


def _task(operator: str, cases: tuple[Case, ...], config: EvaluatorConfig, site: Site) -> KernelTask:
    kind = site.device.partition(":")[0]
    language = config.language_on(kind)
    require_runnable(language_named(language), kind, dsl="language", device="device")
    limits = _device_limits(config, site)
    if is_model(operator):
        asked = problem_prompt(cases[0], language, limits, require_authored=config.require_authored)
        return KernelTask(operator, PROBLEM_ENTRY, cases, asked)
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


def _device_limits(config: EvaluatorConfig, site: Site) -> DeviceLimits:
    """The device and its limits for the prompt, as the first machine that judges describes them, if it is known."""
    if config.is_modal and not site.nodes:
        found = DeviceLimits("cuda", f"NVIDIA {config.gpu}")
    else:
        found = limits_of(site.device, machine=site.nodes[0].hardware if site.nodes else None)
    return msgspec.structs.replace(found, threads=config.threads, deadlines=config.deadlines, limits=config.limits)


def task_named(name: str, tasks: Iterable[KernelTask]) -> KernelTask | None:
    """The task of an operator by overload or base name; the first if several have the base name."""
    return next((task for task in tasks if names_operator(name, task.operator)), None)
