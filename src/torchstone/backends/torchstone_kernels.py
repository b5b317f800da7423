"""Backends `torchstone-triton` and `torchstone-cuda`: the built-in kernels of `torchstone.kernels` as candidates.

They lie in folders and are read like a user's own kernels. In the sandbox they can import the installed package
`torchstone.kernels`. If results and gradients are judged together, the kernel is called through the function with
autograd that users call.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

import msgspec

from torchstone.backends.base import BackendOptions, HeldKernel
from torchstone.backends.directory import DirectoryBackend
from torchstone.errors import UsageError
from torchstone.kernels.catalogue import folder_of, is_interpreted, what_is_missing
from torchstone.schema import Implementation, SourceFile, SourceFiles

_DIFFERENTIABLE = {
    "aten.gelu.default": "def kernel(self, *, approximate='none'):\n    return f.gelu(self, approximate, impl=IMPL)",
    "aten.mse_loss.default": (
        "def kernel(self, target, reduction=1):\n    return f.native_mse_loss(self, target, reduction, impl=IMPL)"
    ),
    "aten.native_layer_norm.default": (
        "def kernel(input, normalized_shape, weight, bias, eps):\n"
        "    return f.native_layer_norm(input, normalized_shape, weight, bias, eps, impl=IMPL)"
    ),
    "aten.silu.default": "def kernel(self):\n    return f.swish(self, impl=IMPL)",
}
"""Overload -> source text that calls its function with autograd. The cross-entropy kernel is an autograd function
itself. Backward overloads have no such function."""

_CALLING = """\
from torchstone.errors import UsageError
from torchstone.kernels import autograd_functions as f

IMPL = "{impl}"


{function}


def differentiable(*args, **kwargs):
    try:
        return kernel(*args, **kwargs)
    except UsageError as error:  # what the kernels are not written for
        raise NotImplementedError(str(error)) from error
"""


class BuiltInKernels(DirectoryBackend):
    """Kernels of one language that Torchstone brings along."""

    language: ClassVar[Literal["triton", "cuda"]]

    def __init__(self, options: BackendOptions) -> None:
        require_usable(self.language, options.device_type)
        super().__init__(BackendOptions(folder_of(self.language), options.device_type))

    def implementation(self, operator: str) -> Implementation | None:
        """The kernel for the overload, under this backend's name."""
        found = super().implementation(operator)
        if found is None:
            return None
        return msgspec.structs.replace(found, backend=backend_name(self.language), language=self.language)

    def differentiable(self, operator: str) -> Implementation | None:
        """The kernel for judging results and gradients together: it calls the function with autograd."""
        found, function = self.implementation(operator), _DIFFERENTIABLE.get(operator)
        if found is None or function is None:
            return found
        assert isinstance(found.origin, SourceFiles), "the directory backend offers nothing else"
        # The kernel's own text is sent, too, but not used: a changed kernel must get another content key.
        text = _CALLING.format(impl=self.language, function=function)
        files = (SourceFile("calling.py", text), *found.origin.files)
        return msgspec.structs.replace(found, origin=SourceFiles(files, "differentiable", found.origin.label))

    def held(self) -> tuple[HeldKernel, ...]:
        """Always empty, so that users are not warned of built-in kernels that a suite does not use."""
        return ()


class BuiltInTriton(BuiltInKernels):
    """Torchstone's own Triton kernels for LayerNorm, GELU, SiLU, MSE and cross-entropy; needs a GPU."""

    language = "triton"


class BuiltInCuda(BuiltInKernels):
    """Torchstone's own CUDA C++ kernels for LayerNorm, GELU, SiLU, MSE and cross-entropy; needs a GPU."""

    language = "cuda"


BACKENDS: dict[str, type[BuiltInKernels]] = {"torchstone-triton": BuiltInTriton, "torchstone-cuda": BuiltInCuda}


def backend_name(language: str) -> str:
    """The name of the backend with the built-in kernels of a language."""
    return f"torchstone-{language}"


def is_built_in(folder: Path) -> bool:
    """Whether this names the built-in kernels: it is the name of such a backend, and the user has no such folder."""
    return str(folder) in BACKENDS and not folder.exists()


def require_usable(language: str, device_type: str) -> None:
    """Raise UsageError if the built-in kernels of this language cannot run on such a device."""
    missing = what_is_missing(language)
    if missing is not None:
        raise UsageError(f"backend '{backend_name(language)}': {missing}")
    if device_type == "cpu" and not (language == "triton" and is_interpreted()):
        hint = ", or set TRITON_INTERPRET=1 to run Triton's interpreter" if language == "triton" else ""
        raise UsageError(f"backend '{backend_name(language)}' needs a GPU. Add --device cuda{hint}.")
