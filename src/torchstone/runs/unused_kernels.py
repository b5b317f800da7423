"""Finds kernels of a backend that the run does not judge, each with the reason.

Reasons are a misspelt name, another overload, an operator that the suite does not use, or another folder beside it that
serves the same overload. Only the run knows both the backend's kernels and the suite's operators. Kernels that the user
excluded (`--ops`, `--dtype`, `--case`, `-k`, `--last-failed`) are not reported.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

import msgspec

from torchstone import registry
from torchstone.backends import Backend, HeldKernel, Problem, folder_name
from torchstone.backends.kernelbench_solutions import SolutionsBackend
from torchstone.backends.known_aten_overloads import aten_overloads
from torchstone.schema import Case, forward_operator
from torchstone.suites import CaseQuery, Suite, known_operators

_OTHER_SUITES = ("smoke", "opinfo")
"""Suites that can list their operators at once, or report at once that the list is not known yet."""
_MOST_OVERLOADS = 3
"""Most overloads that one message names: the first few show how folders are named."""


@dataclass(frozen=True)
class _Asked:
    """The suite and operators of a run."""

    suite: str
    operators: frozenset[str]
    complete: bool
    """Whether these are all operators of the suite, not only those that the user chose."""
    device_type: str

    @cached_property
    def elsewhere(self) -> dict[str, frozenset[str]]:
        """Operators of other suites, as far as they are known."""
        query = CaseQuery(device_type=self.device_type)
        others = (name for name in _OTHER_SUITES if name != self.suite)
        return {name: known_operators(registry.suites.factory(name)(), query) or frozenset() for name in others}


def unused_kernels(
    backend: Backend, suite_name: str, suite: Suite, query: CaseQuery, cases: Collection[Case]
) -> tuple[Problem, ...]:
    """A problem for each kernel that no case of the suite can use."""
    if isinstance(backend, SolutionsBackend):
        return _unmatched_solutions(backend, suite_name, suite, query)
    held: tuple[HeldKernel, ...] = getattr(backend, "held", tuple)()
    chosen = frozenset(forward_operator(case.operator) for case in cases)
    unmatched = [kernel for kernel in held if not chosen.intersection(kernel.serves)]
    replaced = tuple(_replaced(held, chosen, backend))
    if not unmatched:
        return replaced
    asked = _asked(suite_name, suite, query, chosen)
    found = ((kernel, _reason(kernel, asked, backend)) for kernel in unmatched)
    return (*replaced, *(Problem(kernel.where, reason) for kernel, reason in found if reason))


def _replaced(held: Collection[HeldKernel], chosen: frozenset[str], backend: Backend) -> Iterator[Problem]:
    """A problem for each folder whose requested overloads are all served by other folders beside it.

    Folders in other places, such as those of older runs, are expected to be replaced, and are not reported.
    """
    folders = {PurePath(kernel.where) for kernel in held}
    for kernel in held:
        own = PurePath(kernel.where)
        beside = {folder for folder in folders - {own} if folder.parent == own.parent}
        serving = {name: _folder_serving(name, backend) for name in sorted(chosen.intersection(kernel.serves))}
        if serving and beside.issuperset(serving.values()):
            yield Problem(kernel.where, "; ".join(f"{folder} serves {name}" for name, folder in serving.items()))


def _folder_serving(operator: str, backend: Backend) -> PurePath:
    offered = backend.implementation(operator)
    return PurePath("" if offered is None else offered.reference.where).parent


def _unmatched_solutions(
    backend: SolutionsBackend, suite_name: str, suite: Suite, query: CaseQuery
) -> tuple[Problem, ...]:
    """A problem for each solution whose name matches no KernelBench problem of the suite's source."""
    known = known_operators(suite, msgspec.structs.replace(query, operators=None, largest=None, sample=None))
    if known is None:
        return ()
    reason = (
        f"no problem of suite '{suite_name}' has the name of this solution, which is ignored; expected "
        "19_ReLU.py, level1/19_ReLU.py or level_1_problem_19_sample_0_kernel.py"
    )
    return tuple(Problem(where, reason) for where in backend.unmatched(known))


def _asked(name: str, suite: Suite, query: CaseQuery, chosen: frozenset[str]) -> _Asked:
    everything = msgspec.structs.replace(query, operators=None, dtypes=None, largest=None, sample=None)
    known = known_operators(suite, everything)
    if known is not None:
        return _Asked(name, chosen | known, True, query.device_type)
    return _Asked(name, chosen, _is_whole(query), query.device_type)


def _is_whole(query: CaseQuery) -> bool:
    """Whether the query selects cases of every operator that the suite has. Not every operator has a gradient."""
    narrowing = (query.operators, query.dtypes, query.sample, query.expression, query.keys)
    return all(each is None for each in narrowing) and not query.overhead_dominated and query.mode != "bwd"


def _reason(kernel: HeldKernel, asked: _Asked, backend: Backend) -> str:
    """Why the kernel is not used; empty if that is expected."""
    if asked.operators.intersection(kernel.serves):
        return ""
    others = [name for name in sorted(asked.operators) if _base(name) == _base(kernel.serves[0])]
    unserved = [name for name in others if backend.implementation(name) is None][:_MOST_OVERLOADS]
    if unserved:
        folders = " or ".join(f"'{folder_name(name)}'" for name in unserved)
        return (
            f"suite '{asked.suite}' asks for {' and '.join(unserved)}, which a folder of this name does not serve; "
            f"name the folder, its file and its function after the overload: {folders}"
        )
    if not aten_overloads().isdisjoint(kernel.serves):
        return _not_asked_for(kernel, asked)
    near = _nearest(kernel, asked.operators)
    hint = f"; did you mean '{near}'?" if near else ""
    return f"torch has no such operator or overload{hint}" if aten_overloads() else _guess(asked, hint)


def _guess(asked: _Asked, hint: str) -> str:
    """The reason if torch's list of operators cannot be read, so that a misspelt name cannot be recognized."""
    return f"suite '{asked.suite}' does not ask for this operator{hint}" if asked.complete else ""


def _not_asked_for(kernel: HeldKernel, asked: _Asked) -> str:
    if not asked.complete:
        return ""
    having = [name for name, operators in asked.elsewhere.items() if operators.intersection(kernel.serves)]
    elsewhere = f"; suite '{having[0]}' does" if having else "; another may, see 'torchstone list suites'"
    return f"suite '{asked.suite}' does not ask for this operator{elsewhere}"


def _nearest(kernel: HeldKernel, asked: Collection[str]) -> str | None:
    """The folder name that was probably meant: for another overload, an operator of the suite, or any of torch's."""
    name = kernel.where.rpartition("/")[2]
    overloads = [folder_name(known) for known in aten_overloads() if _base(known) == _base(kernel.serves[0])]
    if overloads:
        return difflib.get_close_matches(name, sorted(overloads), n=1, cutoff=0.0)[0]
    for known in (asked, aten_overloads()):
        near = difflib.get_close_matches(name, _folders(known), n=1)
        if near:
            return near[0]
    return None


def _folders(operators: Collection[str]) -> list[str]:
    """The shortest folder name that serves each operator."""
    return [folder_name(name.removesuffix(".default").removesuffix(".Tensor")) for name in sorted(operators)]


def _base(operator: str) -> str:
    return operator.rpartition(".")[0]
