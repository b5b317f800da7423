"""PyTorch's own test samples (OpInfo) as a suite: every ATen overload that any of them comes down to.

The cases are found by running the samples once per torch version, device type and dtype, which takes a minute or so;
after that a catalogue in the user's cache has them, and neither torch nor OpInfo is imported to choose among them.
"""

from __future__ import annotations

from collections import Counter
from importlib.metadata import PackageNotFoundError, version

from torchstone.errors import UsageError
from torchstone.schema import Case
from torchstone.suites.base import CaseQuery, SuiteSize, selects, size_of
from torchstone.suites.catalogue import Catalogue, Exclusion, KeptCatalogue, Progress
from torchstone.suites.layouts import may_be_laid_out

CATALOGUE_VERSION = 5
"""To be raised when other cases would be found in the same samples."""
DEFAULT_DTYPES = {"cuda": "bfloat16"}
_OTHER_DEVICES = "float32"


class OpInfoSuite:
    """PyTorch's own test samples (OpInfo): every ATen overload that they call.

    The cases are found in catalogues; those that are not there yet are built.
    """

    def __init__(self) -> None:
        self._progress: Progress = lambda done, total, what: None

    def report_progress_to(self, progress: Progress) -> None:
        """Who wants to know how far a catalogue is."""
        self._progress = progress

    def cases(self, query: CaseQuery) -> tuple[Case, ...]:
        """The cases that fit the query, each once, in the order of OpInfo's database."""
        found = [case for book in self._catalogues(query) for case in book.cases if selects(query, case.operator)]
        return tuple(may_be_laid_out(case) for case in {case.key: case for case in found}.values())

    def known_size(self, query: CaseQuery) -> SuiteSize | None:
        """How many operators and cases the query has, if every catalogue that it needs is kept."""
        kept = [_kept(query.device_type, dtype).operators() for dtype in _dtypes(query)]
        if any(operators is None for operators in kept):
            return None
        return size_of(name for operators in kept for name in operators or () if selects(query, name))

    def operators(self, query: CaseQuery) -> frozenset[str] | None:
        """Every operator in the query's dtypes, if the catalogues of these are kept; none is built to answer this."""
        books = [_kept(query.device_type, dtype).read() for dtype in _dtypes(query)]
        known = [book for book in books if book is not None]
        return frozenset(case.operator for book in known for case in book.cases) if len(known) == len(books) else None

    def exclusions(self, query: CaseQuery) -> tuple[Exclusion, ...]:
        """What samples called and is no case."""
        found = [item for book in self._catalogues(query) for item in book.exclusions]
        return tuple(item for item in found if not item.operator or selects(query, item.operator))

    def left_out(self, query: CaseQuery) -> dict[str, int]:
        """How many calls are no cases, by reason."""
        counts: Counter[str] = Counter()
        for item in self.exclusions(query):
            counts[item.reason] += item.count
        return dict(counts.most_common())

    def _catalogues(self, query: CaseQuery) -> list[Catalogue]:
        return [self._catalogue(query.device_type, dtype) for dtype in _dtypes(query)]

    def _catalogue(self, device_type: str, dtype: str) -> Catalogue:
        kept = _kept(device_type, dtype)
        known = kept.read()
        if known is not None:
            return known
        from torchstone.suites.opinfo_catalogue import build

        built = build(device_type, dtype, self._progress)
        kept.write(built)
        return built


def _dtypes(query: CaseQuery) -> tuple[str, ...]:
    return query.dtypes or (DEFAULT_DTYPES.get(query.device_type, _OTHER_DEVICES),)


def _kept(device_type: str, dtype: str) -> KeptCatalogue:
    return KeptCatalogue("opinfo", _torch_version(), device_type, dtype, CATALOGUE_VERSION)


def _torch_version() -> str:
    try:
        return version("torch")
    except PackageNotFoundError as error:
        raise UsageError("torch is not installed. Install it first.") from error
