"""Functions such as ``torchstone.check``. They share one judge, whose processes stay started between calls."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchstone.api.evaluation import Evaluation
from torchstone.api.judge import Judge, close_all
from torchstone.api.kernel_argument import Kernel
from torchstone.api.operator_argument import OperatorName
from torchstone.api.settings import NAMES, OF_PROCESSES, Settings, changed, names_of
from torchstone.backends.accompanying_files import Files

if TYPE_CHECKING:
    from torchstone.suites.program_capture import Capture


class _WarmJudge:
    """The judge of the last call. One with other processes replaces it; calls under way keep theirs until they end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._judge: Judge | None = None
        self._setup: tuple[Any, ...] = ()
        self._users: dict[Judge, int] = {}

    @contextmanager
    def of(self, given: Mapping[str, Any]) -> Iterator[tuple[Judge, dict[str, Any]]]:
        """The judge for these settings, and the settings of this call."""
        settings = changed(Settings(), given)
        setup = tuple(getattr(settings, name) for name in OF_PROCESSES)
        with self._lock:
            retired = None
            if self._judge is None or self._setup != setup:
                retired = self._judge
                self._judge, self._setup = Judge(**dict(zip(OF_PROCESSES, setup, strict=True))), setup
            judge = self._judge
            self._users[judge] = self._users.get(judge, 0) + 1
            unused = retired is not None and retired not in self._users
        if unused and retired is not None:
            retired.close()
        try:
            yield judge, {name: getattr(settings, name) for name in NAMES if name not in OF_PROCESSES}
        finally:
            self._leave(judge)

    def _leave(self, judge: Judge) -> None:
        with self._lock:
            self._users[judge] -= 1
            last = self._users[judge] == 0
            if last:
                del self._users[judge]
            ends = last and judge is not self._judge
        if ends:
            judge.close()

    def close(self) -> None:
        with self._lock:
            judge, self._judge = self._judge, None
        if judge is not None:
            judge.close()

    def forget(self) -> None:
        """In a forked child: the judge is the parent's."""
        self.__init__()  # type: ignore[misc]


_warm = _WarmJudge()
os.register_at_fork(after_in_child=_warm.forget)
atexit.register(close_all)


def close() -> None:
    """End the judge that the last call left warm. The next call starts another."""
    _warm.close()


def check(
    kernel: Kernel, operator: OperatorName, *, entry: str | None = None, files: Files = (), **settings: Any
) -> Evaluation:
    """Is the kernel right? Every case of the operator is judged, nothing is timed."""
    with _warm.of(settings) as (judge, given):
        return judge.check(kernel, operator, entry=entry, files=files, **given)


def measure(
    kernel: Kernel, operator: OperatorName, *, entry: str | None = None, files: Files = (), **settings: Any
) -> Evaluation:
    """How fast is it? Only cases that are meant for timing; a wrong kernel has no speed, its verdict says why."""
    with _warm.of(settings) as (judge, given):
        return judge.measure(kernel, operator, entry=entry, files=files, **given)


def evaluate(
    kernel: Kernel, operator: OperatorName, *, entry: str | None = None, files: Files = (), **settings: Any
) -> Evaluation:
    """Both: every case is checked, and those meant for timing are timed."""
    with _warm.of(settings) as (judge, given):
        return judge.evaluate(kernel, operator, entry=entry, files=files, **given)


def evaluate_many(
    kernels: Mapping[OperatorName, Kernel], *, files: Files = (), **settings: Any
) -> dict[str, Evaluation]:
    """Evaluate a kernel for each operator, on every device that was asked for at once. The files go with every one."""
    with _warm.of(settings) as (judge, given):
        return judge.evaluate_many(kernels, files=files, **given)


@contextmanager
def capture(path: str | Path, *, operators: Iterable[str] | None = None) -> Iterator[Capture]:
    """Record the operators that the block calls, forward and backward, as a suite: ``--suite captured --source PATH``.

    However the block ends, the file is written when it does. Operators are named as on the command line.
    """
    from torchstone.suites.program_capture import capturing

    names = names_of(operators)
    with capturing(Path(path), None if names is None else tuple(names)) as recorded:
        yield recorded
