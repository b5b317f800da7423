"""Backend `flag_gems`: the Triton kernels of the package FlagGems, one for every operator that it registers.

FlagGems registers functions with the dispatcher. Its table of registrations is read as text, because the package can
only be imported where a GPU is. In the worker each function is looked up in that table and called as the dispatcher
does: by position, because its parameters have other names. Trailing default arguments are left out, because not every
function takes them.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from torchstone.backends.base import BackendOptions
from torchstone.errors import UsageError
from torchstone.schema import Implementation, SourceFile, SourceFiles

_INSTALL = "Install it without its pins: pip install --no-deps flag_gems; then pip install sqlalchemy pyyaml packaging."
_NEEDS = ("sqlalchemy", "yaml", "packaging")
"""Packages that FlagGems imports besides torch, triton and numpy."""
_TABLE = "_FULL_CONFIG"
"""Name of the table of registrations in FlagGems' main module."""

_SOURCE = """\
import os

import torch

if torch.version.hip is None:
    os.environ.setdefault("GEMS_VENDOR", "nvidia")  # otherwise it asks the tools of every vendor

import flag_gems

function = {{entry[0]: entry[1] for entry in flag_gems.{table}}}["{registration}"]
arguments = torch.ops.{operator}._schema.arguments
positional = [argument for argument in arguments if not argument.kwarg_only]
keywords = {{argument.name: argument for argument in arguments if argument.kwarg_only}}


def is_default(value, argument):
    if not argument.has_default_value() or isinstance(value, torch.Tensor):
        return False
    return type(value) is type(argument.default_value) and value == argument.default_value


def in_order(args, kwargs):
    given = dict(zip((argument.name for argument in positional), args))
    given.update((name, value) for name, value in kwargs.items() if name not in keywords)
    values = [given.get(argument.name, argument.default_value) for argument in positional]
    while values and is_default(values[-1], positional[len(values) - 1]):
        values.pop()
    return values


def by_name(kwargs):
    found = ((name, value) for name, value in kwargs.items() if name in keywords)
    return {{name: value for name, value in found if not is_default(value, keywords[name])}}


def kernel(*args, **kwargs):
    return function(*in_order(args, kwargs), **by_name(kwargs))
"""


class FlagGemsBackend:
    """Triton kernels of the installed package FlagGems; needs a GPU."""

    def __init__(self, options: BackendOptions) -> None:
        module = _require_package()
        if options.device_type == "cpu":
            raise UsageError(
                "backend 'flag_gems' needs a GPU: FlagGems cannot be imported without one. Add --device cuda."
            )
        self._registrations = {_overload(name): name for name in _registered(module)}

    def implementation(self, operator: str) -> Implementation | None:
        registration = self._registrations.get(operator)
        if registration is None:
            return None
        text = _SOURCE.format(table=_TABLE, registration=registration, operator=operator)
        origin = SourceFiles((SourceFile("flag_gems_kernel.py", text),), "kernel", f"flag_gems: {registration}")
        return Implementation("flag_gems", operator, origin, "triton", "flag_gems")

    def operators(self) -> tuple[str, ...]:
        """Every overload that is registered. A few are registered under names that torch does not have."""
        return tuple(sorted(self._registrations))


def _require_package() -> Path:
    """The main module, which has the table. Raises UsageError if FlagGems or a package that it needs is missing.

    Imports nothing of the package.
    """
    spec = importlib.util.find_spec("flag_gems")
    if spec is None or spec.origin is None:
        raise UsageError(f"backend 'flag_gems' needs the package flag_gems, which is not installed. {_INSTALL}")
    lacking = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if lacking:
        raise UsageError(f"flag_gems is installed but needs {', '.join(lacking)}. {_INSTALL}")
    return Path(spec.origin)


def _registered(module: Path) -> Iterator[str]:
    """The names under which the module registers functions, such as `add.Tensor` and `relu`."""
    try:
        tree = ast.parse(module.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        raise UsageError(f"{module} cannot be read ({error}). Reinstall flag_gems.") from error
    found = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == _TABLE for to in node.targets)
    ]
    if not found or not isinstance(found[-1], ast.Tuple):
        raise UsageError(f"{module} has no table {_TABLE}: this version of flag_gems is not known. Install 5.0.2.")
    for entry in found[-1].elts:
        if isinstance(entry, ast.Tuple) and len(entry.elts) > 1 and isinstance(entry.elts[0], ast.Constant):
            yield str(entry.elts[0].value)


def _overload(registration: str) -> str:
    """`add.Tensor` -> `aten.add.Tensor`, `relu` -> `aten.relu.default`."""
    return f"aten.{registration}" if "." in registration else f"aten.{registration}.default"
