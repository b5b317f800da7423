"""Requirements, markers and versions, as far as the set-up needs them.

The set-up runs before anything is installed, so that it can lean on the standard library alone; `packaging`
does all of this and more, but may be one of the parts that are missing. Not covered: direct references
(``name @ url``), arbitrary equality of local versions, and the exclusion of pre-releases.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import dropwhile

REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[([^\]]*)\])?\s*\(?([^;@)]*)\)?\s*(?:;(.*))?")
CLAUSE = re.compile(r"\s*(===|~=|==|!=|<=|>=|<|>)\s*([^\s,]+)\s*")
VERSION = re.compile(r"v?(?:(\d+)!)?(\d+(?:\.\d+)*)(?:[-_.]?(a|b|rc)[a-z]*(\d*))?(?:[-.]post(\d*))?(?:[-_.]?dev(\d*))?")
PRE_RELEASES = {"a": 0, "b": 1, "rc": 2}
RELEASED = 3
VERSION_MARKERS = {"python_version", "python_full_version", "implementation_version"}

VersionKey = tuple[int, tuple[int, ...], tuple[int, int], int, float]


def normalise(name: str) -> str:
    """The one spelling of a distribution's name: `Nvidia_ML.py` is `nvidia-ml-py`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def version_key(text: str) -> VersionKey:
    """A key that sorts versions as PEP 440 does; local parts (`+cu130`) do not count."""
    match = VERSION.match(text.strip().lower())
    if match is None:
        raise ValueError(f"cannot read the version {text!r}: expected numbers and dots, as in 2.13.0")
    epoch, release, pre, pre_number, post, dev = match.groups()
    stage = (PRE_RELEASES[pre], int(pre_number or 0)) if pre else (RELEASED, 0)
    if dev is not None and not pre and post is None:
        stage = (-1, 0)
    after = 0 if post is None else int(post or 0) + 1
    return int(epoch or 0), _release(release), stage, after, float("inf") if dev is None else int(dev or 0)


def _release(text: str) -> tuple[int, ...]:
    """The numbers without closing zeros, so that 1.0 equals 1."""
    numbers = [int(part) for part in text.split(".")]
    return tuple(reversed(list(dropwhile(lambda number: number == 0, reversed(numbers)))))


def _starts_with(version: str, prefix: str) -> bool:
    wanted = [int(part) for part in prefix.split(".")]
    match = VERSION.match(version)
    have = [int(part) for part in match.group(2).split(".")] if match else []
    have += [0] * (len(wanted) - len(have))
    return have[: len(wanted)] == wanted


def _equal(version: str, wanted: str) -> bool:
    if wanted.endswith(".*"):
        return _starts_with(version, wanted[:-2])
    return version_key(version) == version_key(wanted)


def _compatible(version: str, wanted: str) -> bool:
    return version_key(version) >= version_key(wanted) and _starts_with(version, wanted.rpartition(".")[0])


COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "==": _equal,
    "!=": lambda version, wanted: not _equal(version, wanted),
    "===": lambda version, wanted: version == wanted,
    "~=": _compatible,
    "<": lambda version, wanted: version_key(version) < version_key(wanted),
    "<=": lambda version, wanted: version_key(version) <= version_key(wanted),
    ">": lambda version, wanted: version_key(version) > version_key(wanted),
    ">=": lambda version, wanted: version_key(version) >= version_key(wanted),
}


def this_environment() -> dict[str, str]:
    """What markers may ask about the interpreter that runs this."""
    return {
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "python_full_version": platform.python_version(),
        "implementation_name": sys.implementation.name,
        "implementation_version": platform.python_version(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_machine": platform.machine(),
        "platform_system": platform.system(),
        "platform_release": platform.release(),
        "platform_version": platform.version(),
        "sys_platform": sys.platform,
        "os_name": os.name,
    }


def marker_holds(marker: str, environment: Mapping[str, str]) -> bool:
    """Whether a marker is true. Markers are a subset of Python's own expressions, but for `~=` and `===`."""
    try:
        tree = ast.parse(marker.strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"cannot read the marker {marker!r}: expected the form  python_version < '3.12'") from error
    return _holds(tree, environment)


def _holds(node: ast.expr, environment: Mapping[str, str]) -> bool:
    if isinstance(node, ast.BoolOp):
        parts = (_holds(value, environment) for value in node.values)
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        raise ValueError(f"cannot read the marker part {ast.unparse(node)!r}: expected a comparison")
    return _compare(node.left, node.ops[0], node.comparators[0], environment)


OPERATORS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


def _compare(left: ast.expr, operator: ast.cmpop, right: ast.expr, environment: Mapping[str, str]) -> bool:
    have, wanted = _text(left, environment), _text(right, environment)
    if isinstance(operator, ast.In | ast.NotIn):
        return (have in wanted) == isinstance(operator, ast.In)
    symbol = OPERATORS[type(operator)]
    if any(isinstance(side, ast.Name) and side.id in VERSION_MARKERS for side in (left, right)):
        return COMPARISONS[symbol](have, wanted)
    return (have == wanted) == (symbol == "==")


def _text(node: ast.expr, environment: Mapping[str, str]) -> str:
    if isinstance(node, ast.Name):
        return environment.get(node.id, "")
    if isinstance(node, ast.Constant):
        return str(node.value)
    raise ValueError(f"cannot read the marker part {ast.unparse(node)!r}: expected a name or a quoted text")


@dataclass(frozen=True)
class Requirement:
    """A distribution that something asks for, as in ``rich[jupyter]>=13.7; python_version >= '3.11'``."""

    name: str
    """Normalised."""
    extras: frozenset[str] = frozenset()
    specifier: str = ""
    """Comma-separated version clauses; empty accepts any version."""
    marker: str = ""
    """When it is asked for; empty is always."""

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Read one requirement line."""
        match = REQUIREMENT.fullmatch(text)
        if match is None:
            raise ValueError(f"cannot read the requirement {text!r}: expected the form  name[extra]>=1.0; marker")
        name, extras, specifier, marker = match.groups()
        chosen = frozenset(normalise(extra.strip()) for extra in (extras or "").split(",") if extra.strip())
        return cls(normalise(name), chosen, (specifier or "").strip(), (marker or "").strip())

    def __str__(self) -> str:
        """As pip takes it; the marker, once decided, says nothing more."""
        extras = f"[{','.join(sorted(self.extras))}]" if self.extras else ""
        return f"{self.name}{extras}{self.specifier}"

    def accepts(self, version: str) -> bool:
        """Whether the version meets every clause."""
        return all(COMPARISONS[operator](version, wanted) for operator, wanted in CLAUSE.findall(self.specifier))

    def applies(self, extras: Collection[str], environment: Mapping[str, str]) -> bool:
        """Whether it counts when its parent was asked for with these extras."""
        if not self.marker:
            return True
        return any(marker_holds(self.marker, {**environment, "extra": extra}) for extra in (extras or {""}))


def combine(requirements: Iterable[Requirement]) -> Requirement:
    """One requirement that asks for what all of these, of the same name, ask for."""
    ordered = sorted(requirements, key=str)
    clauses = dict.fromkeys(one.specifier for one in ordered if one.specifier)
    extras = frozenset[str]().union(*(one.extras for one in ordered))
    return Requirement(ordered[0].name, extras, ",".join(clauses))


@dataclass(frozen=True)
class Distribution:
    """A distribution that is there, and what it asks for itself."""

    version: str
    requires: tuple[str, ...] = ()


def unmet(
    roots: Iterable[Requirement],
    installed: Mapping[str, Distribution],
    untouchable: Collection[str],
    environment: Mapping[str, str],
) -> dict[str, set[Requirement]]:
    """What is absent or too old, by name, among the roots and all that they ask for in turn.

    An untouchable distribution counts as met at any version, and what it asks for is its owner's matter.
    """
    missing: dict[str, set[Requirement]] = {}
    seen: set[Requirement] = set()
    queue = [root for root in roots if root.applies((), environment)]
    while queue:
        requirement = queue.pop()
        if requirement in seen or requirement.name in untouchable:
            continue
        seen.add(requirement)
        found = installed.get(requirement.name)
        if found is None or not requirement.accepts(found.version):
            missing.setdefault(requirement.name, set()).add(requirement)
            continue
        children = (Requirement.parse(text) for text in found.requires)
        queue.extend(child for child in children if child.applies(requirement.extras, environment))
    return missing
