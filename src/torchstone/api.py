"""The Python API: judge kernels without a run folder, with the isolation and the engine of the command line.

A kernel is a function, source text, or a path. A function travels as the text of its file. The worker imports that
text; the function is never pickled and never called here.
"""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from torchstone import registry
from torchstone.backends.accompanying_files import Files, accompanying, encodable, read_text
from torchstone.backends.entries import conventional_names, python_entry
from torchstone.backends.native import compiled_files, entry_in, is_native, language_of
from torchstone.backends.python_source import language_of_modules
from torchstone.errors import UsageError
from torchstone.executors import Executor, ExecutorOptions
from torchstone.reports import Summary, summarise
from torchstone.runs import RunRequest
from torchstone.runs.devices import resolve_device
from torchstone.runs.request import check as check_request
from torchstone.schema import (
    Agrees,
    Case,
    Deadlines,
    Effort,
    Implementation,
    IsolationLevel,
    Job,
    Limits,
    NonFiniteInputs,
    Record,
    Shapes,
    SourceFile,
    SourceFiles,
    explain,
    verdict_name,
)
from torchstone.suites import CaseQuery, names_operator

if TYPE_CHECKING:
    from torchstone.suites.capturing import Capture

Kernel = Callable[..., Any] | str | Path


@dataclass(frozen=True)
class Settings:
    """How to judge. Every field has the command line's default."""

    suite: str = "smoke"
    cases: tuple[Case, ...] | None = None
    """Judge on these instead of a suite's."""
    device: str = "auto"
    dtypes: tuple[str, ...] | None = None
    effort: Effort = "normal"
    isolation: IsolationLevel = "best"
    threads: int = 1
    shapes: Shapes = "near"
    """`stated`: judge on the stated sizes and memory layouts alone."""
    non_finite: NonFiniteInputs = "check"
    """`ignore`: do not call pointwise operators with NaN and infinities among their inputs."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Evaluation:
    """What came of one kernel: its records, and what follows from them."""

    operator: str
    records: tuple[Record, ...]

    @property
    def agrees(self) -> bool:
        """Whether every case agreed. False if there was none."""
        return bool(self.records) and all(isinstance(record.verdict, Agrees) for record in self.records)

    @property
    def summary(self) -> Summary:
        """Counts, scores, speedups."""
        return summarise(self.records)

    @property
    def correctness(self) -> float:
        """Share of cases that agreed."""
        right = sum(isinstance(record.verdict, Agrees) for record in self.records)
        return right / len(self.records) if self.records else 0.0

    @property
    def speedup(self) -> float | None:
        """Geometric mean of reference time over kernel time; None unless every case agreed and some was timed."""
        return self.summary.operators[0].geomean_speedup if self.agrees else None

    def failures(self) -> list[str]:
        """One line for each case that did not agree."""
        return [
            f"{record.case.label}: {verdict_name(record.verdict)}: {explain(record.verdict)}"
            for record in self.records
            if not isinstance(record.verdict, Agrees)
        ]


@contextmanager
def capture(path: str | Path, *, operators: Iterable[str] | None = None) -> Iterator[Capture]:
    """Record the operators that the block calls, forward and backward, as a suite: ``--suite captured --source PATH``.

    However the block ends, the file is written when it does. Operators are named as on the command line.
    """
    from torchstone.suites.capturing import capturing

    with capturing(Path(path), None if operators is None else tuple(operators)) as recorded:
        yield recorded


def check(kernel: Kernel, operator: str, *, entry: str | None = None, files: Files = (), **settings: Any) -> Evaluation:
    """Is the kernel right? Every case of the operator is judged, nothing is timed."""
    offered = {operator: as_implementation(kernel, operator, entry, files)}
    return _judge(offered, _settings(settings), "check")[operator]


def measure(
    kernel: Kernel, operator: str, *, entry: str | None = None, files: Files = (), **settings: Any
) -> Evaluation:
    """How fast is it? Only cases that are meant for timing; a wrong kernel has no speed, its verdict says why."""
    offered = {operator: as_implementation(kernel, operator, entry, files)}
    return _judge(offered, _settings(settings), "measure")[operator]


def evaluate(
    kernel: Kernel, operator: str, *, entry: str | None = None, files: Files = (), **settings: Any
) -> Evaluation:
    """Both: every case is checked, and those meant for timing are timed."""
    offered = {operator: as_implementation(kernel, operator, entry, files)}
    return _judge(offered, _settings(settings), "evaluate")[operator]


def evaluate_many(kernels: Mapping[str, Kernel], *, files: Files = (), **settings: Any) -> dict[str, Evaluation]:
    """Evaluate a kernel for each operator, on every device that was asked for at once. The files go with every one."""
    files = files if isinstance(files, (Mapping, str, Path)) else tuple(files)
    offered = {operator: as_implementation(kernel, operator, files=files) for operator, kernel in kernels.items()}
    return _judge(offered, _settings(settings), "evaluate")


def _settings(given: Mapping[str, Any]) -> Settings:
    """The settings, checked as the command line's are."""
    unknown = sorted(set(given) - set(Settings.__dataclass_fields__))
    if unknown:
        known = ", ".join(Settings.__dataclass_fields__)
        raise UsageError(f"unknown setting: {', '.join(unknown)}. Known: {known}.")
    settings = Settings(**given)
    shared = (
        "suite",
        "device",
        "dtypes",
        "effort",
        "isolation",
        "threads",
        "deadlines",
        "limits",
        "shapes",
        "non_finite",
    )
    try:
        request = msgspec.convert({name: getattr(settings, name) for name in shared}, RunRequest, from_attributes=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"a setting is not valid: {error}.") from error
    return replace(settings, dtypes=check_request(request).dtypes)


def _judge(offered: Mapping[str, Implementation], settings: Settings, purpose: str) -> dict[str, Evaluation]:
    device = resolve_device(settings.device)
    cases = _cases(tuple(offered), settings, device)
    jobs = [
        Job(
            case,
            implementation,
            settings.effort,
            settings.deadlines,
            measured=purpose != "check",
            shapes=settings.shapes,
            non_finite=settings.non_finite,
        )
        for operator, implementation in offered.items()
        for case in cases
        if names_operator(operator, case.operator) and (purpose != "measure" or case.timed)
    ]
    if not jobs:
        raise UsageError(f"no case to {purpose}. Give cases with timed=True, or another suite.")
    options = ExecutorOptions(device, settings.isolation, settings.limits, settings.threads, "api")
    executor: Executor = registry.executors.factory("local")(options)
    records = list(executor.run(jobs))
    order = {job.key: index for index, job in enumerate(jobs)}
    records.sort(key=lambda record: order[record.job_key])
    return {
        operator: Evaluation(operator, tuple(r for r in records if r.implementation.key == implementation.key))
        for operator, implementation in offered.items()
    }


def _cases(operators: tuple[str, ...], settings: Settings, device: str) -> tuple[Case, ...]:
    """Of all operators at once: a suite that prepares its cases does so only once."""
    if settings.cases is not None:
        return tuple(settings.cases)
    query = CaseQuery(operators, settings.dtypes, device.partition(":")[0])
    return tuple(registry.suites.factory(settings.suite)().cases(query))


def as_implementation(kernel: Kernel, operator: str, entry: str | None = None, files: Files = ()) -> Implementation:
    """The kernel as data. Operators are named in full: ``aten.relu.default``."""
    if operator.count(".") < 2:
        raise UsageError(f"operator '{operator}' is not a full name. Write for instance 'aten.add.Tensor'.")
    if isinstance(kernel, Path) or (isinstance(kernel, str) and _looks_like_path(kernel)):
        path = Path(kernel)
        return _from_text(read_text(path, "kernel file"), operator, entry, path.name, str(path), files)
    if isinstance(kernel, str):
        return _from_text(encodable(kernel), operator, entry, "kernel.py", "source text", files)
    return _from_function(kernel, operator, files)


def _looks_like_path(text: str) -> bool:
    """One line with a kernel's suffix. With blanks in it, it must be a file: model output may end in `see relu.py`."""
    if "\n" in text or not (text.endswith(".py") or is_native(text)):
        return False
    return len(text.split()) == 1 or os.path.isfile(text)


def _from_text(text: str, operator: str, entry: str | None, name: str, label: str, files: Files) -> Implementation:
    sources = (SourceFile(name, text), *accompanying(files, name))
    if is_native(name):
        native_entry = entry or entry_in(sources, conventional_names(operator))
        language = language_of(file.name for file in compiled_files(sources))
        return Implementation("api", operator, SourceFiles(sources, native_entry, label), language)
    origin = SourceFiles(sources, entry or python_entry(text, operator), label)
    return Implementation("api", operator, origin, language_of_modules(sources))


def _from_function(function: Callable[..., Any], operator: str, files: Files) -> Implementation:
    name = getattr(function, "__name__", None)
    qualified = getattr(function, "__qualname__", "")
    if not inspect.isfunction(function) or name is None or "<" in qualified or "." in qualified:
        raise UsageError("only functions at the top level of a file can be judged. Pass source text or a path instead.")
    file = inspect.getsourcefile(function)
    if file is not None and Path(file).is_file():
        text = read_text(Path(file), "kernel file")
        return _from_text(text, operator, name, Path(file).name, f"{file}:{name}", files)
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except OSError as error:
        raise UsageError(f"the source of '{name}' is not known. Pass source text or a path instead.") from error
    # A notebook cell: the function alone travels, so it must import what it uses.
    return _from_text(f"import torch\n\n{text}", operator, name, "kernel.py", f"notebook:{name}", files)
