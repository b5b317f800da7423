"""Resolves names of suites, backends, executors, providers and profilers to classes, built in or installed.

Built-ins are listed as import paths, so that nothing is imported before it is used. Other packages add theirs by entry
points (``torchstone.suites``, ``torchstone.backends``, ``torchstone.executors``, ``torchstone.providers``,
``torchstone.profilers``). An installed package cannot take over a built-in name.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from torchstone.errors import UsageError, unknown_name


class Registry:
    """The registered names of one kind: suites, backends, executors, providers or profilers."""

    def __init__(self, kind: str, builtins: Mapping[str, str], aliases: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.group = f"torchstone.{kind}s"
        self._builtins = dict(builtins)
        self._aliases = dict(aliases or {})

    def names(self) -> tuple[str, ...]:
        """Every name that :meth:`factory` accepts, aliases included."""
        return tuple(sorted({*self._builtins, *self._aliases, *self._installed()}))

    def canonical(self, name: str) -> str:
        """The name behind an alias."""
        return self._aliases.get(name, name)

    def description(self, name: str) -> str:
        """One line for people: the beginning of the docstring. Loads the class; if that fails, the line says why."""
        if name in self._aliases:
            return f"Another name of {self._aliases[name]}."
        try:
            found = self.factory(name)
        except UsageError as error:
            return str(error)
        paragraph = inspect.cleandoc(getattr(found, "__doc__", None) or "").partition("\n\n")[0]
        return " ".join(paragraph.split())

    def factory(self, name: str) -> Any:
        """The class or function registered under the name."""
        wanted = self.canonical(name)
        if wanted in self._builtins:
            module, _, attribute = self._builtins[wanted].partition(":")
            return getattr(importlib.import_module(module), attribute)
        installed = self._installed()
        if wanted in installed:
            return _load(self.kind, installed[wanted])
        raise unknown_name(self.kind, name, self.names())

    def _installed(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}


def _load(kind: str, point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # the import of another package may raise anything
        package = point.dist.name if point.dist else "an installed package"
        raise UsageError(
            f"{kind} '{point.name}' of {package} cannot be loaded ({error}). Reinstall or remove it."
        ) from error


suites = Registry(
    "suite",
    {
        "smoke": "torchstone.suites.smoke:SmokeSuite",
        "opinfo": "torchstone.suites.opinfo:OpInfoSuite",
        "kernelbench": "torchstone.suites.kernelbench:KernelBenchSuite",
        "fuzz": "torchstone.suites.fuzz:FuzzSuite",
        "torchbench": "torchstone.suites.torchbench:TraceSuite",
        "torchbench-all": "torchstone.suites.torchbench:WholeTraceSuite",
        "huggingface_100": "torchstone.suites.huggingface:HuggingFaceSuite",
        "captured": "torchstone.suites.captured:CapturedSuite",
    },
    aliases={"traces": "torchbench"},
)
backends = Registry(
    "backend",
    {
        "aten": "torchstone.backends.aten:AtenBackend",
        "compile": "torchstone.backends.torch_compile:CompileBackend",
        "directory": "torchstone.backends.directory:DirectoryBackend",
        "flag_gems": "torchstone.backends.flag_gems:FlagGemsBackend",
        "kernelbench": "torchstone.backends.kernelbench_solutions:SolutionsBackend",
        "liger": "torchstone.backends.liger:LigerBackend",
        "llm": "torchstone.backends.generated:GeneratedBackend",
        "torchstone-cuda": "torchstone.backends.torchstone_kernels:BuiltInCuda",
        "torchstone-triton": "torchstone.backends.torchstone_kernels:BuiltInTriton",
    },
    aliases={"pregenerated": "directory"},
)
executors = Registry(
    "executor",
    {
        "local": "torchstone.executors.local:LocalExecutor",
        "modal": "torchstone.executors.modal_executor:ModalExecutor",
        "ray": "torchstone.executors.ray_executor:RayExecutor",
    },
)
providers = Registry(
    "provider",
    {
        "anthropic": "torchstone.generation.providers.anthropic_messages:AnthropicProvider",
        "openai": "torchstone.generation.providers.openai_chat:OpenAIProvider",
        "replay": "torchstone.generation.providers.replay:ReplayProvider",
    },
)
profilers = Registry(
    "profiler",
    {
        "torch": "torchstone.profiling.torch_profiler:TorchProfiler",
        "ncu": "torchstone.profiling.nsight_compute:NsightCompute",
        "nsys": "torchstone.profiling.nsight_systems:NsightSystems",
    },
)
