"""Resolves a profile request to one kernel and one case (operator with input recipes). No kernel is imported or run."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from torchstone import registry
from torchstone.api import as_implementation
from torchstone.backends import BackendOptions, operator_name
from torchstone.backends.directory import BASE_NAME_OVERLOADS, DirectoryBackend, kernel_in
from torchstone.backends.native_source import is_native
from torchstone.errors import UsageError
from torchstone.profiling.request import ProfileRequest
from torchstone.runs import RunRequest
from torchstone.runs.choose_cases_and_kernels import choose_cases
from torchstone.schema import Case, Implementation
from torchstone.suites import CaseQuery, input_bytes, names_operator

_ATTEMPT = re.compile(r"_(?:attempt_\d+|implementation(?:_v\d+)?)$", re.ASCII)
_MAX_SHOWN_CASES = 12


class Chosen(NamedTuple):
    """The kernel and the case to profile."""

    implementation: Implementation
    case: Case


def choose(request: ProfileRequest, device_type: str) -> Chosen:
    """The kernel and the case that the request means. Raises a `UsageError` if they are ambiguous or do not exist."""
    if not _is_path(request):
        return _of_backend(request, device_type)
    path = Path(os.path.abspath(request.kernel))
    if os.path.isfile(path):  # unlike pathlib's functions, these return False for names that no file can have
        return _of_file(request, path, device_type)
    if os.path.isdir(path):
        return _of_folder(request, path, device_type)
    raise UsageError(f"there is no kernel '{request.kernel}'. Give a file, a folder, or an operator's name.")


def _is_path(request: ProfileRequest) -> bool:
    """Whether the kernel is given as a path. With a backend it is an operator; a path then is a `UsageError`."""
    written_as_path = os.sep in request.kernel or request.kernel.endswith(".py")
    if request.backend is None and request.kernels_dir is None:
        return written_as_path or os.path.exists(request.kernel)
    if written_as_path:
        raise UsageError(
            f"'{request.kernel}' is a path, and --backend and --kernels-dir say where to find an operator's kernel. "
            "Leave them out, or name an operator."
        )
    return False


def _of_backend(request: ProfileRequest, device_type: str) -> Chosen:
    if request.operator is not None:
        raise UsageError(f"'{request.kernel}' is an operator already. Leave out --operator.")
    _refuse_entry(request)
    case = choose_case(request, request.kernel, device_type)
    name = request.backend or ("aten" if request.kernels_dir is None else "directory")
    backend = registry.backends.factory(name)(BackendOptions(request.kernels_dir, device_type))
    implementation: Implementation | None = backend.implementation(case.operator)
    if implementation is None:
        raise UsageError(f"backend '{name}' offers no kernel for {case.operator}. Ask for another operator or backend.")
    return Chosen(implementation, case)


def _of_file(request: ProfileRequest, path: Path, device_type: str) -> Chosen:
    case = choose_case(request, request.operator or _operator_of_file(request, path), device_type)
    return Chosen(as_implementation(path, case.operator, request.entry), case)


def _operator_of_file(request: ProfileRequest, path: Path) -> str:
    """The operator that a file is named after, if the suite has it: `relu.py`, `add__Tensor_implementation_v2.py`."""
    suite = registry.suites.factory(request.suite)()
    operator = operator_name(_ATTEMPT.sub("", path.stem))
    known = {case.operator for case in suite.cases(CaseQuery())}
    if operator is None or not any(names_operator(operator, name) for name in known):
        raise UsageError(
            f"the name of '{request.kernel}' is not an operator of suite '{request.suite}'. "
            "Name the operator that it computes with --operator."
        )
    return operator


def _of_folder(request: ProfileRequest, path: Path, device_type: str) -> Chosen:
    """Choose from a folder: one with sources is the kernel of one operator; others hold folders of operators."""
    _refuse_entry(request)
    if any(found.suffix == ".py" or is_native(found.name) for found in path.iterdir()):
        kernel = kernel_in(path)
        case = choose_case(request, request.operator or kernel.operator, device_type)
        return Chosen(Implementation("directory", case.operator, kernel.origin, kernel.language), case)
    backend = DirectoryBackend(BackendOptions(path, device_type))
    operator = request.operator or _only_operator(backend, request.kernel)
    case = choose_case(request, operator, device_type)
    implementation = backend.implementation(case.operator)
    if implementation is None:
        known = ", ".join(backend.operators())
        raise UsageError(f"'{request.kernel}' holds no kernel for {case.operator}. It has: {known}.")
    return Chosen(implementation, case)


def _only_operator(backend: DirectoryBackend, kernel: str) -> str:
    found = backend.operators()
    if len(found) > 1:
        raise UsageError(f"'{kernel}' holds kernels for {', '.join(found)}. Choose one with --operator.")
    return found[0]


def _refuse_entry(request: ProfileRequest) -> None:
    if request.entry is not None:
        raise UsageError("--entry names the function of a kernel file, and this is not a kernel file. Leave it out.")


def choose_case(request: ProfileRequest, operator: str, device_type: str) -> Case:
    """The requested case, or the largest timed case."""
    suite = registry.suites.factory(request.suite)()
    wanted = RunRequest(suite=request.suite, operators=(operator,), dtypes=request.dtypes)
    cases = of_one_overload(choose_cases(wanted, device_type, suite), operator)
    if request.case is None:
        return max(cases, key=lambda case: (case.timed, input_bytes(case)))
    return _named(request.case, cases)


def of_one_overload(cases: tuple[Case, ...], operator: str) -> tuple[Case, ...]:
    """The cases of the overload that the name means, by the rules of kernel folders. Raises if it is ambiguous."""
    overloads = list(dict.fromkeys(case.operator for case in cases))
    usual = [name for name in overloads if name.rpartition(".")[2] in BASE_NAME_OVERLOADS]
    fitting = overloads if len(overloads) == 1 else usual
    if len(fitting) != 1:
        raise UsageError(f"'{operator}' means {', '.join(overloads)}. Write one of them in full.")
    return tuple(case for case in cases if case.operator == fitting[0])


def _named(text: str, cases: tuple[Case, ...]) -> Case:
    """The case with this label or key, or the only one whose label or key contains the text."""
    exact = [case for case in cases if text in (case.label, case.key)]
    found = exact or [case for case in cases if case.key.startswith(text) or text in case.label]
    if len(found) == 1:
        return found[0]
    problem = f"{len(found)} cases fit" if found else "no case fits"
    listed = "; ".join(f"{case.key[:8]} {case.label}" for case in (found or cases)[:_MAX_SHOWN_CASES])
    raise UsageError(f"{problem} --case '{text}'. Write a key or a label, or a part that one has alone: {listed}.")
