"""Finds the cases of a suite on another machine (a node), which has the device or the file that the suite reads.

The node gets the query and the content of the file that the suite reads. It answers with cases, which describe tensors
and do not hold values. A file that is not on this machine is looked for at the same path on the node. There, this
module runs as ``python -m torchstone.suites.remote_suite``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from torchstone import registry
from torchstone.errors import TorchstoneError, UsageError
from torchstone.schema import Case, decode, encode
from torchstone.suites.base import CaseQuery
from torchstone.suites.recorded_call_files import HUB
from torchstone.suites.selection import known_operators

_MOST_SOURCE_BYTES = 64 << 20
"""Most bytes of a source that is sent to a node. The recorded calls of 150 models have 3 MB."""


class SourceContent(msgspec.Struct, frozen=True):
    """A file or folder that a suite reads."""

    name: str
    files: dict[str, bytes]
    """Path below the folder -> content. A single file has an empty path."""


class Question(msgspec.Struct, frozen=True):
    """A suite, a query, and what the suite reads."""

    suite: str
    query: CaseQuery
    source: SourceContent | None = None


class NodeCases(msgspec.Struct, frozen=True):
    """The cases that a suite has for a query, or the error."""

    cases: tuple[Case, ...] = ()
    operators: tuple[str, ...] | None = None
    """Every operator that the suite has cases of. None: listing them would require generating cases."""
    left_out: dict[str, int] = {}
    problem: str = ""
    """The message of a UsageError; empty if there was none."""


class SuiteAtNode:
    """The suite of this name on a node."""

    def __init__(self, name: str, ask: Callable[[str, str], str]) -> None:
        """``ask``: runs a module on the node with a text as its stdin, and returns what it prints."""
        self._name, self._ask = name, ask
        self.uses: tuple[str, ...] = tuple(getattr(registry.suites.factory(name), "uses", ()))
        """The parts of a query that only some suites use."""
        self._known: dict[bytes, NodeCases] = {}

    def cases(self, query: CaseQuery) -> tuple[Case, ...]:
        """The cases that fit the query."""
        return self._answer(query).cases

    def operators(self, query: CaseQuery) -> tuple[str, ...] | None:
        """Every operator that the suite has cases of; None if listing them would require generating cases."""
        return self._answer(query).operators

    def left_out(self, query: CaseQuery) -> dict[str, int]:
        """How many calls are left out, by reason."""
        return self._answer(query).left_out

    def _answer(self, query: CaseQuery) -> NodeCases:
        key = encode(query)
        if key not in self._known:
            content = content_of(query.source) if is_here(query.source) else None
            question = Question(self._name, query, content)
            self._known[key] = decode(self._ask(__name__, encode(question).decode()), NodeCases)
        problem = self._known[key].problem
        if problem:
            raise UsageError(problem if is_here(query.source) else f"on a node of the executor: {problem}")
        return self._known[key]


def is_here(source: str | None) -> bool:
    """Whether this machine has the file or folder that the suite reads. True for no source and for the hub."""
    return source is None or source.startswith(HUB) or Path(source).exists()


def content_of(source: str | None) -> SourceContent | None:
    """The content of a file or folder on this machine; None if there is nothing to send."""
    if source is None or source.startswith(HUB):
        return None
    path = Path(source)
    try:
        found = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        files = {"" if each == path else str(each.relative_to(path)): each.read_bytes() for each in found}
    except OSError as error:
        raise UsageError(f"source '{source}' cannot be read ({error.strerror}). Name a file or folder.") from error
    size = sum(map(len, files.values()))
    if size > _MOST_SOURCE_BYTES:
        raise UsageError(f"source '{source}' has {size} bytes; at most {_MOST_SOURCE_BYTES} are sent to a node.")
    return SourceContent(path.name, files)


def answer(question: Question) -> NodeCases:
    """Answer a question on the node: unpack the source that was sent, and have the suite make its cases."""
    with tempfile.TemporaryDirectory(prefix="torchstone-source-") as folder:
        query = question.query
        if question.source is not None:
            query = msgspec.structs.replace(query, source=str(_unpacked(question.source, Path(folder))))
        try:
            suite = registry.suites.factory(question.suite)()
            known = known_operators(suite, query)
            without = dict(suite.left_out(query)) if hasattr(suite, "left_out") else {}
            return NodeCases(tuple(suite.cases(query)), None if known is None else tuple(sorted(known)), without)
        except UsageError as error:
            return NodeCases(problem=str(error))


def _unpacked(source: SourceContent, folder: Path) -> Path:
    root = folder / Path(source.name).name
    for name, data in source.files.items():
        path = root / name if name else root
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def main() -> None:
    """Read a question from stdin, print the answer."""
    try:
        print(encode(answer(decode(sys.stdin.read(), Question))).decode())
    except TorchstoneError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
