"""Tries cases with torch in another process, because an invalid call may crash the process.

Not every operator of ATen checks its arguments; some crash on an invalid call. So calls that are not known to be valid
are made by ``python -m torchstone.case_checks.torch_probe_process``.
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
    """A question about one case, with the values of one seed."""

    kind: Kind
    case: Case
    seed: int = 0


class TorchProbe:
    """Sends questions to the process, which starts when the context is entered."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> TorchProbe:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "torchstone.case_checks.torch_probe_process"],
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
        """Whether torch accepts the case, with drawn values and with the largest possible value of every index."""
        return self._ask("takes", case, seed) is True

    def share_of_nan(self, case: Case, seed: int = 0) -> float:
        """The largest share of NaN in a result of one call; 1 if torch refuses the case."""
        share = self._ask("share_of_nan", case, seed)
        return share if isinstance(share, float) else 1.0

    def defines(self, case: Case, seed: int = 0) -> bool:
        """Whether torch gives the same results, within the judge's bounds, on strided memory."""
        return self._ask("defines", case, seed) is True

    def excuse(self, case: Case) -> str:
        """Why a trivial kernel may pass the case; empty: no reason was found."""
        return str(self._ask("excuse", case, 0) or "")

    def _ask(self, kind: Kind, case: Case, seed: int) -> Answer:
        """The answer; None: torch refuses the case or crashes."""
        assert self._process is not None, "a probe is entered before it is asked"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(encode(Question(kind, case, seed)) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # raised below
        line = self._process.stdout.readline()
        if not line:
            raise InfrastructureError("the process that asks torch about cases ended. Is torch installed here?")
        return decode(line, Answer)  # type: ignore[arg-type]
