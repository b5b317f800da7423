"""Asks torch about cases in another process, since the question may kill it.

Not every operator of ATen checks its arguments; some end the process on an invalid call. Calls that are not known to
be valid are therefore made by ``python -m torchstone.case_checks.oracle_process``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType
from typing import Literal

import msgspec

from torchstone.errors import InfrastructureError
from torchstone.schema import Case, decode, encode

Kind = Literal["takes", "share_of_nan", "defines", "excuse"]
Answer = bool | float | str | None


class Question(msgspec.Struct, frozen=True):
    """About one case, with the values of one seed."""

    kind: Kind
    case: Case
    seed: int = 0


class Oracle:
    """The asking side. Starts the process when it is entered."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Oracle:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "torchstone.case_checks.oracle_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def takes(self, case: Case, seed: int = 0) -> bool:
        """Whether torch takes the case, with values as they come and with every index as large as it may be."""
        return self._ask("takes", case, seed) is True

    def share_of_nan(self, case: Case, seed: int = 0) -> float:
        """In the results of one call."""
        share = self._ask("share_of_nan", case, seed)
        return share if isinstance(share, float) else 1.0

    def defines(self, case: Case, seed: int = 0) -> bool:
        """Whether torch gives the same, as far as the judge can tell, if the values lie apart in memory."""
        return self._ask("defines", case, seed) is True

    def excuse(self, case: Case) -> str:
        """Why the case may not tell a trivial kernel from a right one."""
        return str(self._ask("excuse", case, 0) or "")

    def _ask(self, kind: Kind, case: Case, seed: int) -> Answer:
        """None: there is no answer, because torch refuses the case or dies of it."""
        assert self._process is not None, "an oracle is entered before it is asked"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(encode(Question(kind, case, seed)) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # said below
        line = self._process.stdout.readline()
        if not line:
            raise InfrastructureError("the process that asks torch about cases ended. Is torch installed here?")
        return decode(line, Answer)  # type: ignore[arg-type]
