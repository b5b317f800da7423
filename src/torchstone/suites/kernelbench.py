"""Suite `kernelbench`: models in KernelBench's format, from problem files of a user's folder.

A problem file defines ``Model``, ``get_inputs`` and perhaps ``get_init_inputs``. Each file is one case: the model,
called with weights and inputs of the problem's sizes. Which values they may have is found out by running the file, in a
process with the sandbox of a kernel.
"""

from __future__ import annotations

import os
import queue
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from torchstone.errors import InfrastructureError, UsageError
from torchstone.isolation.confined_handle import Confined, ConfinedEndedError, ConfinedOverranError
from torchstone.operator_categories import base_name
from torchstone.processes.free_memory import free_host_bytes
from torchstone.schema import Case, content_key
from torchstone.suites.base import CaseQuery, Quiet, selects
from torchstone.suites.case_cache import Exclusion, Index, KeptCatalogue, Part, PlacedCase, Prepared, Progress
from torchstone.suites.problem_memory_reservation import ProblemMemory

READER_VERSION = 3
"""To be raised when the same problems would give other cases, so that cached ones are not used."""
_MOST_READERS = {"cpu": 2, "cuda": 2}
"""Processes that read problems at the same time. Each may hold the inputs and results of one problem."""
_READ_SECONDS = 120.0
"""Time for one problem: enough to run its model once or twice, not many times."""
_LEAST_BYTES = {"cpu": 2 << 30, "cuda": 16 << 30}
"""Host memory of a reader without any problem: torch needs some of it, a device's driver much more."""
_FIRST_HOST_SHARE = 1 / 2
"""Share of the host's free memory that all readers together may take before it is known what problems need."""
_READER = "torchstone.suites.kernelbench_reader"
_CHECKOUT = "KernelBench"
"""The folder of a checkout of KernelBench that holds the levels; other folders hold problems as examples."""
_LEVEL = re.compile(r"level_?\d+")
_EXPECTED = "Give the folder of problems: a checkout (--source KernelBench), or one of its levels."


class ProblemOrder(msgspec.Struct, frozen=True):
    """Read one problem."""

    operator: str
    name: str
    """Name of the file, for messages."""
    text: str
    device_type: str = "cpu"
    """Where the problem is run to learn its inputs."""
    granted_bytes: int = 0
    """Memory of the device that the reader may take for it."""
    most_bytes: int = 0
    """What it could be granted at most."""
    is_reserved: bool = False
    """Whether no other process may take what was granted."""


class Read(msgspec.Struct, frozen=True):
    """The answer to an order: one of the three."""

    case: Case | None = None
    exclusion: Exclusion | None = None
    wanted_bytes: int = 0
    """Memory of the device that reading it needs: more than was granted."""


class KernelBenchSuite:
    """Problem files with a Model, from a folder of yours: --source FOLDER."""

    uses = frozenset({"source"})

    def __init__(self) -> None:
        self._progress: Progress = lambda done, total, what: None
        self._read: dict[Path, Read] = {}

    def report_progress_to(self, progress: Progress) -> None:
        """Set the function that receives how many problems have been read."""
        self._progress = progress

    def cases(self, query: CaseQuery) -> tuple[Case, ...]:
        """One for each problem, in the order of their names."""
        return tuple(read.case for read in self._all(query) if read.case is not None)

    def operators(self, query: CaseQuery) -> tuple[str, ...]:
        """The operator of every problem file that fits the query, whether it has a case or not. Nothing is run."""
        return tuple(name for _, name in problems_in(query.source) if selects(query, name))

    def left_out(self, query: CaseQuery) -> dict[str, int]:
        """Problems that are no cases, by reason."""
        return _reasons(self._all(query))

    def arriving(self, query: CaseQuery, quiet: Quiet = nullcontext) -> ProblemArrivals:
        """The cases of the query: those of problems read before at once, the others as they are read."""
        return ProblemArrivals(self._chosen(query), self._read, query, quiet, self._progress)

    def _all(self, query: CaseQuery) -> list[Read]:
        arrivals = self.arriving(query)
        for _ in arrivals:
            pass
        return arrivals.read

    def _chosen(self, query: CaseQuery) -> list[tuple[Path, str]]:
        problems = problems_in(query.source)
        _refuse_ambiguous(query, problems)
        chosen = _sampled([(path, name) for path, name in problems if selects(query, name)], query)
        for path, name in chosen:
            if path not in self._read and (known := _kept(query, name, path)) is not None:
                self._read[path] = known
        return chosen


class ProblemArrivals:
    """Some problems, of which some are read already. See :class:`torchstone.suites.base.Arrivals`."""

    def __init__(
        self,
        chosen: list[tuple[Path, str]],
        read: dict[Path, Read],
        query: CaseQuery,
        quiet: Quiet,
        progress: Progress,
    ) -> None:
        self._chosen, self._read, self._query, self._progress = chosen, read, query, progress
        self._unread = [(path, name) for path, name in chosen if path not in read]
        self.ready = tuple(each.case for each in self.read if each.case is not None)
        self.awaited = tuple(name for _, name in self._unread)
        self._reading = ProblemReading(self._unread, query.device_type, quiet)

    @property
    def read(self) -> list[Read]:
        """The answers for problems so far, in their order."""
        return [self._read[path] for path, _ in self._chosen if path in self._read]

    def __iter__(self) -> Iterator[tuple[str, Case | None]]:
        for done, (path, name, read) in enumerate(self._reading, 1):
            self._read[path] = read
            _keep(self._query, name, path, read)
            self._progress(done, len(self._unread), "problems")
            yield name, read.case

    def stop(self) -> None:
        """Problems that are being read are broken off."""
        self._reading.stop()

    def left_out(self) -> dict[str, int]:
        """Problems that are no cases, by reason."""
        return _reasons(self.read)


def _reasons(read: list[Read]) -> dict[str, int]:
    found = [each.exclusion for each in read if each.exclusion is not None]
    return dict(Counter(f"{item.source}: {item.reason}" for item in found))


def _refuse_ambiguous(query: CaseQuery, problems: list[tuple[Path, str]]) -> None:
    """A file's stem must be that of one problem: in several levels it may mean several."""
    for name in query.operators or ():
        own = [base_name(operator) for path, operator in problems if path.stem == name.removesuffix(".py")]
        if len(own) > 1:
            raise UsageError(f"'{name}' is the file name of {len(own)} problems. Name one of {', '.join(own)}.")


def _sampled(problems: list[tuple[Path, str]], query: CaseQuery) -> list[tuple[Path, str]]:
    """A sample of the problems before any is read: each is one case. All if other options choose among the cases."""
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
    """The cached answer for a file with this content, for this torch and type of device.

    That a problem was too large counts only while a single reader would not have the memory for it now, either.
    """
    part = _catalogue(query).part(_content(operator, path))
    if part is None:
        return None
    if part.cases:
        return Read(part.cases[0].case)
    too_large = [each for each in part.exclusions if each.needed_bytes > _most_free_bytes(query.device_type)]
    return Read(exclusion=msgspec.structs.replace(too_large[0], source=path.name)) if too_large else None


def _keep(query: CaseQuery, operator: str, path: Path, read: Read) -> None:
    """Cache a case, or how much memory the problem needs. Other failures may be temporary and are not cached."""
    key = _content(operator, path)
    if read.case is not None:
        part = Part(key, cases=(PlacedCase(read.case, (0, 0, 0)),))
    elif read.exclusion is not None and read.exclusion.needed_bytes:
        part = Part(key, exclusions=(read.exclusion,))
    else:
        return
    _catalogue(query).write(Prepared(Index(()), {key: part}))


def _most_free_bytes(device_type: str) -> int:
    """Memory that a problem may take now if it is read alone."""
    return ProblemMemory(device_type).usable_bytes


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


Answers = queue.SimpleQueue[tuple[Path, str, Read] | Exception | None]
"""Answers for problems. None: the reading was stopped. An error: it cannot go on."""


class ProblemReading:
    """Problems, read by several processes. Iterating starts them and gives answers as they come.

    A problem that ends its process is left out.
    """

    def __init__(self, problems: list[tuple[Path, str]], device_type: str, quiet: Quiet) -> None:
        self._problems = problems
        count = min(len(problems), _MOST_READERS.get(device_type, 1), os.cpu_count() or 1)
        self._readers = [_Reader(device_type, count, quiet) for _ in range(count)]
        self._answers: Answers = queue.SimpleQueue()

    def stop(self) -> None:
        """From any thread: read no further problem, and break off those in hand."""
        for reader in self._readers:
            reader.stop()
        self._answers.put(None)

    def __iter__(self) -> Iterator[tuple[Path, str, Read]]:
        if not self._problems:
            return
        waiting: queue.SimpleQueue[tuple[Path, str]] = queue.SimpleQueue()
        for problem in self._problems:
            waiting.put(problem)
        with ThreadPoolExecutor(len(self._readers)) as threads:
            working = [threads.submit(reader.read, waiting, self._answers) for reader in self._readers]
            try:
                for _ in self._problems:
                    answer = self._answers.get()
                    if answer is None:
                        return
                    if isinstance(answer, Exception):
                        raise answer
                    yield answer
            finally:  # Ctrl-C, too: what was begun is not waited for
                for reader in self._readers:
                    reader.stop()
            for each in as_completed(working):
                each.result()


class _Reader:
    """One thread's processes, one after another."""

    def __init__(self, device_type: str, readers: int, quiet: Quiet) -> None:
        self._device_type, self._readers, self._quiet = device_type, readers, quiet
        self._memory = ProblemMemory(device_type)
        self._process: Confined | None = None
        self._limit_bytes = 0
        """What the process may take of the host's memory."""
        self._is_over = False

    def read(self, waiting: queue.SimpleQueue[tuple[Path, str]], answers: Answers) -> None:
        """Problem after problem, until nothing is left."""
        try:
            self._read_all(waiting, answers)
        except Exception as error:  # noqa: BLE001 - raised again in the thread that waits for answers
            answers.put(error)
        finally:
            self._end_process()

    def _read_all(self, waiting: queue.SimpleQueue[tuple[Path, str]], answers: Answers) -> None:
        while not self._is_over:
            try:
                path, operator = waiting.get_nowait()
            except queue.Empty:
                break
            read = self._read_with_memory(path, operator)
            if read is None:
                break
            answers.put((path, operator, read))

    def _read_with_memory(self, path: Path, operator: str) -> Read | None:
        """Ask again with as much memory as the problem turns out to need. None: stopped.

        Memory is reserved before ``quiet`` is entered. In it the reader would block judges that measure, and these may
        hold the memory.
        """
        granted_bytes, most_bytes = self._memory.small_bytes, self._memory.most_bytes
        while True:
            with self._memory.reserved(granted_bytes, lambda: self._is_over), self._quiet():
                if self._is_over:
                    return None
                read = self._answer(path, operator, granted_bytes)
            if not granted_bytes < read.wanted_bytes <= most_bytes:
                return read
            granted_bytes = read.wanted_bytes

    def stop(self) -> None:
        """From another thread: read no further problem, and break off the one in hand."""
        self._is_over = True
        process = self._process  # its own thread may end it meanwhile
        if process is not None:
            process.let_go()

    def _answer(self, path: Path, operator: str, granted_bytes: int) -> Read:
        is_reserved = self._memory.takes_reservation(granted_bytes)
        most_bytes = self._memory.usable_bytes if is_reserved else self._memory.most_bytes
        given = self._device_type, granted_bytes, most_bytes, is_reserved
        try:
            order = ProblemOrder(operator, path.name, _text(path), *given)
            return self._process_for(granted_bytes).ask(order, Read, _READ_SECONDS)
        except (ConfinedEndedError, ConfinedOverranError, OSError, InfrastructureError) as error:
            self._end_process()
            return Read(exclusion=Exclusion(operator, _reason(error, self._device_type), path.name))

    def _process_for(self, granted_bytes: int) -> Confined:
        """A process that may take this much memory of the host, if that is where the problem is run."""
        least_bytes = _LEAST_BYTES[self._device_type]
        needed_bytes = least_bytes + (granted_bytes if self._device_type == "cpu" else 0)
        if self._limit_bytes < needed_bytes:
            self._end_process()
        if self._process is None:
            self._limit_bytes = max(int(_FIRST_HOST_SHARE * free_host_bytes()) // self._readers, needed_bytes)
            self._process = Confined(_READER, self._device_type, self._limit_bytes)
            if self._is_over:  # stopped while the process was made: `stop` could not end it
                self._process.let_go()
        return self._process

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()


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
