"""Suite `opinfo`: PyTorch's own test samples (OpInfo), as cases of every ATen overload that they call.

The cases of an operator are found once per torch version, device type and dtype, by running the samples that call it.
After that they are in the user's cache, and neither torch nor OpInfo is imported to choose among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, version

from torchstone.errors import UsageError
from torchstone.schema import Case
from torchstone.suites.base import CaseQuery, SuiteSize, selects
from torchstone.suites.case_cache import (
    Catalogue,
    Entry,
    Exclusion,
    Index,
    KeptCatalogue,
    Prepared,
    Progress,
    assembled,
)
from torchstone.suites.fixed_size_layouts import mark_other_layouts

CATALOGUE_VERSION = 6
"""Raise it when the same samples would give other cases, or when the cache has another format."""
DEFAULT_DTYPES = {"cuda": "bfloat16"}
_DTYPE_OF_OTHER_DEVICES = "float32"


class OpInfoSuite:
    """PyTorch's own test samples (OpInfo): every ATen overload that they call.

    Cases of the requested operators come from the cache; those that are not there yet are made.
    """

    def __init__(self, entries: Collection[str] | None = None) -> None:
        """``entries``: use only these entries of OpInfo's database, by name; None is all."""
        self._entries = None if entries is None else tuple(sorted(entries))
        self._progress: Progress = lambda done, total, what: None
        self._known: dict[tuple[str, str], Prepared] = {}
        """(device type, dtype) -> what this suite has read or prepared."""

    def report_progress_to(self, progress: Progress) -> None:
        """Set the function that receives the progress of making cases."""
        self._progress = progress

    def cases(self, query: CaseQuery) -> tuple[Case, ...]:
        """The cases that fit the query, each once, in the order of OpInfo's database."""
        found = [case for book in self._catalogues(query) for case in book.cases]
        return tuple(mark_other_layouts(case) for case in {case.key: case for case in found}.values())

    def known_size(self, query: CaseQuery) -> SuiteSize | None:
        """How many operators and cases the query has; None if some of them are not in the cache."""
        kept = [self._cached_catalogue(query.device_type, dtype).case_counts() for dtype in _dtypes(query)]
        if any(counts is None for counts in kept):
            return None
        chosen = [
            (name, count) for counts in kept for name, count in (counts or {}).items() if count and selects(query, name)
        ]
        return SuiteSize(len({name for name, _ in chosen}), sum(count for _, count in chosen))

    def operators(self, query: CaseQuery) -> tuple[str, ...] | None:
        """The overloads that samples call and the query selects; None if samples would have to be run first."""
        found = [self._known_index(query.device_type, dtype) for dtype in _dtypes(query)]
        if any(index is None for index in found):
            return None
        names = (name for index in found if index is not None for name in index.operators if selects(query, name))
        return tuple(dict.fromkeys(names))

    def _known_index(self, device_type: str, dtype: str) -> Index | None:
        known = self._known.get((device_type, dtype))
        return known.index if known is not None else self._cached_catalogue(device_type, dtype).index()

    def exclusions(self, query: CaseQuery) -> tuple[Exclusion, ...]:
        """Calls by samples of the requested operators that are left out."""
        return tuple(item for book in self._catalogues(query) for item in book.exclusions)

    def left_out(self, query: CaseQuery) -> dict[str, int]:
        """How many calls are left out, by reason."""
        counts: Counter[str] = Counter()
        for item in self.exclusions(query):
            counts[item.reason] += item.count
        return dict(counts.most_common())

    def _catalogues(self, query: CaseQuery) -> list[Catalogue]:
        return [self._catalogue(query, dtype) for dtype in _dtypes(query)]

    def _catalogue(self, query: CaseQuery, dtype: str) -> Catalogue:
        prepared = self._prepared(query, dtype)
        wanted = [part for operator, part in prepared.parts.items() if selects(query, operator)]
        return assembled(wanted, [entry for entry in prepared.index.entries if _may_give_cases(query, entry)])

    def _prepared(self, query: CaseQuery, dtype: str) -> Prepared:
        """The index, and at least the parts that the query needs."""
        kept, known = self._cached_catalogue(query.device_type, dtype), self._known.get((query.device_type, dtype))
        index, parts = (known.index, dict(known.parts)) if known is not None else (kept.index(), {})
        missing = query.operators
        if index is not None:
            wanted = [operator for operator in index.operators if operator not in parts and selects(query, operator)]
            parts |= {part.operator: part for part in map(kept.part, wanted) if part is not None}
            missing = tuple(operator for operator in wanted if operator not in parts)
        if index is None or missing:
            from torchstone.suites.opinfo_catalogue import prepare

            fresh = prepare(query.device_type, dtype, self._progress, missing, index, self._entries)
            kept.write(fresh)
            index, parts = fresh.index, parts | fresh.parts
        self._known[query.device_type, dtype] = Prepared(index, parts)
        return self._known[query.device_type, dtype]

    def _cached_catalogue(self, device_type: str, dtype: str) -> KeptCatalogue:
        return KeptCatalogue("opinfo", _torch_version(), device_type, dtype, CATALOGUE_VERSION, *(self._entries or ()))


def _dtypes(query: CaseQuery) -> tuple[str, ...]:
    return query.dtypes or (DEFAULT_DTYPES.get(query.device_type, _DTYPE_OF_OTHER_DEVICES),)


def _may_give_cases(query: CaseQuery, entry: Entry) -> bool:
    """Whether samples of this entry could give cases of a requested operator: by their calls or the entry's name."""
    if query.operators is None or any(selects(query, operator) for operator in entry.operators):
        return True
    words = entry.name.split(".")
    return any(name.removeprefix("aten.").partition(".")[0] in words for name in query.operators)


def _torch_version() -> str:
    try:
        return version("torch")
    except PackageNotFoundError as error:
        raise UsageError("torch is not installed. Install it first.") from error
