"""Problem files with ``Model``, ``get_inputs`` and ``get_init_inputs``, from a folder that the user has.

Each file is one case: the model, called with weights and inputs of the problem's sizes. What a problem takes is found
out by running it, in a process that has the sandbox of a kernel.
"""

from __future__ import annotations

import os
import queue
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from torchstone.errors import InfrastructureError, UsageError
from torchstone.isolation.confined import Confined, ConfinedEndedError, ConfinedOverranError
from torchstone.processes.free_memory import free_host_bytes
from torchstone.schema import Case, content_key
from torchstone.suites.base import CaseQuery, selects
from torchstone.suites.catalogue import Exclusion, Index, KeptCatalogue, Part, PlacedCase, Prepared, Progress

READER_VERSION = 2
"""To be raised when other cases would be made of the same problems."""
_MOST_READERS = {"cpu": 2, "cuda": 2}
"""Processes that read problems at the same time. Each may hold the inputs and results of one problem."""
_READ_SECONDS = 120.0
"""For one problem: to run its model once or twice, not many times."""
_HOST_BYTES = {"cuda": 16 << 30}
"""What a reader may take of the host's memory where the problem itself lies on a device."""
_LEAST_BYTES = 2 << 30
"""What a reader is given at least: torch itself needs some of it."""
_READER = "torchstone.suites.kernelbench_reader"
_CHECKOUT = "KernelBench"
"""The folder of a checkout of KernelBench that holds the levels; other folders hold problems as examples."""
_LEVEL = re.compile(r"level_?\d+")
_EXPECTED = "Give the folder of problems: a checkout (--source KernelBench), or one of its levels."


class ProblemOrder(msgspec.Struct, frozen=True):
    """Read one problem."""

    operator: str
    name: str
    """Of the file, for people."""
    text: str
    device_type: str = "cpu"
    """Where the problem is run to learn what it takes."""
    readers: int = 1
    """Processes that share the memory of the device."""
    free_bytes: int = 0
    """Memory that the reader may take, where the problem is run on the host."""


class Read(msgspec.Struct, frozen=True):
    """What came of it: one of the two."""

    case: Case | None = None
    exclusion: Exclusion | None = None


class KernelBenchSuite:
    """Problem files with a Model, from a folder of yours: --source FOLDER."""

    uses = frozenset({"source"})

    def __init__(self) -> None:
        self._progress: Progress = lambda done, total, what: None
        self._read: dict[Path, Read] = {}

    def report_progress_to(self, progress: Progress) -> None:
        """Who wants to know how many problems have been read."""
        self._progress = progress

    def cases(self, query: CaseQuery) -> tuple[Case, ...]:
        """One for each problem, in the order of their names."""
        return tuple(read.case for read in self._all(query) if read.case is not None)

    def operators(self, query: CaseQuery) -> tuple[str, ...]:
        """Of every problem file that the query asks for, whether it turns out to be a case or not. Nothing is run."""
        return tuple(name for _, name in problems_in(query.source) if selects(query, name))

    def left_out(self, query: CaseQuery) -> dict[str, int]:
        """Problems that are no cases, by reason."""
        found = [read.exclusion for read in self._all(query) if read.exclusion is not None]
        return dict(Counter(f"{item.source}: {item.reason}" for item in found))

    def _all(self, query: CaseQuery) -> list[Read]:
        chosen = _sampled([(path, name) for path, name in problems_in(query.source) if selects(query, name)], query)
        for path, name in chosen:
            if path not in self._read and (known := _kept(query, name, path)) is not None:
                self._read[path] = known
        unread = [(path, name) for path, name in chosen if path not in self._read]
        for done, (path, name, read) in enumerate(_read_all(unread, query.device_type), 1):
            self._read[path] = read
            _keep(query, name, path, read)
            self._progress(done, len(unread), "problems")
        return [self._read[path] for path, _ in chosen]


def _sampled(problems: list[tuple[Path, str]], query: CaseQuery) -> list[tuple[Path, str]]:
    """So many of them, before any is read: each is one case of one operator. Not where cases are chosen otherwise."""
    if query.sample is None or query.expression is not None or query.keys is not None:
        return problems
    ranked = sorted(problems, key=lambda problem: content_key("sample", problem[1]))
    kept = set(ranked[: query.sample])
    return [problem for problem in problems if problem in kept]


def _catalogue(query: CaseQuery) -> KeptCatalogue:
    try:
        torch_version = version("torch")
    except PackageNotFoundError:
        torch_version = ""
    return KeptCatalogue("kernelbench", torch_version, query.device_type, READER_VERSION)


def _content(operator: str, path: Path) -> str:
    return content_key(operator, _text(path))


def _kept(query: CaseQuery, operator: str, path: Path) -> Read | None:
    """What was learnt of a file with this content, with this torch on such a device."""
    part = _catalogue(query).part(_content(operator, path))
    return None if part is None or not part.cases else Read(part.cases[0].case)


def _keep(query: CaseQuery, operator: str, path: Path, read: Read) -> None:
    if read.case is not None:
        key = _content(operator, path)
        part = Part(key, (PlacedCase(read.case, (0, 0, 0)),))
        _catalogue(query).write(Prepared(Index(()), {key: part}))


def problems_in(source: str | None) -> list[tuple[Path, str]]:
    """The problem files of a folder with the names of their operators."""
    if source is None:
        raise UsageError(f"suite 'kernelbench' has no problems of its own. {_EXPECTED}")
    root = Path(source)
    if not root.is_dir():
        raise UsageError(f"there is no folder '{source}'. {_EXPECTED}")
    if any((root / _CHECKOUT).glob("level*")):
        root /= _CHECKOUT
    files = sorted(path for path in root.rglob("*.py") if _is_problem(path))
    if not files:
        raise UsageError(f"no file in '{source}' defines a class Model and get_inputs. {_EXPECTED}")
    root = root.resolve()
    beginning = root.parent if _LEVEL.fullmatch(root.name) else root
    return [(path, operator_of(path.resolve().relative_to(beginning))) for path in files]


def operator_of(path: Path) -> str:
    """``level1/19_ReLU.py`` -> ``kernelbench.level1__19_ReLU.default``; a name that torch takes for an operator."""
    words = "__".join(path.with_suffix("").parts)
    plain = re.sub(r"\W", "_", words, flags=re.ASCII)
    return f"kernelbench.{plain if not plain[0].isdigit() else 'p' + plain}.default"


def _is_problem(path: Path) -> bool:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return bool(re.search(r"^class Model\b", text, re.MULTILINE)) and "def get_inputs" in text


def _read_all(problems: list[tuple[Path, str]], device_type: str) -> Iterator[tuple[Path, str, Read]]:
    """Answers as they come, from several processes. A problem that ends its process is left out."""
    count = min(len(problems), _MOST_READERS.get(device_type, 1), os.cpu_count() or 1)
    if not count:
        return
    answers: queue.SimpleQueue[tuple[Path, str, Read]] = queue.SimpleQueue()
    waiting: queue.SimpleQueue[tuple[Path, str]] = queue.SimpleQueue()
    for problem in problems:
        waiting.put(problem)
    readers = [_Reader(device_type, count) for _ in range(count)]
    with ThreadPoolExecutor(count) as threads:
        working = [threads.submit(reader.read, waiting, answers) for reader in readers]
        try:
            for _ in problems:
                yield answers.get()
        finally:  # Ctrl-C, too: what was begun is not waited for
            for reader in readers:
                reader.stop()
        for each in as_completed(working):
            each.result()


class _Reader:
    """One thread's processes, one after another."""

    def __init__(self, device_type: str, readers: int) -> None:
        self._device_type, self._readers = device_type, readers
        self._process: Confined | None = None
        self._is_over = False

    def read(
        self, waiting: queue.SimpleQueue[tuple[Path, str]], answers: queue.SimpleQueue[tuple[Path, str, Read]]
    ) -> None:
        """Problem after problem, until nothing is left."""
        while not self._is_over:
            try:
                path, operator = waiting.get_nowait()
            except queue.Empty:
                break
            answers.put((path, operator, self._answer(path, operator)))
        if self._process is not None:
            self._process.end()

    def stop(self) -> None:
        """From another thread: read no further problem, and break off the one in hand."""
        self._is_over = True
        if self._process is not None:
            self._process.let_go()

    def _answer(self, path: Path, operator: str) -> Read:
        free_bytes = free_host_bytes() // (2 * self._readers)
        try:
            order = ProblemOrder(operator, path.name, _text(path), self._device_type, self._readers, free_bytes)
            if self._process is None:
                memory_bytes = _HOST_BYTES.get(self._device_type, max(free_bytes, _LEAST_BYTES))
                self._process = Confined(_READER, self._device_type, memory_bytes)
            return self._process.ask(order, Read, _READ_SECONDS)
        except (ConfinedEndedError, ConfinedOverranError, OSError, InfrastructureError) as error:
            self._process = None
            return Read(exclusion=Exclusion(operator, _reason(error, self._device_type), path.name))


def _reason(error: Exception, device_type: str) -> str:
    """Why a problem could not be read."""
    match error:
        case ConfinedOverranError():
            return f"running it once took longer than {_READ_SECONDS:g} s on {device_type}: too large for this machine"
        case ConfinedEndedError():
            return f"the process that ran it {error}"
    return str(error)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
