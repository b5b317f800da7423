"""Finds kernels of a backend that the run does not judge, each with the reason.

Reasons are a misspelt name, another overload, or an operator that the suite does not use. The backend knows its
kernels, the suite its operators, and only the run knows both. What the user left out by choice (`--ops`, `--dtype`,
`--case`) is not reported.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import msgspec

from torchstone import registry
from torchstone.backends import Backend, HeldKernel, Problem, folder_name
from torchstone.backends.aten_names import aten_overloads
from torchstone.backends.solutions import SolutionsBackend
from torchstone.schema import Case, forward_operator
from torchstone.suites import CaseQuery, Suite, known_operators

_OTHER_SUITES = ("smoke", "opinfo")
"""Suites that may be asked whether they have an operator: they answer at once, or say that they would have to work."""
_MOST_OVERLOADS = 3
"""Overloads that one message names: the first few show how a folder is called."""


@dataclass(frozen=True)
class _Asked:
    """What a run asks for."""

    suite: str
    operators: frozenset[str]
    complete: bool
    """Whether these are all operators of the suite, rather than those that the user chose."""
    device_type: str

    @cached_property
    def elsewhere(self) -> dict[str, frozenset[str]]:
        """Operators of other suites, of those that can say."""
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
    if not unmatched:
        return ()
    asked = _asked(suite_name, suite, query, chosen)
    found = ((kernel, _reason(kernel, asked, backend)) for kernel in unmatched)
    return tuple(Problem(kernel.where, reason) for kernel, reason in found if reason)


def _unmatched_solutions(
    backend: SolutionsBackend, suite_name: str, suite: Suite, query: CaseQuery
) -> tuple[Problem, ...]:
    """A problem for each solution that no problem file of the suite's source has the name of."""
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
    is_whole = query.operators is None and query.dtypes is None and query.sample is None
    return _Asked(name, chosen, is_whole and not query.overhead_dominated, query.device_type)


def _reason(kernel: HeldKernel, asked: _Asked, backend: Backend) -> str:
    """Why the kernel is not used; empty if that is no problem."""
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
    """Without torch's list nobody can say that a name is no operator's."""
    return f"suite '{asked.suite}' does not ask for this operator{hint}" if asked.complete else ""


def _not_asked_for(kernel: HeldKernel, asked: _Asked) -> str:
    if not asked.complete:
        return ""
    having = [name for name, operators in asked.elsewhere.items() if operators.intersection(kernel.serves)]
    elsewhere = f"; suite '{having[0]}' does" if having else "; another may, see 'torchstone list suites'"
    return f"suite '{asked.suite}' does not ask for this operator{elsewhere}"


def _nearest(kernel: HeldKernel, asked: Collection[str]) -> str | None:
    """The folder's name that was probably meant: another overload's, one of the suite's, or any of torch's."""
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
