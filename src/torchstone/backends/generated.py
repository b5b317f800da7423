"""Backend `llm`: the best kernels that a model wrote, from the folder of a run of `torchstone generate`.

The command line generates them first (`torchstone run --backend llm`). This backend only reads the folder, as the
backend `directory` does, and offers nothing for operators without code.
"""

from __future__ import annotations

import msgspec

from torchstone.backends.base import BackendOptions, HeldKernel, Problem
from torchstone.backends.directory import DirectoryBackend
from torchstone.backends.kernelbench_solutions import SolutionsBackend
from torchstone.errors import UsageError
from torchstone.schema import Implementation, is_model
from torchstone.schema.generation import GENERATION


class GeneratedBackend:
    """Kernels that a model writes and corrects with the judge's feedback: --model NAME."""

    def __init__(self, options: BackendOptions) -> None:
        folder = options.kernels_dir
        if folder is None or not (folder / GENERATION).is_file():
            raise UsageError(
                "backend 'llm' reads a folder that 'torchstone generate' wrote. Use 'torchstone run --backend llm "
                "--model NAME', which writes one, or --backend directory for kernels that are there."
            )
        self._solutions = SolutionsBackend(options)
        try:
            self._kernels: DirectoryBackend | None = DirectoryBackend(options)
        except UsageError:  # not one reply held code
            self._kernels = None

    def implementation(self, operator: str) -> Implementation | None:
        """The best attempt at the overload, or None."""
        kernels = self._solutions if is_model(operator) else self._kernels
        found = None if kernels is None else kernels.implementation(operator)
        return None if found is None else msgspec.structs.replace(found, backend="llm")

    def held(self) -> tuple[HeldKernel, ...]:
        return () if self._kernels is None else self._kernels.held()

    def problems(self) -> tuple[Problem, ...]:
        return () if self._kernels is None else self._kernels.problems()
