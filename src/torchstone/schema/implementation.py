"""An implementation: a kernel for one operator as data, source text or an import path; never a callable."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec

from torchstone.schema.codec import content_key

Language = Literal["aten", "python", "triton", "cuda", "cpp"]


class SourceFile(msgspec.Struct, frozen=True):
    """One file of a candidate, as text."""

    name: str
    """Path relative to the kernel's folder. The first file has the entry point."""
    text: str


class SourceFiles(msgspec.Struct, frozen=True, tag="source"):
    """Code that the worker writes into its scratch folder and imports there."""

    files: tuple[SourceFile, ...]
    entry: str
    """Name of the function in the first file, ``relu_kernel_impl``."""
    label: str = ""
    """Where the code was read from, for messages and reports."""


class ImportPath(msgspec.Struct, frozen=True, tag="import"):
    """A function of an installed module: ``torch`` and ``ops.aten.add.Tensor``."""

    module: str
    attribute: str


Origin = SourceFiles | ImportPath


PROBLEM_FILE = "torchstone_problem.py"
"""Name of the file with the problem of a model, in the candidate's folder."""
WEIGHTS_FILE = "torchstone_weights.json"
"""Name of the file beside it with the names of the model's weights, in order, each with whether it is a buffer."""


class Implementation(msgspec.Struct, frozen=True, dict=True):
    """One way to compute one operator."""

    backend: str
    operator: str
    origin: Origin
    language: Language = "python"
    package: str = ""
    """The installed package, if a backend offers its operators. Implementations of one package may share a worker, as
    in any program that imports the package. Empty: this implementation has a worker of its own."""

    @cached_property
    def key(self) -> str:
        """Content hash. Label, language and package are left out: the same code in another place has the same key."""
        if isinstance(self.origin, SourceFiles):
            return content_key(self.backend, self.operator, self.origin.files, self.origin.entry)
        return content_key(self.backend, self.operator, self.origin)

    @property
    def reference(self) -> ImplementationReference:
        """The part that records keep. The run folder has the source text once, under the key."""
        where = (
            self.origin.label
            if isinstance(self.origin, SourceFiles)
            else f"{self.origin.module}.{self.origin.attribute}"
        )
        return ImplementationReference(self.backend, self.operator, self.language, where, self.key)


class ImplementationReference(msgspec.Struct, frozen=True):
    """Identifies an implementation in records."""

    backend: str
    operator: str
    language: Language
    where: str
    key: str
