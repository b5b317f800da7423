"""Names of the operations and implementations of a sweep, and the spellings that users may give."""

from __future__ import annotations

from collections.abc import Iterable

from torchstone.errors import UsageError, unknown_name

OPERATIONS = ("LayerNorm", "GELU", "Swish", "MSE", "CrossEntropy")
"""Built-in operations, named as in the output, in the order of the tables."""
IMPLEMENTATIONS = ("PyTorch", "Compile", "CUDA", "Triton", "Liger")
DEFAULT_IMPLEMENTATIONS = ("PyTorch", "CUDA", "Triton")
DTYPES = ("float32", "float16", "bfloat16")

_OPERATIONS = {
    **{name.lower(): (name,) for name in OPERATIONS},
    "silu": ("Swish",),
    "mseloss": ("MSE",),
    "crossentropyloss": ("CrossEntropy",),
    "loss": ("MSE", "CrossEntropy"),
}
_IMPLEMENTATIONS = {
    **{name.lower(): name for name in IMPLEMENTATIONS},
    "torch": "PyTorch",
    "eager": "PyTorch",
    "torchcompile": "Compile",
}
_SUGGESTED_OPERATIONS = ("layer_norm", "gelu", "swish", "silu", "mse", "cross_entropy", "loss")
_SUGGESTED_IMPLEMENTATIONS = ("pytorch", "compile", "cuda", "triton", "liger")


def is_file(name: str) -> bool:
    """Whether the name of an operation means a file that defines one."""
    return name.endswith(".py")


def operations_named(names: Iterable[str]) -> tuple[str, ...]:
    """Operation names in any spelling -> names as in the output, each once. File paths are kept."""
    found: dict[str, None] = {}
    for name in names:
        if is_file(name):
            found[name] = None
            continue
        known = _OPERATIONS.get(_plain(name))
        if known is None:
            raise unknown_name("operation", name, _SUGGESTED_OPERATIONS)
        found.update(dict.fromkeys(known))
    if not found:
        raise UsageError(f"there is no operation. Known: {', '.join(_SUGGESTED_OPERATIONS)}.")
    return tuple(found)


def implementations_named(names: Iterable[str]) -> tuple[str, ...]:
    """Implementation names in any spelling -> names as in the output, each once."""
    found: dict[str, None] = {}
    for name in names:
        known = _IMPLEMENTATIONS.get(_plain(name))
        if known is None:
            raise unknown_name("implementation", name, _SUGGESTED_IMPLEMENTATIONS)
        found[known] = None
    if not found:
        raise UsageError(f"there is no implementation. Known: {', '.join(_SUGGESTED_IMPLEMENTATIONS)}.")
    return tuple(found)


def _plain(name: str) -> str:
    return name.lower().translate({ord(sign): None for sign in "_-. "})
