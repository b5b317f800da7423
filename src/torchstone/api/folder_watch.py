"""A folder of kernels that is judged again as it changes: each look submits the kernels that are new or different."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Protocol

from torchstone.api.evaluation import Evaluation
from torchstone.api.judge import Judge
from torchstone.api.submission import Purpose
from torchstone.backends import BackendOptions
from torchstone.backends.directory import DirectoryBackend
from torchstone.errors import MissingExtraError, TorchstoneError, UsageError
from torchstone.schema import Implementation
from torchstone.suites import names_operator

_LOOK_MILLISECONDS = 2000
"""How often the folder is read without a known change."""


class View(Protocol):
    """Shows what is known of each operator. Called from several threads."""

    def judging(self, operator: str) -> None:
        """Its kernel is new or has changed."""
        ...

    def judged(self, operator: str, evaluation: Evaluation) -> None: ...

    def failed(self, operator: str, message: str) -> None:
        """There is no verdict, for this reason."""
        ...

    def removed(self, operator: str) -> None:
        """Its kernel is gone."""
        ...

    def noted(self, message: str) -> None:
        """About the folder as a whole."""
        ...


class FolderWatch:
    """The kernels of a folder, as they were at the last look."""

    def __init__(
        self, folder: Path, judge: Judge, view: View, purpose: Purpose, operators: tuple[str, ...] | None = None
    ) -> None:
        self._folder, self._judge, self._view = folder, judge, view
        self._purpose, self._operators = purpose, operators
        self._noted = ""
        self._seen: dict[str, str] = {}
        self._futures: dict[str, Future[Evaluation]] = {}

    def look(self) -> None:
        """Read the folder; submit what is new or different, and forget what is gone."""
        try:
            found = self._kernels()
        except UsageError as error:
            if not self._folder.is_dir():
                raise
            if str(error) != self._noted:  # the folder is being written: the next look may find more
                self._noted = str(error)
                self._view.noted(self._noted)
            found = {}
        for operator in self._seen.keys() - found.keys():
            self._cancel(operator)
            del self._seen[operator]
            self._view.removed(operator)
        for operator, implementation in found.items():
            if self._seen.get(operator) != implementation.key:
                self._seen[operator] = implementation.key
                self._submit(operator, implementation)

    def _kernels(self) -> dict[str, Implementation]:
        """What the folder offers, by overload. A folder of an operator alone means the overload that has cases."""
        backend = DirectoryBackend(BackendOptions(self._folder, "cpu"))
        found: dict[str, Implementation] = {}
        for held in backend.held():
            for operator in held.serves:
                wanted = self._operators is None or any(names_operator(name, operator) for name in self._operators)
                offered = backend.implementation(operator) if wanted else None
                if offered is not None and (len(held.serves) == 1 or self._judge.has_cases(operator)):
                    found[operator] = offered
        return found

    def _submit(self, operator: str, implementation: Implementation) -> None:
        self._cancel(operator)
        self._view.judging(operator)
        try:
            future = self._judge.submit(implementation, operator, purpose=self._purpose)
        except TorchstoneError as error:
            self._view.failed(operator, str(error))
            return
        self._futures[operator] = future
        future.add_done_callback(partial(self._show, operator, implementation.key))

    def _cancel(self, operator: str) -> None:
        future = self._futures.pop(operator, None)
        if future is not None:
            future.cancel()

    def _show(self, operator: str, key: str, future: Future[Evaluation]) -> None:
        if future.cancelled() or self._seen.get(operator) != key:
            return
        error = future.exception()
        if error is None:
            self._view.judged(operator, future.result())
        else:
            self._view.failed(operator, str(error))


def changes_of(folder: Path) -> Iterator[object]:
    """Gives something after every change of the folder. Fails at once without the package that watches files."""
    try:
        import watchfiles
    except ImportError as error:
        told = "torchstone watch needs watchfiles. Install the extra: pip install 'torchstone[watch]'."
        raise MissingExtraError(told) from error
    if not folder.is_dir():
        raise UsageError(f"kernels folder {folder} does not exist. Give the folder that holds the operators'.")
    # Also now and then without a change: one may come before the first wait, or on a file system that tells nothing.
    return watchfiles.watch(folder, raise_interrupt=True, rust_timeout=_LOOK_MILLISECONDS, yield_on_timeout=True)
