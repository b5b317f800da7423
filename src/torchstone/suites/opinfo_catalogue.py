"""Builds the catalogue of OpInfo's cases: hands out orders to processes, and survives what kills them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import IO

import msgspec

from torchstone.durable import keeps_kernels_of_torch
from torchstone.errors import InfrastructureError, UsageError
from torchstone.schema import Case, Given, Tensor, content_key, tensors_of
from torchstone.suites.catalogue import Catalogue, Exclusion, Progress, merged

_SECONDS_PER_ORDER = 180.0
_SECONDS_TO_START = 180.0
_MOST_PROCESSES = 16


class Sample(msgspec.Struct, frozen=True, tag="sample"):
    """Run the samples of one entry of the database."""

    index: int
    cautious: bool = False


class Enlarge(msgspec.Struct, frozen=True, tag="enlarge"):
    """Make a large variant of a case."""

    case: Case


Order = Sample | Enlarge


class Found(msgspec.Struct, frozen=True):
    """The answer to either."""

    cases: tuple[Case, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()


class Names(msgspec.Struct, frozen=True):
    """What a process says first."""

    entries: tuple[str, ...] = ()
    missing: str = ""
    """The package that OpInfo needs and that is not there."""


class _Task(msgspec.Struct, frozen=True):
    """An order, and what to do if a process dies of it."""

    source: str
    line: Order
    next: Order | None = None
    """What to ask instead; None: nothing is left to try."""


class _Process:
    """One process that runs samples."""

    def __init__(self, device: str, dtype: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", **keeps_kernels_of_torch()}
        command = [sys.executable, "-m", "torchstone.suites.opinfo_samples", device, dtype]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        self._names: Names | None = None

    @property
    def names(self) -> Names:
        """What it says first. Not waited for before somebody asks: processes start side by side."""
        if self._names is None:
            self._names = msgspec.json.decode(self._line(_SECONDS_TO_START) or b"{}", type=Names)
        return self._names

    def _read(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._lines.put(line)
        self._lines.put(b"")

    def _line(self, seconds: float) -> bytes | None:
        try:
            return self._lines.get(timeout=seconds) or None
        except Empty:
            return None

    def ask(self, line: Order) -> Found | None:
        """None: it died, or took too long; it is of no use any more."""
        if not self.names.entries:
            return None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(line) + b"\n")
            self._process.stdin.flush()
        except OSError:
            return None
        answer = self._line(_SECONDS_PER_ORDER)
        return None if answer is None else msgspec.json.decode(answer, type=Found)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def build(device: str, dtype: str, progress: Progress, entries: Collection[str] | None = None) -> Catalogue:
    """Run every sample once, or those of some entries of the database, and make a large variant for each operator."""
    with contextlib.closing(_Crew(device, dtype)) as crew:
        orders = [
            _Task(name, Sample(i), Sample(i, cautious=True))
            for i, name in enumerate(crew.names)
            if entries is None or name in entries
        ]
        found = list(crew.carry_out(orders, progress, "OpInfo samples"))
        cases = _distinct(case for answer in found for case in answer.cases)
        bases = _largest_per_operator(cases)
        large = [_Task(case.operator, Enlarge(case)) for case in bases]
        grown = list(crew.carry_out(large, progress, "large variants"))
    exclusions = merged(item for answer in found for item in answer.exclusions)
    return Catalogue((*cases, *_distinct(case for answer in grown for case in answer.cases)), exclusions)


class _Crew:
    """Processes side by side, replaced when they die."""

    def __init__(self, device: str, dtype: str) -> None:
        self._circumstances = device, dtype
        count = min(_MOST_PROCESSES, len(os.sched_getaffinity(0)))
        self._crew = [_Process(device, dtype) for _ in range(count)]
        found = self._crew[0].names
        self.names = found.entries
        if found.missing or not found.entries:
            self.close()
        if found.missing:
            raise UsageError(f"suite 'opinfo' needs the package '{found.missing}': pip install 'torchstone[opinfo]'.")
        if not found.entries:
            raise InfrastructureError(f"torch's OpInfo database cannot be used for {device} here.")

    def close(self) -> None:
        for process in self._crew:
            process.close()

    def carry_out(self, orders: Sequence[_Task], progress: Progress, what: str) -> Iterator[Found]:
        """The answers in the order of the orders."""
        answers: dict[int, Found] = {}
        waiting = deque(enumerate(orders))
        lock = threading.Lock()

        def work(place: int) -> None:
            while True:
                with lock:
                    if not waiting:
                        return
                    number, order = waiting.popleft()
                answer = self._answer(place, order)
                with lock:
                    answers[number] = answer
                    progress(len(answers), len(orders), what)

        threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in range(len(self._crew))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return iter(answers[number] for number in range(len(orders)))

    def _answer(self, place: int, order: _Task) -> Found:
        for line in (order.line, *(() if order.next is None else (order.next,))):
            answer = self._crew[place].ask(line)
            if answer is not None:
                return answer
            self._crew[place].close()
            self._crew[place] = _Process(*self._circumstances)
        return Found(exclusions=(Exclusion("", "torch crashes or does not end on its samples", order.source),))


def _distinct(cases: Iterator[Case]) -> tuple[Case, ...]:
    """The first of those that are called alike, wherever they come from."""
    return tuple({case.key: case for case in reversed(list(cases))}.values())[::-1]


def _largest_per_operator(cases: Sequence[Case]) -> list[Case]:
    """What a large variant is made from: a case that tells something, with the most to do."""
    best: dict[str, Case] = {}
    for case in cases:
        if any(isinstance(tensor.fill, Given) for tensor in tensors_of(case)):
            continue
        if case.operator not in best or _rank(case) > _rank(best[case.operator]):
            best[case.operator] = case
    return list(best.values())


def _rank(case: Case) -> tuple[bool, bool, int, str]:
    tensors = tensors_of(case)
    plain = all(tensor.strides is None and not tensor.offset for tensor in tensors)
    return not case.indistinct, plain, sum(_elements(tensor) for tensor in tensors), content_key(case.key)


def _elements(tensor: Tensor) -> int:
    product = 1
    for size in tensor.shape:
        product *= size
    return product
